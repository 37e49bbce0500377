"""Render the canonical answer in the citation style and output format asked for, with the exact place of each marker.

One pass writes text and notes positions as it goes, so a marker's place is known and never searched for. The number
shown is the rank: sources count from 1 in the order in which the answer first cites them.
"""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.answer import CanonicalAnswer, Segment
from schemas.generation import CitationStyle, OutputFormat
from schemas.job import JobRequest
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
class Rendered:
    """A rendered answer; ``pieces`` leaves out what states nothing: JSON syntax, table rules, lists of notes.

    ``segments`` is where each segment's text stands; segments that share a table cell share its span.
    """

    text: str
    marks: tuple[Mark, ...]
    pieces: tuple[Piece, ...]
    segments: tuple[Span, ...] = ()


def render(
    answer: CanonicalAnswer,
    style: CitationStyle,
    output_format: OutputFormat,
    labels: Sequence[str],
    *,
    show_markers: bool = True,
) -> Rendered:
    """Write an answer.

    Segments are put one after the other as they stand, with their own white space. Without ``show_markers`` every
    mark is empty (``start == end``), at the place where it would stand.

    Args:
        answer: its citations name sources from 1 to ``len(labels)``.
        style: how a marker looks.
        output_format: not ``auto`` (see ``resolve_format``).
        labels: what to call each source, by number - 1.
        show_markers: whether the markers are written.
    """
    writer = _Writer(style, labels, show_markers=show_markers)
    if output_format is OutputFormat.JSON:
        _write_json(writer, answer)
    elif output_format is OutputFormat.TABLE:
        _write_table(writer, answer)
    elif output_format in {OutputFormat.BULLETS, OutputFormat.STEPS}:
        _write_items(writer, answer, numbered=output_format is OutputFormat.STEPS)
    else:
        _write_running(writer, answer, plain=output_format is OutputFormat.PLAIN)
    if output_format is not OutputFormat.JSON:
        writer.notes()
    places = tuple(writer.places.get(index, Span(0, 0)) for index in range(len(answer.segments)))
    return Rendered("".join(writer.parts), tuple(writer.marks), tuple(writer.pieces), places)


# ---- which format ----------------------------------------------------------------------------------------------

_FORMAT_OF_INTENT = {
    "how-to": OutputFormat.STEPS,
    "how_to": OutputFormat.STEPS,
    "howto": OutputFormat.STEPS,
    "procedure": OutputFormat.STEPS,
    "procedural": OutputFormat.STEPS,
    "instructions": OutputFormat.STEPS,
    "steps": OutputFormat.STEPS,
    "list": OutputFormat.BULLETS,
    "enumeration": OutputFormat.BULLETS,
    "comparison": OutputFormat.TABLE,
    "compare": OutputFormat.TABLE,
    "table": OutputFormat.TABLE,
}
_ASKS_FOR = (
    (OutputFormat.TABLE, re.compile(r"\b(?:as|in) (?:a )?table\b|\btabell", re.IGNORECASE)),
    (OutputFormat.STEPS, re.compile(r"\bstep[- ]by[- ]step\b|\bschritt für schritt\b|\bwhich steps\b", re.IGNORECASE)),
    (OutputFormat.BULLETS, re.compile(r"\bbullet|\bas a list\b|\blist (?:all|the)\b|\bals liste\b", re.IGNORECASE)),
)


def resolve_format(request: JobRequest) -> OutputFormat:
    """The output format of a job; ``auto`` is decided by the intent, then by what the query asks for in words.

    With ``aggregate``, running text becomes a list of points.
    """
    asked = request.config.output_format
    if request.aggregate and asked in {OutputFormat.AUTO, OutputFormat.MARKDOWN, OutputFormat.PLAIN}:
        return OutputFormat.BULLETS
    if asked is not OutputFormat.AUTO:
        return asked
    if request.intent and (known := _FORMAT_OF_INTENT.get(request.intent.strip().lower())):
        return known
    for output_format, pattern in _ASKS_FOR:
        if pattern.search(request.query):
            return output_format
    return OutputFormat.MARKDOWN


