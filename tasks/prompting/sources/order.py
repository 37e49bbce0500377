"""Ranks a job's sources by relevance, with a fair share for each sub-query."""

from collections.abc import Sequence
from itertools import zip_longest

from schemas.job import SourceContext


def rank_sources(sources: Sequence[SourceContext]) -> list[int]:
    """The indexes of the sources, best first.

    Sources with a relevance score come first, by falling score; ties and sources without a score stay in the order of
    the request. Several sub-queries alternate, the best source of each first, so that a small budget still has the
    best source of each sub-query.
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
    """The indexes by their sources' relevance, highest first; stable, with sources without a score last."""
    return sorted(indexes, key=lambda index: _rank(sources[index].relevance_score))


def _rank(score: float | None) -> tuple[bool, float]:
    return (score is None, -(score or 0.0))


def sub_queries(sources: Sequence[SourceContext]) -> tuple[str, ...]:
    """The sub-queries of the sources, each once, in order of first appearance."""
    return tuple(dict.fromkeys(query for source in sources if (query := (source.sub_query or "").strip())))
