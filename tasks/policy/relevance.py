"""Tells whether the relevance scores of sources are on a scale from 0 to 1; no rule compares others with a threshold."""

from collections.abc import Iterable, Sequence
from typing import Any

from schemas.job import JobRequest

FUSED = 0.1
"""Below it lie all scores of a fusion of ranks (1 / (60 + rank) and sums of a few)."""

_ROUNDING = 0.001
"""Beyond 0 and 1, which cosines and shares have."""


def other_scale(scores: Iterable[float]) -> str | None:
    """The scale that the scores of an input seem to have, for people; None: one from 0 to 1, or there are none."""
    values = list(scores)
    if not values:
        return None
    least, most = min(values), max(values)
    if least < -_ROUNDING:
        return "numbers below 0, as logits and distances are"
    if most > 1 + _ROUNDING:
        return "numbers above 1, as percent, logits and BM25 are"
    if not any(values):
        return "nothing but 0, as if nobody had scored"
    return "nothing but numbers below 0.1, as fused ranks are" if most < FUSED else None


def without_threshold(
    scores: Iterable[float], defaults: dict[str, Any] | None
) -> tuple[dict[str, Any] | None, str | None]:
    """The defaults of jobs whose scores are on another scale, which let no threshold decide, and what to tell of it.

    A threshold that the producer set stays. On the usual scale the defaults are returned as they are, and None.
    """
    scale = other_scale(scores)
    if scale is None:
        return defaults, None
    words = f"relevance_score holds {scale}, so min_relevance, which compares numbers from 0 to 1, is not applied"
    return {"min_relevance": 0.0, **(defaults or {})}, words


def relevance_scores(request: JobRequest) -> Sequence[float | None]:
    """The score of each source; nothing but None where they are on another scale, or are said to decide nothing."""
    scores = [source.relevance_score for source in request.context]
    values = [score for score in scores if score is not None]
    within = all(-_ROUNDING <= score <= 1 + _ROUNDING for score in values) and any(values)
    return scores if within and request.config.min_relevance else [None] * len(scores)


def mean_relevance(request: JobRequest) -> float | None:
    """The mean of the scores that count; None without any."""
    values = [score for score in relevance_scores(request) if score is not None]
    return sum(values) / len(values) if values else None
