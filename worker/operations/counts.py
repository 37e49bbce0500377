"""Writes numbers for people: with their nouns, and amounts of money in digits that can be read."""

from decimal import Decimal

from schemas.batch import MOST_UNPRICED, BatchStatus


def count_of(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun; ``plural`` where it is more than an s.

    >>> count_of(1, "job"), count_of(2000, "job"), count_of(1, "line was", "lines were")
    ('1 job', '2,000 jobs', '1 line was')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def whole_number(value: float | None) -> str:
    """A number without its parts; ``unknown`` where there is none."""
    return "unknown" if value is None else f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """A time span.

    >>> [duration(seconds) for seconds in (0.05, 0.31, 99, 100, 7500, None)]
    ['50 ms', '0.3 s', '99 s', '1 min 40 s', '2 h 05 min', 'unknown']
    """
    if seconds is None:
        return "unknown"
    if seconds < TENTHS_S:
        return f"{seconds:.1f} s" if seconds >= 1 / TENTHS_S or not seconds else f"{seconds * 1000:.0f} ms"
    whole = round(seconds)
    if whole < MINUTES_FROM_S:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


TENTHS_S = 10
MINUTES_FROM_S = 100
"""Seconds up to which a time span is written in tenths, and from which in minutes."""


def amount(usd: Decimal | float | str) -> str:
    """A cost in US dollars without its unit: cents from one dollar on, three digits that count below, no power of ten.

    >>> [amount(usd) for usd in (0, "0.0000742513", 0.2895, 0.9996, 7, 3.373, "-1234.5")]
    ['0', '0.0000743', '0.29', '1', '7', '3.37', '-1,234.50']
    """
    exact = Decimal(str(usd))
    places = 2 if abs(exact) >= 1 or not exact else 2 - exact.adjusted()
    text = f"{round(exact, places):,f}"
    whole, _, parts = text.partition(".")
    if not parts.strip("0"):
        return whole
    return text if abs(exact) >= 1 else text.rstrip("0")


def cost(usd: Decimal | float | str | None) -> str:
    """A cost with its unit; ``unknown``, and never 0, where no price is known.

    >>> cost(None), cost(Decimal("0.00281000"))
    ('unknown', '0.00281 USD')
    """
    return "unknown" if usd is None else f"{amount(usd)} USD"


def spent_of(status: BatchStatus) -> str:
    """The cost of a batch so far: ``0.00281 USD and 1 job of unknown price``, or ``unknown for 1 job``."""
    if status.spent_usd is not None:
        return cost(status.spent_usd)
    jobs = count_of(status.unpriced_jobs, "job")
    if status.unpriced_jobs >= MOST_UNPRICED:
        jobs += " or more"
    elif not status.unpriced_jobs:
        # They are not counted any more.
        jobs = "removed jobs"
    return f"{cost(status.priced_usd)} and {jobs} of unknown price" if status.priced_usd else f"unknown for {jobs}"
