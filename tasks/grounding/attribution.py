"""Citation recall and precision of claims, as ALCE defines them (Gao et al. 2023, section 3.2).

Recall: a claim counts when the sources that it cites support it, all together. Precision: one of its citations counts
when the claim is supported and the citation is needed: alone it supports the claim, or without it the others don't.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attribution:
    """Citations of one claim: whether they support it, their number, and the number of precise ones."""

    recalled: bool
    cited: int = 0
    precise: int = 0


def attribution(cited: frozenset[int], *, supported: bool, entails: Callable[[frozenset[int]], bool]) -> Attribution:
    """Judges the citations of one claim.

    Args:
        cited: the sources it cites.
        supported: all of them together support it.
        entails: true if some of them support it; called only for several citations.
    """
    if not cited or not supported:
        return Attribution(recalled=False, cited=len(cited))
    if len(cited) == 1:
        return Attribution(recalled=True, cited=1, precise=1)
    precise = sum(entails(frozenset({source})) or not entails(cited - {source}) for source in cited)
    return Attribution(recalled=True, cited=len(cited), precise=precise)


def citation_scores(attributions: Iterable[Attribution]) -> tuple[float | None, float | None]:
    """Recall and precision of an answer's citations: None without attributions, and without citations."""
    claims = list(attributions)
    cited = sum(claim.cited for claim in claims)
    recall = sum(claim.recalled for claim in claims) / len(claims) if claims else None
    return recall, sum(claim.precise for claim in claims) / cited if cited else None
