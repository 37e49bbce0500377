"""Renders the canonical answer in the requested citation style and output format, with the exact span of each marker.

One pass writes the text and records positions, so no marker is searched for. The number of a marker is the rank:
sources count from 1 in the order of their first citation. A list, a table or a block of code in the model's text
stays where the format allows it.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas.answer import CanonicalAnswer
from schemas.generation import CitationStyle, OutputFormat
from tasks.answers.formats import format_problem, table_lines
from tasks.answers.items import Item, Kind, as_cell, as_item, cut_items
from tasks.answers.rendered import Edit, Flow, Rendered, Writer, fenced_blocks, flow_of
from tasks.answers.styles import Label

_LISTED = {CitationStyle.FOOTNOTE, CitationStyle.ENDNOTE}
"""Styles that include a list of sources."""


@dataclass(frozen=True, slots=True)
class Extras:
    """The parts after an answer: the list of its sources, and a line such as ``Confidence: 87.0%``."""

    sources: bool = False
    score: tuple[str, float] | None = None
    """Name and value of the score; the value is in [0, 1]."""


def render(
    answer: CanonicalAnswer,
    style: CitationStyle,
    output_format: OutputFormat,
    labels: Sequence[Label],
    *,
    show_markers: bool = True,
    extras: Extras | None = None,
) -> Rendered:
    """Renders an answer.

    Segments are joined unchanged, with their own white space. Without ``show_markers`` every mark is empty
    (``start == end``) at the position of the marker.

    Args:
        answer: its citations name sources from 1 to ``len(labels)``.
        style: the style of the markers.
        output_format: not ``auto`` (see ``formats.resolve_format``).
        labels: the label of each source, by number - 1.
        show_markers: if False, no marker is written.
        extras: the parts after the answer; JSON always has the sources, and the score is a field.
    """
    extras = extras or Extras()
    flow = flow_of(answer, style)
    markdown = output_format not in {OutputFormat.PLAIN, OutputFormat.JSON}
    writer = Writer(flow, style, labels, show_markers=show_markers, markdown=markdown)
    if output_format is OutputFormat.JSON:
        _write_json(writer, extras)
        return writer.finish(writer.position)
    if output_format is OutputFormat.TABLE:
        _write_table(writer)
    elif output_format in {OutputFormat.BULLETS, OutputFormat.STEPS}:
        _write_items(writer, numbered=output_format is OutputFormat.STEPS)
    elif output_format is OutputFormat.PLAIN:
        _write_plain(writer)
    else:
        _write_markdown(writer)
    body = writer.position
    if extras.sources or (show_markers and style in _LISTED):
        writer.sources()
    if extras.score:
        name, score = extras.score
        line = f"{name}: {score:.1%}"
        writer.write(f"\n\n*{line}*" if markdown else f"\n\n{line}")
    return writer.finish(body)


# ---- running text ----------------------------------------------------------------------------------------------


def _text_bounds(text: str) -> tuple[int, int]:
    return len(text) - len(text.lstrip()), len(text.rstrip())


def _write_markdown(writer: Writer) -> None:
    """Writes the text unchanged; the header and the rule of a table are no statements."""
    text = writer.flow.text
    tables = table_lines(text)
    lines = [0, *(match.end() for match in re.finditer("\n", text)), len(text)] if tables else []
    heads = [(lines[first], lines[first + 2]) for first, _ in tables]
    positions = _copy_markdown(writer, *(edge for head in heads for edge in head))
    start = 0
    for begin, end in heads:
        above = positions.get(begin, 0)
        writer.piece(start, above, reach=above)
        start = positions.get(end, writer.position)
    writer.piece(start)


def _copy_markdown(writer: Writer, *stops: int) -> dict[int, int]:
    """Writes the text unchanged, with markers inside a block of code moved behind it; returns the stops' positions."""
    text = writer.flow.text
    position, end = _text_bounds(text)
    blocks = list(fenced_blocks(text))
    writer.postpone((block.start, block.end) for block in blocks)
    edges = {edge for block in blocks for edge in (block.start, block.end)}
    positions: dict[int, int] = {}
    for stop in sorted({end, *(edge for edge in {*stops, *edges} if position < edge < end)}):
        block = next((block for block in blocks if block.start < stop <= block.end), None)
        writer.copy(position, stop, marks=block is None)
        if block is not None and stop in {block.end, end}:
            if block.unclosed:
                writer.write(f"\n{block.unclosed}")
            if writer.has_pending(block.end):
                writer.write("\n")
                writer.marks_until(block.end)
        positions[stop] = writer.position
        position = stop
    writer.marks_until(len(text))
    return positions


