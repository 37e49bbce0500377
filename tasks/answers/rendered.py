"""What rendering gives: a text, and where in it markers, statements and segments stand."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.text.sentences import Span


@dataclass(frozen=True, slots=True)
class Mark:
    """One written marker: which segment cites which source (1-based, as shown to the model), where, as which rank."""

    segment: int
    source: int
    rank: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch ``[start, end)`` of the text that states something; markers up to ``reach`` belong to it."""

    start: int
    end: int
    reach: int


@dataclass(frozen=True, slots=True)
class Run:
    """``[start, end)`` of the segments' texts put together stands at ``[at, until)`` of the rendered text.

    Either the words are the same, and of the same length, or the run is one replacement (an escape, white space).
    """

    start: int
    end: int
    at: int
    until: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered answer; ``pieces`` leaves out what states nothing: JSON syntax, table rules, lists of notes.

    ``segments`` is where each segment's text stands (empty for one that was left out), ``body`` where the answer ends
    and the list of sources begins.
    """

    text: str
    marks: tuple[Mark, ...]
    pieces: tuple[Piece, ...]
    segments: tuple[Span, ...] = ()
    runs: tuple[Run, ...] = ()
    body: int = 0

    def place_of(self, start: int, end: int) -> Span:
        """Where ``[start, end)`` of the segments' texts stands in the rendered text."""
        first = bisect_left(self.runs, start + 1, key=lambda run: run.end)
        beyond = bisect_left(self.runs, end, lo=first, key=lambda run: run.start)
        mine = self.runs[first:beyond]
        if not mine or start >= end:
            return Span(0, 0)
        return Span(mine[0].at + _offset(mine[0], start, 0), mine[-1].at + _offset(mine[-1], end, mine[-1].until))

    def origin_of(self, start: int, end: int) -> Span:
        """Which part of the segments' texts stands at ``[start, end)`` of the rendered text."""
        first = bisect_left(self.runs, start + 1, key=lambda run: run.until)
        beyond = bisect_left(self.runs, end, lo=first, key=lambda run: run.at)
        mine = self.runs[first:beyond]
        if not mine:
            return Span(0, 0)
        left, right = mine[0], mine[-1]
        shift = max(0, start - left.at) if left.until - left.at == left.end - left.start else 0
        length = right.end - right.start
        return Span(
            left.start + shift,
            right.start + (min(length, end - right.at) if right.until - right.at == length else length),
        )


def _offset(run: Run, position: int, beyond: int) -> int:
    """How far into a run's place a position is; within a replacement its start, or all of it for an end (``beyond``)."""
    length = run.until - run.at
    if length == run.end - run.start:
        return min(max(0, position - run.start), length)
    return length if beyond else 0


def strip_markers(text: str, markers: Sequence[Span]) -> str:
    """The text with its markers (in order) blanked out, so that all offsets stay."""
    kept = []
    position = 0
    for start, end in markers:
        kept.append(text[position:start])
        kept.append(" " * (end - max(start, position)))
        position = max(position, end)
    return "".join([*kept, text[position:]])
