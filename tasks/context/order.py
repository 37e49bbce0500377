"""Rank a job's sources: by relevance where it was given, with a fair share for each sub-query."""

from collections.abc import Sequence
from itertools import zip_longest

from schemas.job import SourceContext


def ranked(sources: Sequence[SourceContext]) -> list[int]:
    """The indexes of the sources, the one to be shown first in front.

    A relevance score goes before none, higher before lower, and ties stay in the order given; without any score that
    is the order of all. Sources of several sub-queries take turns, the best of each sub-query first, so that a budget
    that does not hold all of them still holds the best of each.
    """
    queries = dict.fromkeys(source.sub_query for source in sources)
    if len(queries) < 2:  # noqa: PLR2004 - one group is no group
        return by_relevance(sources, range(len(sources)))
    groups: dict[str | None, list[int]] = {query: [] for query in queries}
    for index, source in enumerate(sources):
        groups[source.sub_query].append(index)
    turns = zip_longest(*(by_relevance(sources, group) for group in groups.values()))
    return [index for turn in turns for index in turn if index is not None]


def by_relevance(sources: Sequence[SourceContext], indexes: Sequence[int]) -> list[int]:
    """The given indexes by their sources' relevance, highest first; stable, and those without a score last."""
    return sorted(indexes, key=lambda index: _rank(sources[index].relevance_score))


def _rank(score: float | None) -> tuple[bool, float]:
    return (score is None, -(score or 0.0))


def sub_queries(sources: Sequence[SourceContext]) -> tuple[str, ...]:
    """The sub-queries that the sources were found for, each once, in order of first appearance."""
    return tuple(dict.fromkeys(query for source in sources if (query := (source.sub_query or "").strip())))