def _write_plain(writer: Writer) -> None:
    text = writer.flow.text
    start, end = _text_bounds(text)
    edits = [edit for edit in without_markdown(text) if start <= edit.start and edit.end <= end]
    # The line break before a deleted last line is trailing white space now.
    while edits and edits[-1].end == end and not edits[-1].text:
        end = len(text[: edits.pop().start].rstrip())
    edits = [edit for edit in edits if edit.end <= end]
    writer.copy(start, max(start, end), edits)
    writer.marks_until(len(text))
    writer.piece(0)


# ---- forms made of items ---------------------------------------------------------------------------------------


def _write_items(writer: Writer, *, numbered: bool) -> None:
    count = 0
    before: Kind | None = None
    width = 2
    for item, until in _with_marker_ends(cut_items(writer.flow), writer.flow):
        if before is not None:
            apart = item.kind is not Kind.POINT or before is Kind.LEAD
            writer.write("\n\n" if apart else "\n")
        if item.kind is Kind.POINT:
            if item.depth == 0:
                count += 1
            sign = f"{count}. " if numbered and item.depth == 0 else "- "
            width = len(sign) if item.depth == 0 else width
            writer.write(" " * (width + 2 * (item.depth - 1) if item.depth else 0) + sign)
        start = writer.position
        writer.copy(item.start, item.end, as_item(writer.flow.text, item))
        writer.marks_until(until)
        writer.piece(start)
        before = item.kind


def _with_marker_ends(items: Sequence[Item], flow: Flow) -> list[tuple[Item, int]]:
    """Each item with the end of its markers: the last position before the next item's words."""
    ends = [*(item.start - 1 for item in items[1:]), len(flow.text)]
    return [(item, ends[position]) for position, item in enumerate(items)]


def _write_table(writer: Writer) -> None:
    """Writes the model's own table, or one row per statement with the introductory items above the table."""
    if _keeps_table(writer.flow):
        _write_markdown(writer)
        return
    text = writer.flow.text
    followed = _with_marker_ends(cut_items(writer.flow), writer.flow)
    if not followed:
        return
    above = next((count for count, (item, _) in enumerate(followed) if item.kind is Kind.POINT), 0)
    for item, until in followed[:above]:
        start = writer.position
        writer.copy(item.start, item.end, as_item(text, item))
        writer.marks_until(until)
        writer.piece(start)
        writer.write("\n\n")
    writer.write("| Statement | Sources |\n| --- | --- |")
    for item, until in followed[above:]:
        writer.write("\n| ")
        start = writer.position
        begin = item.start + _heading_marks(text, item)
        writer.copy(begin, item.end, as_cell(text, begin, item.end), marks=False)
        end = writer.position
        writer.write(" | ")
        writer.marks_until(max(until, item.end))
        writer.piece(start, end)
        writer.write(" |")


def _keeps_table(flow: Flow) -> bool:
    """Tells whether the text contains a table of the model and nothing that does not fit beside it."""
    return bool(table_lines(flow.text)) and format_problem(flow.text.strip(), OutputFormat.TABLE) is None


def _heading_marks(text: str, item: Item) -> int:
    if item.kind is not Kind.HEADING:
        return 0
    words = text[item.start : item.end].lstrip("# \t")
    return item.end - item.start - len(words)


# ---- JSON ------------------------------------------------------------------------------------------------------

_JSON_ESCAPED = re.compile(r'\s+|["\\\x00-\x1f\x7f-\x9f]')


