"""The fact in which a claim differs from its sources: the kind of error, and the words on both sides."""

from enum import StrEnum

from pydantic import Field

from schemas.base import Contract


class ErrorKind(StrEnum):
    """The kind of fact that is wrong in a claim."""

    NUMBER = "number"
    DATE = "date"
    NAME = "name"
    NEGATION = "negation"
    DIRECTION = "direction"
    """An opposite: more and less, before and after, must and may, all and some."""
    ROLE = "role"
    """The right words in exchanged places: who did it to whom."""
    ABSENT = "absent"
    """A number or name that stands in no source and follows from none."""

    @property
    def label(self) -> str:
        """The kind as people read it."""
        return _LABELS.get(self, self.value)


_LABELS = {
    ErrorKind.DIRECTION: "opposite",
    ErrorKind.ROLE: "exchanged roles",
    ErrorKind.ABSENT: "in no source",
}


class ClaimError(Contract):
    """One wrong fact of a claim."""

    kind: ErrorKind
    claim_words: str = Field(description="the words of the claim that are wrong")
    source_words: str = Field(default="", description="the words of the evidence in their place; empty: it has none")
