"""The base of all contract models, frozen and closed against unknown keys, and the type of money."""

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer


class Contract(BaseModel):
    """A value of the wire contract: immutable; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


def _plain(amount: Decimal) -> str:
    return format(amount.normalize(), "f")


Usd = Annotated[Decimal, PlainSerializer(_plain, return_type=str, when_used="json")]
"""An amount of US dollars: exact, and in JSON a plain decimal string (``"0.0123"``, never ``"0E-8"``)."""