def _write_json(writer: Writer, extras: Extras) -> None:
    """Writes ``{"answer": [{"text", "citations": [rank]}], "sources": [{"number", "title", ...}]}``; markers are ranks."""
    text = writer.flow.text
    writer.write('{"answer": [')
    for count, (item, until) in enumerate(_with_marker_ends(cut_items(writer.flow), writer.flow)):
        writer.write(', {"text": "' if count else '{"text": "')
        start = writer.position
        writer.copy(item.start, item.end, _as_string(text, item.start, item.end), marks=False)
        end = writer.position
        writer.write('", "citations": [')
        writer.marks_until(max(until, item.end), "{rank}", ", ")
        writer.piece(start, end)
        writer.write("]}")
    ranks = writer.ranks.items() if writer.show_markers or extras.sources else ()
    sources = [{"number": rank, **writer.labels[source - 1].json_entry()} for source, rank in ranks]
    writer.write(f'], "sources": {json.dumps(sources, ensure_ascii=False)}')
    if extras.score:
        name, score = extras.score
        writer.write(f", {json.dumps(name.lower().replace(' ', '_'))}: {round(score, 4)}")
    writer.write("}")


def _as_string(text: str, start: int, end: int) -> list[Edit]:
    """Edits that put the text on one line and escape it for JSON."""
    edits = []
    for match in _JSON_ESCAPED.finditer(text, start, end):
        words = match.group()
        replacement = " " if words.isspace() else json.dumps(words, ensure_ascii=False)[1:-1]
        if replacement != words:
            edits.append(Edit(match.start(), match.end(), replacement))
    return edits


# ---- plain text -------------------------------------------------------------------------------------------------------

_LINES = re.compile(
    r"(?m)^[ \t]{0,3}(?:#{1,6}[ \t]+|(?:={1,}|-{1,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})[ \t]*(?:\n|\Z)"
    r"|\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+\|?[ \t]*(?:\n|\Z))"
)
"""Heading marks, rules, underlines of headings, the second row of a table."""
_LINK = re.compile(r"(!?\[)([^\[\]\n]{1,300})(\]\((?:https?:|/|#|mailto:)[^)\s]{0,2000}\))")
_CODE = re.compile(r"(?<!`)(`+)(?!`)([^\n]{1,1000}?)(?<!`)(\1)(?!`)")
_STARS = re.compile(r"(?<![0-9A-Za-z*\\])(\*{1,3})(?=[^\s*])([^\n]{0,1000}?[^\s*])(\1)(?![0-9A-Za-z*])")
_LINES_UNDER = re.compile(r"(?<![^\W_])(?<![_\\])(_{1,3})(?=[^\s_])([^\n]{0,1000}?[^\s_])(\1)(?![^\W_])(?!_)")
# The patterns bound the emphasised or linked text, so that an unpaired mark costs no more than a pair.
_NESTED = 3
"""Deepest nesting of emphasis that is removed."""


def without_markdown(text: str) -> list[Edit]:
    """The deletions that turn a Markdown text into plain text, in order."""
    if not re.search(r"[#*_`~\[=|-]", text):
        return []
    remaining = list(text)
    edits: list[Edit] = []
    for block in fenced_blocks(text):
        first = text.find("\n", block.start, block.end) + 1
        if not first:
            first = block.start + len(block.unclosed)
        edits.append(_delete(remaining, block.start, first))
        if not block.unclosed and (last := text.rfind("\n", first, block.end)) >= first - 1:
            edits.append(_delete(remaining, max(last, first), block.end))
    edits += [_delete(remaining, match.start(), match.end()) for match in _LINES.finditer("".join(remaining))]
    for pattern in (_CODE, _LINK, *(_STARS, _LINES_UNDER) * _NESTED):
        for match in pattern.finditer("".join(remaining)):
            edits += [_delete(remaining, *match.span(1)), _delete(remaining, *match.span(3))]
    return list(_without_overlap(edit for edit in edits if edit.start < edit.end))


def _delete(remaining: list[str], start: int, end: int) -> Edit:
    """A deletion; its characters become blanks, so that later patterns still match the text around it."""
    for place in range(start, end):
        remaining[place] = "\n" if remaining[place] == "\n" else "\x00"
    return Edit(start, end, "")


def _without_overlap(edits: Iterable[Edit]) -> Iterable[Edit]:
    end = 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        if edit.start >= end:
            yield edit
            end = edit.end
