"""The rendered answer: its text with the positions of markers, statements and segments."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.text.sentences import Span


@dataclass(frozen=True, slots=True)
class Mark:
    """One marker in the text: its segment, its source number (1-based, as in the prompt), its rank and its span."""

    segment: int
    source: int
    rank: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A part ``[start, end)`` of the text that states something; markers up to ``reach`` belong to it."""

    start: int
    end: int
    reach: int


@dataclass(frozen=True, slots=True)
class Run:
    """Maps ``[start, end)`` of the joined segments to ``[at, until)`` of the rendered text.

    Either both texts are equal, or the run is one replacement (an escape, white space).
    """

    start: int
    end: int
    at: int
    until: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered answer with its positions.

    ``pieces`` omits text that states nothing: JSON syntax, table rules, lists of notes. ``segments`` holds the span of
    each segment (empty for an omitted one). ``body`` is the end of the answer and the start of the list of sources.
    """

    text: str
    marks: tuple[Mark, ...]
    pieces: tuple[Piece, ...]
    segments: tuple[Span, ...] = ()
    runs: tuple[Run, ...] = ()
    body: int = 0

    def place_of(self, start: int, end: int) -> Span:
        """Span in the rendered text for ``[start, end)`` of the joined segments."""
        first = bisect_left(self.runs, start + 1, key=lambda run: run.end)
        beyond = bisect_left(self.runs, end, lo=first, key=lambda run: run.start)
        runs = self.runs[first:beyond]
        if not runs or start >= end:
            return Span(0, 0)
        return Span(runs[0].at + _offset(runs[0], start, 0), runs[-1].at + _offset(runs[-1], end, runs[-1].until))

    def origin_of(self, start: int, end: int) -> Span:
        """Span in the joined segments for ``[start, end)`` of the rendered text."""
        first = bisect_left(self.runs, start + 1, key=lambda run: run.until)
        beyond = bisect_left(self.runs, end, lo=first, key=lambda run: run.at)
        runs = self.runs[first:beyond]
        if not runs:
            return Span(0, 0)
        first_run, last_run = runs[0], runs[-1]
        shift = max(0, start - first_run.at) if first_run.until - first_run.at == first_run.end - first_run.start else 0
        length = last_run.end - last_run.start
        return Span(
            first_run.start + shift,
            last_run.start + (min(length, end - last_run.at) if last_run.until - last_run.at == length else length),
        )


def _offset(run: Run, position: int, beyond: int) -> int:
    """Offset of a position within a run's place; a replacement has only its start and its end (``beyond``)."""
    length = run.until - run.at
    if length == run.end - run.start:
        return min(max(0, position - run.start), length)
    return length if beyond else 0


def strip_markers(text: str, markers: Sequence[Span]) -> str:
    """The text with spaces in place of its markers (in order), so that all offsets stay."""
    parts = []
    position = 0
    for start, end in markers:
        parts.append(text[position:start])
        parts.append(" " * (end - max(start, position)))
        position = max(position, end)
    return "".join([*parts, text[position:]])
