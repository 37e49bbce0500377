"""Writes a rendered answer in one pass over the joined segments and records every position."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas.generation import CitationStyle
from tasks.answers.flow import Flow, Insert
from tasks.answers.rendered import Mark, Piece, Rendered, Run
from tasks.answers.styles import Label, marker, reference
from tasks.text.sentences import Span


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement: ``text`` takes the place of ``[start, end)`` of the joined segments."""

    start: int
    end: int
    text: str


class Writer:
    """Text under construction, with the positions of its parts.

    Args:
        flow: the text to write, in order; parts may be omitted, markers never are.
        style: the style of the markers.
        labels: the label of each source, by number - 1.
        show_markers: if False, every mark is empty.
        markdown: if True, the text is Markdown.
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
        """Writes text that is not part of the segments."""
        if text:
            self._parts.append(text)
            self.position += len(text)

    def copy(self, start: int, end: int, edits: Iterable[Edit] = (), *, marks: bool = True) -> None:
        """Writes ``[start, end)`` of the joined segments with the edits applied and the markers up to its end."""
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
        """Tells whether Markdown would parse the last marker and this text as a link or a link definition."""
        if text[0] not in "(:" or not self._parts or not self._parts[-1].endswith("]") or not self.after_mark:
            return False
        return text[0] == "(" or self._at_line_start(self._marks[-1].start)

    def _at_line_start(self, position: int) -> bool:
        return "".join(self._parts)[:position].rpartition("\n")[2].strip() == ""

    @property
    def after_mark(self) -> bool:
        """True if the text ends with a marker."""
        return bool(self._marks) and self._marks[-1].end == self.position and self._marks[-1].start < self.position

    def marks_until(self, position: int, shape: str | None = None, separator: str | None = None) -> None:
        """Writes the pending markers up to a position of the joined segments."""
        while self._pending and self._pending[-1].position <= position:
            self._mark(self._pending.pop(), shape, separator)

    def has_pending(self, position: int) -> bool:
        """Tells whether a marker up to this position is pending."""
        return bool(self._pending) and self._pending[-1].position <= position

    def postpone(self, blocks: Iterable[tuple[int, int]]) -> None:
        """Moves the markers inside these blocks to the end of their block."""
        for start, end in blocks:
            self._pending = [
                Insert(end, insert.segment, insert.source) if start < insert.position <= end else insert
                for insert in self._pending
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
        """Records the text since ``start`` as a statement; its markers go up to ``reach``, by default up to here."""
        if end is None:
            end = self.position
        if start < end:
            self._pieces.append(Piece(start, end, self.position if reach is None else reach))

    def sources(self) -> None:
        """Writes the list of the cited sources."""
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

    def finish(self, body: int) -> Rendered:
        """The rendered answer; ``body`` is the end of the answer itself."""
        rendered = Rendered("".join(self._parts), tuple(self._marks), tuple(self._pieces), runs=tuple(self._runs))
        places = tuple(self._place(rendered, start, end) for start, end in self.flow.bounds)
        return Rendered(rendered.text, rendered.marks, rendered.pieces, places, rendered.runs, body)

    def _place(self, rendered: Rendered, start: int, end: int) -> Span:
        text = self.flow.text[start:end]
        return rendered.place_of(start + len(text) - len(text.lstrip()), end - (len(text) - len(text.rstrip())))