# ---- writing ---------------------------------------------------------------------------------------------------

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_TAIL = re.compile(r"(?:[.!?:;,…。！？，；]+|[ \t]*\|)[ \t]*\Z")


class _Writer:
    """Text under construction with the positions of what was written."""

    def __init__(self, style: CitationStyle, labels: Sequence[str], *, show_markers: bool) -> None:
        self.parts: list[str] = []
        self.position = 0
        self.marks: list[Mark] = []
        self.pieces: list[Piece] = []
        self.places: dict[int, Span] = {}
        self.ranks: dict[int, int] = {}
        self.style = style
        self.labels = labels
        self.show_markers = show_markers

    def write(self, text: str) -> None:
        if text:
            self.parts.append(text)
            self.position += len(text)

    def mark(self, segment: int, source: int, text: str | None = None) -> None:
        """Write one marker, by default in the writer's style."""
        rank = self.ranks.setdefault(source, len(self.ranks) + 1)
        start = self.position
        if self.show_markers:
            self.write(text.format(rank=rank) if text else self._marker(source, rank))
        self.marks.append(Mark(segment, source, rank, start, self.position))

    def _marker(self, source: int, rank: int) -> str:
        match self.style:
            case CitationStyle.SOURCE:
                return f"[Source {rank}]"
            case CitationStyle.INLINE:
                return f"(Source: {self.labels[source - 1]})"
            case CitationStyle.FOOTNOTE:
                return str(rank).translate(_SUPERSCRIPTS)
            case _:
                return f"[{rank}]"

    def cited(self, text: str, index: int, segment: Segment) -> None:
        """Write a segment's text with its markers: before the closing punctuation, superscripts behind it."""
        sources = _sources(segment)
        body = text.rstrip()
        tail = text[len(body) :]
        raised = self.style is CitationStyle.FOOTNOTE
        if sources and (not raised or body.endswith("|")) and (found := _TAIL.search(body)):
            body, tail = body[: found.start()].rstrip(), body[found.start() :] + tail
        start = self.position
        self.write(body)
        self.places[index] = Span(start, self.position)
        for position, source in enumerate(sources):
            if self.show_markers and raised:
                self.write("," if position else "")
            elif self.show_markers:
                before = self.parts[-1][-1:] if self.position else " "
                self.write("" if before.isspace() or (position and self.style is not CitationStyle.INLINE) else " ")
            self.mark(index, source)
        self.write(tail)

    def piece(self, start: int, end: int | None = None) -> None:
        """Note that what was written since ``start`` states something."""
        if end is None:
            end = self.position
        if start < end:
            self.pieces.append(Piece(start, end, self.position))

    def notes(self) -> None:
        """The list of sources that footnotes and endnotes refer to."""
        if not (self.show_markers and self.ranks) or self.style not in {CitationStyle.FOOTNOTE, CitationStyle.ENDNOTE}:
            return
        self.write("\n\nSources:" if self.style is CitationStyle.ENDNOTE else "\n")
        for source, rank in self.ranks.items():
            shown = f"[{rank}]" if self.style is CitationStyle.ENDNOTE else str(rank).translate(_SUPERSCRIPTS)
            self.write(f"\n{shown} {self.labels[source - 1]}")


def _sources(segment: Segment) -> list[int]:
    return list(dict.fromkeys(citation.source for citation in segment.citations))


_MARKDOWN = re.compile(r"(?m)^[ \t]*#{1,6}[ \t]+|\*\*|__|(?<!\w)`|`(?!\w)")
_LINK = re.compile(r"\[([^\[\]\n]{1,300})\]\((?:https?:|/|#|mailto:)[^)\s]{0,2000}\)")


def _write_running(writer: _Writer, answer: CanonicalAnswer, *, plain: bool) -> None:
    texts = [segment.text for segment in answer.segments]
    if plain:
        texts = [_LINK.sub(r"\1", _MARKDOWN.sub("", text)) for text in texts]
    if texts:
        texts[0] = texts[0].lstrip()
        texts[-1] = texts[-1].rstrip()
    for index, segment in enumerate(answer.segments):
        writer.cited(texts[index], index, segment)
    writer.piece(0)


