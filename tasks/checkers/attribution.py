"""How well a claim's citations carry it, as ALCE defines it (Gao et al. 2023, section 3.2).

Recall: a claim counts when the sources that it cites support it, all together. Precision: one of its citations counts
when the claim is supported and the citation is needed: alone it supports the claim, or without it the others don't.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attribution:
    """What is said of one claim: whether its citations support it, how many it has, and how many of them are precise."""

    recalled: bool
    cited: int = 0
    precise: int = 0


def attribution(cited: frozenset[int], *, supported: bool, entails: Callable[[frozenset[int]], bool]) -> Attribution:
    """Judge the citations of one claim.

    Args:
        cited: the sources it cites.
        supported: whether all of them together support it.
        entails: whether some of them support it; asked only where there are several.
    """
    if not cited or not supported:
        return Attribution(recalled=False, cited=len(cited))
    if len(cited) == 1:
        return Attribution(recalled=True, cited=1, precise=1)
    precise = sum(entails(frozenset({one})) or not entails(cited - {one}) for one in cited)
    return Attribution(recalled=True, cited=len(cited), precise=precise)


def citation_scores(found: Iterable[Attribution]) -> tuple[float | None, float | None]:
    """(recall, precision) of an answer: None without claims that were judged, and without citations."""
    judged = list(found)
    cited = sum(one.cited for one in judged)
    recall = sum(one.recalled for one in judged) / len(judged) if judged else None
    return recall, sum(one.precise for one in judged) / cited if cited else None
