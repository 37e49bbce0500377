"""The base of all contract models: frozen, and closed against unknown keys."""

from pydantic import BaseModel, ConfigDict


class Contract(BaseModel):
    """A value of the wire contract: immutable; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
