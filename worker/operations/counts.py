"""Writes numbers with their nouns, for messages."""


def count_of(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun; ``plural`` where it is more than an s.

    >>> count_of(1, "job"), count_of(2000, "job"), count_of(1, "line was", "lines were")
    ('1 job', '2,000 jobs', '1 line was')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
