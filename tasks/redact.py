"""Takes sentences without support out of an answer, with all positions kept exact."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from schemas.grounding import Grounding, Verdict
from tasks.postprocess import Processed
from tasks.sentences import Span


def redact(processed: Processed, grounding: Grounding, unwanted: Collection[Verdict]) -> tuple[Processed, Grounding]:
    """Remove every claim with an unwanted verdict, its citation markers and the gap it leaves.

    What was removed is named in the warnings; the model's own words stay in the record's raw output.

    Returns: the shorter answer and its grounding; all spans are positions in the new response.
    """
    gone = [claim for claim in grounding.claims if claim.verdict in unwanted]
    cuts = [_with_markers(processed, Span(claim.start_pos, claim.end_pos)) for claim in gone]
    text, moved = _cut(processed.response, cuts)
    citations = tuple(
        citation.model_copy(update=moved(citation.start_pos, citation.end_pos, "start_pos", "end_pos"))
        for citation in processed.citations
        if not any(cut.start <= citation.start_pos < cut.end for cut in cuts)
    )
    claims = tuple(
        claim.model_copy(update=moved(claim.start_pos, claim.end_pos, "start_pos", "end_pos"))
        for claim in grounding.claims
        if claim.verdict not in unwanted
    )
    counts = Counter(claim.verdict for claim in claims)
    checkable = len(claims) - counts[Verdict.NOT_CHECKABLE]
    shorter = replace(
        processed,
        response=text,
        citations=citations,
        warnings=(*processed.warnings, *(f"removed, without support: {claim.text}" for claim in gone)),
        # Both describe the longer text; nothing reads them after the check.
        statements=(),
        markers=(),
    )
    return shorter, grounding.model_copy(
        update={
            "claims": claims,
            "counts": dict(counts),
            "grounding_score": counts[Verdict.SUPPORTED] / checkable if checkable else None,
        }
    )


def _with_markers(processed: Processed, span: Span) -> Span:
    """The span and the citation markers that follow it before the next words."""
    end = span.end
    for marker in processed.markers:
        if marker.start >= end and not processed.response[end : marker.start].strip(" \t.,;"):
            end = marker.end
    while end < len(processed.response) and processed.response[end] in " \t.":
        end += 1
    return Span(span.start, end)


class _Moved:
    """Maps positions of the text before the cuts to those after."""

    def __init__(self, cuts: Sequence[Span]) -> None:
        self._starts = [cut.start for cut in cuts]
        self._removed = [0]
        for cut in cuts:
            self._removed.append(self._removed[-1] + cut.end - cut.start)

    def __call__(self, start: int, end: int, *names: str) -> dict[str, int]:
        """New positions under the names given."""
        new = [position - self._removed[bisect_right(self._starts, start)] for position in (start, end)]
        return dict(zip(names, new, strict=True))


def _cut(text: str, cuts: Sequence[Span]) -> tuple[str, _Moved]:
    kept, at = [], 0
    for cut in cuts:
        kept.append(text[at : cut.start])
        at = max(at, cut.end)
    kept.append(text[at:])
    return "".join(kept), _Moved(cuts)