# ---- forms made of items ---------------------------------------------------------------------------------------

_ITEM_START = re.compile(r"\s*(?:[-*+•][ \t]+|\(?\d{1,3}[.)][ \t]+|>[ \t]+)?")
_ITEM_END = re.compile(r"[.!?:。！？][\"'”’»)*_]*\s*\Z")
_HEADING = re.compile(r"\s*#{1,6}[ \t]")


def _items(answer: CanonicalAnswer) -> list[list[tuple[int, str]]]:
    """The answer's sentences, each as its segments (index, text); list markers are left to the form."""
    items: list[list[tuple[int, str]]] = []
    is_open = False
    for index, segment in enumerate(answer.segments):
        text = segment.text
        if not text.strip() and not segment.citations:
            continue
        starts_line = "\n" in text[: len(text) - len(text.lstrip())]
        if is_open and not starts_line:
            items[-1].append((index, text))
        else:
            items.append([(index, text if _HEADING.match(text) else text[_match_end(text) :])])
        is_open = not _ITEM_END.search(text)
    for item in items:
        index, text = item[-1]
        item[-1] = (index, text.rstrip())
    return items


def _match_end(text: str) -> int:
    found = _ITEM_START.match(text)
    return found.end() if found else 0


def _write_items(writer: _Writer, answer: CanonicalAnswer, *, numbered: bool) -> None:
    count = 0
    for item in _items(answer):
        if writer.position:
            writer.write("\n")
        text = "".join(part for _, part in item)
        if not (text.endswith(":") or _HEADING.match(text)):
            count += 1
            writer.write(f"{count}. " if numbered else "- ")
        start = writer.position
        for index, part in item:
            writer.cited(" ".join(part.splitlines()), index, answer.segments[index])
        writer.piece(start)


def _write_table(writer: _Writer, answer: CanonicalAnswer) -> None:
    writer.write("| Statement | Sources |\n| --- | --- |")
    for item in _items(answer):
        writer.write("\n| ")
        start = writer.position
        text = "".join(part for _, part in item)
        writer.write(" ".join(text.split()).replace("|", "\\|"))
        end = writer.position
        writer.places.update((index, Span(start, end)) for index, _ in item)
        writer.write(" | ")
        for index, _ in item:
            for source in _sources(answer.segments[index]):
                writer.mark(index, source)
        writer.piece(start, end)
        writer.write(" |")


def _write_json(writer: _Writer, answer: CanonicalAnswer) -> None:
    """``{"answer": [{"text", "citations": [rank]}], "sources": [{"number", "title"}]}``; a marker is a rank."""
    writer.write('{"answer": [')
    for count, item in enumerate(_items(answer)):
        writer.write(', {"text": "' if count else '{"text": "')
        start = writer.position
        text = "".join(part for _, part in item)
        writer.write(json.dumps(" ".join(text.split()), ensure_ascii=False)[1:-1])
        end = writer.position
        writer.places.update((index, Span(start, end)) for index, _ in item)
        writer.write('", "citations": [')
        cited = [(index, source) for index, _ in item for source in _sources(answer.segments[index])]
        for position, (index, source) in enumerate(cited):
            writer.write(", " if position and writer.show_markers else "")
            writer.mark(index, source, "{rank}")
        writer.piece(start, end)
        writer.write("]}")
    shown = writer.ranks.items() if writer.show_markers else ()
    sources = [{"number": rank, "title": writer.labels[source - 1]} for source, rank in shown]
    writer.write(f'], "sources": {json.dumps(sources, ensure_ascii=False)}}}')


def strip_markers(text: str, markers: Sequence[Span]) -> str:
    """The text with its markers (in order) blanked out, so that all offsets stay."""
    kept = []
    position = 0
    for start, end in markers:
        kept.append(text[position:start])
        kept.append(" " * (end - max(start, position)))
        position = max(position, end)
    return "".join([*kept, text[position:]])
