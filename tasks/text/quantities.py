"""Compares quantities by value and unit: 4 %, four per cent and 0.04; two years and 24 months. Spells numbers alike."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

NUMBER, YEAR, MONTH, DAY, WEEKDAY = "number", "year", "month", "day", "weekday"
DATES = frozenset({YEAR, MONTH, DAY, WEEKDAY})
_BARE = frozenset({NUMBER, YEAR, DAY})
"""Kinds of a number without a unit, which may be read as one another."""

_FAMILIES: dict[str, tuple[str, float]] = {
    "second": ("clock", 1),
    "minute": ("clock", 60),
    "hour": ("clock", 3600),
    "day": ("clock", 86_400),
    "week": ("clock", 604_800),
    "month": ("calendar", 1),
    "quarter": ("calendar", 3),
    "year": ("calendar", 12),
    "decade": ("calendar", 120),
    "century": ("calendar", 1200),
    "mm": ("length", 1),
    "cm": ("length", 10),
    "m": ("length", 1_000),
    "km": ("length", 1_000_000),
    "inch": ("imperial length", 1),
    "foot": ("imperial length", 12),
    "mile": ("imperial length", 63_360),
    "g": ("mass", 1),
    "kg": ("mass", 1_000),
    "tonne": ("mass", 1_000_000),
    "oz": ("imperial mass", 1),
    "lb": ("imperial mass", 16),
    "gallon": ("imperial volume", 1),
    "ml": ("volume", 1),
    "litre": ("volume", 1_000),
}
"""Units that convert into one another by a factor."""
_MONEY = frozenset({"€", "$", "£", "¥", "chf", "cent"})
PERCENT = "%"
POINTS = "points"
"""Percentage points: the difference of two shares, which are in per cent."""
_TOLERANCE = 1e-9
_LEAST_ROUNDED = 10_000.0
"""Least whole number that can be rounded without a word like "about": years, counts and articles must match exactly."""
_ROUGH = 0.06
"""Largest relative difference after a word like "about"."""
_LEAST_ROUGH = 50.0


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number, or a part of a date, with its readings and its unit; tokens ``[first, last]`` of its text.

    ``1.200`` has two readings. ``unit`` is empty when none follows; ``rough`` marks one after a word like "about".
    """

    values: frozenset[float]
    unit: str
    kind: str
    first: int
    last: int
    rough: bool = False
    article: bool = False
    """"a month": one month, but nothing that a claim states."""


def comparable(claim: Quantity, source: Quantity) -> bool:
    """Tells whether two quantities measure the same: then different values exclude one another."""
    if claim.kind != source.kind:
        return False
    if claim.kind != NUMBER:
        return True
    if claim.unit == source.unit:
        return True
    if not claim.unit or not source.unit:
        return False
    if claim.unit in _MONEY and source.unit in _MONEY:
        return True
    family, other = _FAMILIES.get(claim.unit), _FAMILIES.get(source.unit)
    times = {"clock", "calendar"}
    return bool(family and other and (family[0] == other[0] or {family[0], other[0]} <= times))


def equal(claim: Quantity, source: Quantity) -> bool:
    """Tells whether a claim's quantity ``claim`` says what a source's quantity ``source`` does, in any of their readings."""
    if claim.kind != source.kind:
        if claim.kind not in _BARE or source.kind not in _BARE:
            return False
    elif claim.kind == NUMBER and not _units_agree(claim.unit, source.unit):
        return _converted(claim, source)
    if not claim.values.isdisjoint(source.values):
        return True
    rough = claim.rough or source.rough
    for value in claim.values:
        for other in source.values:
            if _same(value, other, rough=rough):
                return True
    return False


def _units_agree(unit: str, other: str) -> bool:
    if unit == other or not unit or not other:
        return True
    if POINTS in {unit, other}:
        return False
    measured = unit in _FAMILIES or unit in _MONEY or unit == PERCENT
    return not (measured and (other in _FAMILIES or other in _MONEY or other == PERCENT))


def _converted(claim: Quantity, source: Quantity) -> bool:
    family, other = _FAMILIES.get(claim.unit), _FAMILIES.get(source.unit)
    if not family or not other or family[0] != other[0]:
        return False
    rough = claim.rough or source.rough
    return any(
        _same(value * family[1], against * other[1], rough=rough) for value in claim.values for against in source.values
    )


def _same(value: float, other: float, *, rough: bool) -> bool:
    apart, larger = abs(value - other), max(abs(value), abs(other))
    # Whole numbers differ by one at least, however long they are: an account, a phone.
    if value == other or apart < min(1.0, _TOLERANCE * larger):
        return True
    if math.isinf(larger) or (apart >= 1 and not rough and value < _LEAST_ROUNDED):
        # Neither rounding to decimals nor to tens brings them together.
        return False
    if rough and abs(other) >= _LEAST_ROUGH and apart <= _ROUGH * larger:
        return True
    if value.is_integer() and abs(value) < _LEAST_ROUNDED:
        return False
    return rounds_to(other, value)


