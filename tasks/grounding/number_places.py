"""Sorts the numbers of the windows near to a claim by what they say of one of its numbers: the same, or a rival in its place."""

from dataclasses import dataclass, field

from tasks.grounding.alignment import Place
from tasks.text.fact_text import FactText
from tasks.text.quantities import NUMBER, YEAR, Quantity, comparable, is_measured


@dataclass(slots=True)
class NumberPlaces:
    """Places of numbers: ``same`` as the claim's, equal but of another kind (``elsewhere``), and rivals in its place."""

    same: list[Place] = field(default_factory=list)
    elsewhere: list[Place] = field(default_factory=list)
    rivals: list[Place] = field(default_factory=list)
    counted: list[Place] = field(default_factory=list)
    """Rivals before the noun that the claim's number counts."""
    unlike: list[Place] = field(default_factory=list)
    """The same number with a unit that does not convert into the claim's: kilograms, pounds."""
    years: list[Place] = field(default_factory=list)
    """Years, for a number of the claim that counts nothing."""
    counts_same: bool = False
    """The claim's number stands before its noun in a window, too."""

    def add_rival(self, quantity: Quantity, other: Quantity, place: Place, *, counts: bool, alike: bool) -> None:
        """Adds a place of another number that may stand for the claim's.

        Args:
            quantity: of the claim.
            other: of the source.
            place: its place.
            counts: the claim's number counts a noun.
            alike: the other one counts it, too.
        """
        if comparable(quantity, other):
            self.rivals.append(place)
        elif quantity.unit or other.unit:
            return
        # "In 24" for "in 2016", "1851 prizes" for "122 prizes".
        elif quantity.kind == NUMBER and other.kind == YEAR and not counts:
            self.years.append(place)
        if alike and {quantity.kind, other.kind} <= {NUMBER, YEAR} and other.kind == NUMBER:
            self.counted.append(place)


def same_kind(claim: Quantity, source: Quantity) -> bool:
    """Tells whether two equal quantities are of one kind: the same part of a date, or both counts, or of one unit."""
    if claim.kind != source.kind:
        return False
    return claim.kind != NUMBER or not (is_measured(source) and not is_measured(claim))


def counted_noun(facts: FactText, quantity: Quantity) -> str:
    """The stem of the noun that a number without a known unit counts; empty without one."""
    if quantity.unit:
        return ""
    for at in range(quantity.last + 1, min(quantity.last + 3, len(facts.lows))):
        if at in facts.breaks:
            break
        if facts.stems[at]:
            return facts.stems[at]
    return ""
