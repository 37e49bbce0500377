"""Remarks on a number of a claim that is in no source: the number that stands before the same word there."""

from collections.abc import Sequence

from tasks.grounding.model import ClaimText, Measurement
from tasks.text.evidence import SourceSearch
from tasks.text.sentences import words
from tasks.text.wording import stems_of

_DIGIT_END = "9"
_LEAST_RECALL = 0.6
"""Recall from which a window is about the same thing as the claim, so that its number may replace the claim's."""


def number_conflict(search: SourceSearch, claim_text: ClaimText, measurement: Measurement) -> list[str]:
    """Remarks on absent numbers: the best window has another number before the same word (mostly a unit).

    A remark and no verdict: of 7 claims in labelled sets with such a conflict, 3 were labelled supported.
    """
    if not measurement.windows or measurement.features.recall < _LEAST_RECALL:
        return []
    match = measurement.windows[0]
    start, end = search.window_span(match)
    window_units = _units(words(search.content(match.source_index)[start:end]))
    claim_units = _units(claim_text.words)
    remarks = []
    for number in measurement.numbers_absent:
        units = claim_units.get(number, set())
        candidates = [other for other, following in window_units.items() if units & following]
        if len(candidates) == 1 and candidates[0] != number:
            remarks.append(f"the source says {candidates[0]}, not {number}")
    return remarks


def _units(tokens: Sequence[str]) -> dict[str, set[str]]:
    """Stems of the content words that directly follow each number."""
    stems = stems_of(tokens)
    units: dict[str, set[str]] = {}
    for word, stem in zip(tokens, stems[1:], strict=False):
        if word[0] <= _DIGIT_END and stem and stem[0] > _DIGIT_END:
            units.setdefault(word, set()).add(stem)
    return units