def rounds_to(exact: float, value: float) -> bool:
    """Tells whether a number, rounded to the precision of ``value``, is ``value``: 8,537,673 to 8.5 million, 4.24 to 4.2."""
    if value == int(value):
        if abs(value) < _LEAST_ROUNDED or value % 10:
            return False
        step = 10.0
        while value % (step * 10) == 0:
            step *= 10
        # 2000 is a year, or a count; 1998 is not rounded to it.
        return abs(value) / step < 1_000 and step >= 100 and abs(exact - value) <= step / 2  # noqa: PLR2004 - digits
    if abs(exact - value) >= 1:
        # Rounding to one decimal or more moves a number by less.
        return False
    decimals = len(repr(value).partition(".")[2])
    return exact != value and round(exact, decimals) == value


def is_measured(quantity: Quantity) -> bool:
    """Tells whether a known unit stands beside a number: per cent, money, a length, a time."""
    return quantity.unit in _FAMILIES or quantity.unit in _MONEY or quantity.unit in {PERCENT, POINTS}


def is_money(quantity: Quantity) -> bool:
    """Tells whether a number is an amount of money."""
    return quantity.unit in _MONEY


def is_period(quantity: Quantity) -> bool:
    """Tells whether a number is a length of time."""
    return quantity.kind == NUMBER and is_period_unit(quantity.unit)


def is_period_unit(unit: str) -> bool:
    """Tells whether a unit measures time."""
    family = _FAMILIES.get(unit)
    return family is not None and family[0] in {"clock", "calendar"}


def is_unlike(claim: Quantity, source: Quantity) -> bool:
    """Tells whether two quantities have one value in units of two systems: kilograms and pounds, kilometres and miles."""
    if claim.unit == source.unit or claim.values.isdisjoint(source.values):
        return False
    if {claim.unit, source.unit} == {PERCENT, POINTS}:
        return True
    dimensions = {_dimension(claim.unit), _dimension(source.unit)}
    # "Pounds" are read as money.
    return (len(dimensions) == 1 and dimensions != {""}) or dimensions == {"mass", "£"}


def _dimension(unit: str) -> str:
    family = _FAMILIES.get(unit)
    return family[0].removeprefix("imperial ") if family else unit if unit == "£" else ""


def equal_fraction(claim: Quantity, source: Quantity) -> bool:
    """Tells whether one is the other in per cent: 0.04 and 4 %."""
    if (
        (claim.unit == PERCENT) == (source.unit == PERCENT)
        or claim.unit not in {"", PERCENT}
        or source.unit not in {"", PERCENT}
    ):
        return False
    share, fraction = (claim, source) if claim.unit == PERCENT else (source, claim)
    return any(
        abs(value / 100 - other) <= _TOLERANCE for value in share.values for other in fraction.values if 0 < other <= 1
    )


def follows(claim: Quantity, quantities: Iterable[Quantity]) -> bool:
    """Tells whether a quantity is the sum or the difference of two others of its unit."""
    listed = [other for other in quantities if other.kind == claim.kind or {other.kind, claim.kind} <= {NUMBER, YEAR}]
    unit = PERCENT if claim.unit == POINTS else claim.unit
    values = sorted({value for other in listed for value in other.values if _units_agree(unit, other.unit)})[:24]
    targets = [value for value in claim.values if value]
    for place, value in enumerate(values):
        for other in values[place + 1 :]:
            if any(
                _same(target, result, rough=claim.rough)
                for target in targets
                for result in (value + other, other - value)
            ):
                return True
    return len(values) > 2 and any(_same(target, sum(values), rough=claim.rough) for target in targets)  # noqa: PLR2004


# ---- spelling --------------------------------------------------------------------------------------------------------


_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:\.\d{3}){2,}(?:,\d+)?|\d{1,3}(?:\.\d{3})+,\d+")
_APOSTROPHE_THOUSANDS = re.compile(r"\d{1,3}(?:['’]\d{3})+(?:\.\d+)?")
_DECIMAL_COMMA = re.compile(r"\d+,\d+")


@lru_cache(maxsize=4096)
def number(word: str) -> str:
    """The normal spelling of a number; a date or a section number stays unchanged."""
    if word.isdecimal():
        return word.lstrip("0") or "0"
    plain = word
    if _THOUSANDS.fullmatch(word):
        decimal_comma = "," in word and word.rfind(",") > word.rfind(".") > -1
        if decimal_comma:
            plain = word.replace(".", "").replace(",", ".")
        elif word.count(".") > 1:
            plain = word.replace(".", "")
        else:
            plain = word.replace(",", "")
    elif _APOSTROPHE_THOUSANDS.fullmatch(word):
        plain = word.replace("'", "").replace("’", "")
    elif _DECIMAL_COMMA.fullmatch(word):
        plain = word.replace(",", ".")
    if plain.count(".") == 1:
        plain = plain.rstrip("0").rstrip(".")
    return plain.lstrip("0") or "0" if "." not in plain else plain
