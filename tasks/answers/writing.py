"""Writes a rendered answer: one pass over the segments' texts that notes where everything comes to stand."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas.generation import CitationStyle
from tasks.answers.flow import Flow, Insert
from tasks.answers.rendered import Mark, Piece, Rendered, Run
from tasks.answers.styles import Label, marker, reference
from tasks.text.sentences import Span


@dataclass(frozen=True, slots=True)
class Edit:
    """``[start, end)`` of the segments' texts is written as ``text``."""

    start: int
    end: int
    text: str


class Writer:
    """Text under construction with the positions of what was written.

    Args:
        flow: what is written, in order; parts may be left out, markers never are.
        style: how a marker looks.
        labels: what to call each source, by number - 1.
        show_markers: without, every mark is empty.
        markdown: whether the text will be read as Markdown.
    """

    def __init__(
        self, flow: Flow, style: CitationStyle, labels: Sequence[Label], *, show_markers: bool, markdown: bool
    ) -> None:
        self.flow = flow
        self.style = style
        self.labels = labels
        self.show_markers = show_markers
        self.markdown = markdown
        self.position = 0
        self.ranks: dict[int, int] = {}
        self._parts: list[str] = []
        self._marks: list[Mark] = []
        self._pieces: list[Piece] = []
        self._runs: list[Run] = []
        self._pending = list(reversed(flow.inserts))

    def write(self, text: str) -> None:
        """Write what is not of the answer's words."""
        if text:
            self._parts.append(text)
            self.position += len(text)

    def copy(self, start: int, end: int, edits: Iterable[Edit] = (), *, marks: bool = True) -> None:
        """Write ``[start, end)`` of the segments' texts, edited, with the markers up to its end."""
        position = start
        for edit in edits:
            self._words(position, edit.start, marks=marks)
            if marks:
                self.marks_until(edit.start)
            self._run(edit.start, edit.end, edit.text)
            position = edit.end
        self._words(position, end, marks=marks)
        if marks:
            self.marks_until(end)

    def _words(self, start: int, end: int, *, marks: bool) -> None:
        while marks and self._pending and self._pending[-1].position < end:
            stop = max(start, self._pending[-1].position)
            self._run(start, stop, self.flow.text[start:stop])
            self._mark(self._pending.pop())
            start = stop
        self._run(start, end, self.flow.text[start:end])

    def _run(self, start: int, end: int, text: str) -> None:
        if self.markdown and text and self._would_link(text):
            self.write(" ")
        at = self.position
        self.write(text)
        if start < end:
            self._runs.append(Run(start, end, at, self.position))

    def _would_link(self, text: str) -> bool:
        """Whether a marker just written and the text after it would be read as a link or its definition."""
        if text[0] not in "(:" or not self._parts or not self._parts[-1].endswith("]") or not self.after_mark:
            return False
        return text[0] == "(" or self._at_line_start(self._marks[-1].start)

    def _at_line_start(self, position: int) -> bool:
        return "".join(self._parts)[:position].rpartition("\n")[2].strip() == ""

    @property
    def after_mark(self) -> bool:
        """Whether the last thing written is a marker."""
        return bool(self._marks) and self._marks[-1].end == self.position and self._marks[-1].start < self.position

    def marks_until(self, position: int, shape: str | None = None, separator: str | None = None) -> None:
        """Write the markers that belong up to a position of the segments' texts."""
        while self._pending and self._pending[-1].position <= position:
            self._mark(self._pending.pop(), shape, separator)

    def waiting(self, position: int) -> bool:
        """Whether markers up to this position are still to be written."""
        return bool(self._pending) and self._pending[-1].position <= position

    def postpone(self, blocks: Iterable[tuple[int, int]]) -> None:
        """Move the markers that stand inside of these stretches behind them."""
        for start, end in blocks:
            self._pending = [
                Insert(end, one.segment, one.source) if start < one.position <= end else one for one in self._pending
            ]

    def _mark(self, insert: Insert, shape: str | None = None, separator: str | None = None) -> None:
        rank = self.ranks.setdefault(insert.source, len(self.ranks) + 1)
        if self.show_markers:
            self.write(self._separator() if separator is None else (separator if self.after_mark else ""))
        start = self.position
        if self.show_markers:
            name = self.labels[insert.source - 1]
            self.write(shape.format(rank=rank) if shape else marker(self.style, rank, name, markdown=self.markdown))
        self._marks.append(Mark(insert.segment, insert.source, rank, start, self.position))

    def _separator(self) -> str:
        if self.style is CitationStyle.FOOTNOTE:
            return "," if self.after_mark else ""
        if not self._parts or self._parts[-1][-1].isspace():
            return ""
        return "" if self.after_mark and self.style is not CitationStyle.INLINE else " "

    def piece(self, start: int, end: int | None = None, *, reach: int | None = None) -> None:
        """Note that what was written since ``start`` states something; markers up to ``reach``, by default to here."""
        if end is None:
            end = self.position
        if start < end:
            self._pieces.append(Piece(start, end, self.position if reach is None else reach))

    def sources(self) -> None:
        """Write the list of the sources cited."""
        if not self.ranks:
            return
        lines = [
            reference(self.style, rank, self.labels[source - 1], markdown=self.markdown)
            for source, rank in self.ranks.items()
        ]
        if self.style is CitationStyle.FOOTNOTE:
            self.write("\n\n" + ("  \n" if self.markdown else "\n").join(lines))
        elif self.markdown:
            self.write("\n\n**Sources:**\n\n" + "\n".join(f"- {line}" for line in lines))
        else:
            self.write("\n\nSources:\n" + "\n".join(lines))

    def finished(self, body: int) -> Rendered:
        """The rendered answer; ``body`` is where the answer itself ends."""
        rendered = Rendered("".join(self._parts), tuple(self._marks), tuple(self._pieces), runs=tuple(self._runs))
        places = tuple(self._place(rendered, start, end) for start, end in self.flow.bounds)
        return Rendered(rendered.text, rendered.marks, rendered.pieces, places, rendered.runs, body)

    def _place(self, rendered: Rendered, start: int, end: int) -> Span:
        text = self.flow.text[start:end]
        return rendered.place_of(start + len(text) - len(text.lstrip()), end - (len(text) - len(text.rstrip())))
