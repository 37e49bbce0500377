"""Cuts texts at the spans that pages mark: claims and citations of an answer, evidence in a source."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas.answer import Citation
from schemas.grounding import Claim
from schemas.job import SourceContext
from schemas.record import JobResult

MARGIN = 400
"""Code points shown on each side of a span, where a source is not shown whole."""

WHOLE = 300_000
"""Code points of all sources up to which a page of a job holds them whole."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of an answer: with the claim it is part of, the citation that it marks, and the claims that end with it."""

    text: str
    claim: Claim | None
    citation: Citation | None
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of a source: marked or not, with the anchors that lead to it, or a gap."""

    text: str
    marked: bool = False
    anchors: tuple[str, ...] = ()
    gap: bool = False


@dataclass(frozen=True, slots=True)
class SourceView:
    """A source as a page shows it."""

    number: int
    source: SourceContext
    rank: int | None
    """Number in the answer; None: not cited."""
    stretches: list[Stretch]
    whole: bool


def answer_pieces(result: JobResult) -> list[Piece]:
    """The answer in pieces, in order; of claims one in the other the later one counts."""
    text = result.response
    cuts = {0, len(text)}
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    for index, claim in enumerate(result.claims):
        start, end = _inside(claim.start_pos, claim.end_pos, len(text))
        if start < end:
            cuts |= {start, end}
            begins.setdefault(start, []).append(index)
            ends.setdefault(end, []).append(index)
    citations = {}
    for citation in result.citations:
        start, end = _inside(citation.start_pos, citation.end_pos, len(text))
        if start < end:
            cuts |= {start, end}
            citations[start, end] = citation
    active: list[int] = []
    pieces = []
    order = sorted(cuts)
    for start, end in itertools.pairwise(order):
        active = [index for index in active if index not in ends.get(start, ())] + begins.get(start, [])
        innermost = result.claims[active[-1]] if active else None
        pieces.append(Piece(text[start:end], innermost, citations.get((start, end)), tuple(ends.get(end, ()))))
    return pieces


def _inside(start: int, end: int, length: int) -> tuple[int, int]:
    return min(start, length), min(end, length)


def anchor(source_index: int, start: int, end: int) -> str:
    """The name of a span on the page."""
    return f"source-{source_index + 1}-{start}-{end}"


def spans_of(result: JobResult) -> dict[int, list[tuple[int, int]]]:
    """The spans of each source that claims and citations refer to."""
    spans: dict[int, set[tuple[int, int]]] = {}
    for citation in result.citations:
        if citation.source_start is not None and citation.source_end is not None:
            spans.setdefault(citation.source_index, set()).add((citation.source_start, citation.source_end))
    for claim in result.claims:
        for evidence in claim.evidence:
            spans.setdefault(evidence.source_index, set()).add((evidence.start, evidence.end))
    for value in result.values:
        for evidence in value.evidence:
            spans.setdefault(evidence.source_index, set()).add((evidence.start, evidence.end))
    return {index: sorted(found_spans) for index, found_spans in spans.items()}


def source_views(context: Sequence[SourceContext], result: JobResult) -> list[SourceView]:
    """The sources, the cited ones first and by their number in the answer."""
    ranks = {citation.source_index: citation.rank for citation in result.citations}
    spans = spans_of(result)
    whole = sum(len(source.content) for source in context) <= WHOLE
    views = [
        SourceView(
            index + 1,
            source,
            ranks.get(index),
            stretches(source.content, index, spans.get(index, ()), whole=whole),
            whole,
        )
        for index, source in enumerate(context)
    ]
    return sorted(views, key=lambda view: (view.rank is None, view.rank or 0, view.number))


def stretches(content: str, index: int, spans: Iterable[tuple[int, int]], *, whole: bool) -> list[Stretch]:
    """A source cut at its spans; not whole: only their surroundings."""
    fine = [(start, end) for start, end in spans if 0 <= start < end <= len(content)]
    shown_parts = [(0, len(content))] if whole else _windows(fine, len(content))
    pieces: list[Stretch] = []
    for number, (first, last) in enumerate(shown_parts):
        if first > 0 or number:
            pieces.append(Stretch("", gap=True))
        pieces += _marked(content, index, [span for span in fine if first <= span[0] and span[1] <= last], first, last)
    if not shown_parts or shown_parts[-1][1] < len(content):
        pieces.append(Stretch("", gap=True))
    return pieces


def _windows(spans: Sequence[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """The surroundings of spans, those that meet as one; without spans the beginning."""
    windows: list[tuple[int, int]] = []
    for start, end in spans or [(0, 0)]:
        first, last = max(0, start - MARGIN), min(length, end + MARGIN)
        if windows and first <= windows[-1][1]:
            windows[-1] = windows[-1][0], max(last, windows[-1][1])
        else:
            windows.append((first, last))
    return windows


def _marked(content: str, index: int, spans: Sequence[tuple[int, int]], first: int, last: int) -> list[Stretch]:
    cuts = sorted({first, last, *(edge for span in spans for edge in span)})
    pieces, reach, waiting = [], first, iter([*spans, None])
    following = next(waiting)
    for start, end in itertools.pairwise(cuts):
        anchors = []
        while following is not None and following[0] == start:
            anchors.append(anchor(index, *following))
            reach = max(reach, following[1])
            following = next(waiting)
        pieces.append(Stretch(content[start:end], end <= reach, tuple(anchors)))
    return pieces
