"""The base of all contract models: frozen, and closed against unknown keys; and the moments and tenants that they may name."""

from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, model_validator

EARLIEST = datetime(2, 1, 1, tzinfo=UTC)
LATEST = datetime(9998, 12, 31, tzinfo=UTC)
"""A moment beyond them can be stored and not be read back: in another time zone it has a year that Python does not know."""


def _check_range(moment: datetime) -> datetime:
    if not EARLIEST <= moment <= LATEST:
        raise ValueError("must lie between the years 2 and 9998 in UTC; leave it out for none")
    return moment


Moment = Annotated[AwareDatetime, AfterValidator(_check_range)]
"""A time with its zone."""


def check_tenant(name: str) -> str:
    """Returns the name of a tenant that may be given to one; raises ``ValueError``."""
    check_stored_tenant(name)
    if not name.isprintable():
        raise ValueError(
            f"{name!r} has characters that steer a terminal or are invisible, such as a line break: leave them out"
        )
    return name


def check_stored_tenant(name: str) -> str:
    """Returns a name by which a tenant may be looked up, also one of old; raises ``ValueError``."""
    if not name.strip():
        raise ValueError("must not be empty")
    if "\0" in name or (not name.isascii() and any("\ud800" <= character <= "\udfff" for character in name)):
        raise ValueError(f"{name!r} is no text in UTF-8, or has a zero byte")
    return name


class Contract(BaseModel):
    """A value of the wire contract: immutable; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), defer_build=True)


class Submitted(Contract):
    """A value that callers write: a field that is null is the same as one that is missing."""

    @model_validator(mode="before")
    @classmethod
    def _leave_out_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict) or None not in value.values():
            return value
        names = cls.model_fields
        return {key: each for key, each in value.items() if each is not None or key not in names}


_FIELD_NAMES: dict[frozenset[str], set[str]] = {}

Model = TypeVar("Model", bound=Contract)


def share_field_names(value: Model) -> Model:
    """Returns the value, with the set of the fields it was given shared by all values that were given the same ones.

    For what a worker holds by the ten thousand: a set of its own takes as much memory as a short text or more. Nobody changes
    it, because contracts are frozen and a copy has a copy.
    """
    names = value.__pydantic_fields_set__
    object.__setattr__(value, "__pydantic_fields_set__", _FIELD_NAMES.setdefault(frozenset(names), names))
    return value
