"""Writes an answer in the formats that are no running Markdown: plain text, lists, tables, JSON; and its list of sources."""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from schemas.generation import OutputFormat
from tasks.answers.active_content import neutral_plain
from tasks.answers.citations import Label, reference
from tasks.answers.formats import format_problem, table_lines, without_markdown
from tasks.answers.items import Item, Kind, as_cell, as_item, as_string, cut_items, indented
from tasks.answers.rendered import Edit, Flow, Writer, text_bounds, write_markdown
from tasks.answers.stretches import Stretches
from tasks.answers.styles import manner_of


@dataclass(frozen=True, slots=True)
class Extras:
    """The parts after an answer: the list of its sources, and a line such as ``Confidence: 87.0%``."""

    sources: bool = False
    score: tuple[str, float] | None = None
    """Name and value of the score; the value is in [0, 1]."""


def write_sources(writer: Writer, labels: Sequence[Label]) -> None:
    """Writes the list of the cited sources."""
    if not writer.ranks:
        return
    lines = [
        reference(writer.style, rank, labels[source - 1], markdown=writer.markdown)
        for source, rank in writer.ranks.items()
    ]
    if manner_of(writer.style).raised:
        writer.write("\n\n" + ("  \n" if writer.markdown else "\n").join(lines))
    elif writer.markdown:
        writer.write("\n\n**Sources:**\n\n" + "\n".join(f"- {line}" for line in lines))
    else:
        writer.write("\n\nSources:\n" + "\n".join(lines))


def table_heads(text: str) -> list[tuple[int, int]]:
    """The heads of the text's tables, each with the rule below it."""
    tables = table_lines(text) if "|" in text else []
    lines = [0, *(match.end() for match in re.finditer("\n", text)), len(text)] if tables else []
    return [(lines[first], lines[first + 2]) for first, _ in tables]


_START_OF = attrgetter("start")


def write_plain(writer: Writer, *, neutral: bool) -> None:
    """Writes the text without its mark-up; ``neutral`` makes HTML in code harmless, too."""
    text = writer.flow.text
    start, end = text_bounds(text)
    edits = without_markdown(text)
    if neutral:
        edits = sorted([*edits, *_harmless(neutral_plain(text), edits)], key=lambda edit: edit.start)
    edits = [edit for edit in edits if start <= edit.start and edit.end <= end]
    # The line break before a deleted last line is trailing white space now.
    while edits and edits[-1].end == end and not edits[-1].text:
        end = len(text[: edits.pop().start].rstrip())
    edits = [edit for edit in edits if edit.end <= end]
    position, piece = start, 0

    def copy_until(stop: int) -> int:
        stop = max(position, min(stop, end))
        near = edits[bisect_left(edits, position, key=_START_OF) : bisect_right(edits, stop, key=_START_OF)]
        writer.copy(position, stop, [edit for edit in near if edit.end <= stop])
        return stop

    for head, below in table_heads(text):
        # The head of a table is no statement.
        position = copy_until(head)
        writer.piece(piece)
        position = copy_until(below)
        piece = writer.position
    position = copy_until(end)
    writer.marks_until(len(text))
    writer.piece(piece)


def _harmless(added: Iterable[Edit], edits: Sequence[Edit]) -> Iterable[Edit]:
    """The edits that lie in no deletion."""
    removed = Stretches((edit.start, edit.end) for edit in edits)
    return (edit for edit in added if not removed.hold(edit.start))


# ---- forms made of items ---------------------------------------------------------------------------------------


def write_items(writer: Writer, *, numbered: bool) -> None:
    """Writes a list, one item per statement."""
    count = 0
    before: Kind | None = None
    width = 2
    for item, until in _with_marker_ends(cut_items(writer.flow), writer.flow):
        if before is not None:
            apart = item.kind is not Kind.POINT or before in {Kind.LEAD, Kind.CODE}
            writer.write("\n\n" if apart else "\n")
        if item.kind is Kind.CODE:
            # Indented, it belongs to the item above, and the list goes on below.
            _write_code(writer, item, width if count else 0)
            writer.marks_until(until)
            before = item.kind
            continue
        if item.kind is Kind.POINT:
            if item.depth == 0:
                count += 1
            sign = f"{count}. " if numbered and item.depth == 0 else "- "
            width = len(sign) if item.depth == 0 else width
            writer.write(" " * (width + 2 * (item.depth - 1) if item.depth else 0) + sign)
        writer.write(item.lead)
        start = writer.position
        writer.copy(item.start, item.end, as_item(writer.flow.text, item))
        writer.marks_until(until)
        writer.piece(start)
        before = item.kind


def _write_code(writer: Writer, item: Item, width: int) -> None:
    """Writes a block of code with its markers below it; its fences are no statements."""
    text = writer.flow.text
    writer.postpone([(item.start, item.end)])
    edits = indented(text, item, width)
    writer.write(" " * width)
    start, end = _copy_apart(writer, item, _inside(text, item), edits)
    if item.unclosed:
        writer.write(f"\n{' ' * width}{item.unclosed}")
    if writer.has_pending(item.end):
        writer.write(f"\n{' ' * width}")
        writer.marks_until(item.end)
    writer.piece(start, end, reach=writer.position)


def _copy_apart(writer: Writer, item: Item, words: tuple[int, int], edits: Sequence[Edit]) -> tuple[int, int]:
    """Writes an item without its markers; returns the place of its words, which are no fences."""
    first, last = words
    writer.copy(item.start, first, [edit for edit in edits if edit.end <= first], marks=False)
    start = writer.position
    writer.copy(first, last, [edit for edit in edits if first < edit.end <= last], marks=False)
    end = writer.position
    writer.copy(last, item.end, [edit for edit in edits if edit.end > last], marks=False)
    return start, end


def _with_marker_ends(items: Sequence[Item], flow: Flow) -> list[tuple[Item, int]]:
    """Each item with the end of its markers: the last position before the next item's words."""
    ends = [*(item.start - 1 for item in items[1:]), len(flow.text)]
    return [(item, ends[position]) for position, item in enumerate(items)]


def write_table(writer: Writer) -> None:
    """Writes the model's own table, or one row per statement with the introductory items above the table."""
    if _keeps_table(writer.flow):
        write_markdown(writer, table_heads(writer.flow.text))
        return
    text = writer.flow.text
    followed = _with_marker_ends(cut_items(writer.flow), writer.flow)
    if not followed:
        return
    above = next((count for count, (item, _) in enumerate(followed) if item.kind is Kind.POINT), 0)
    for item, until in followed[:above]:
        start = writer.position
        if item.kind is Kind.CODE:
            _write_code(writer, item, 0)
            writer.marks_until(until)
        else:
            writer.copy(item.start, item.end, as_item(text, item))
            writer.marks_until(until)
            writer.piece(start)
        writer.write("\n\n")
    in_table = False
    for item, until in followed[above:]:
        # No cell holds several lines: code stands between two tables.
        if not (in_table and item.kind is not Kind.CODE) and item is not followed[above][0]:
            writer.write("\n\n")
        if item.kind is Kind.CODE:
            _write_code(writer, item, 0)
            writer.marks_until(until)
        else:
            if not in_table:
                writer.write("| Statement | Sources |\n| --- | --- |")
            _write_row(writer, item, until)
        in_table = item.kind is not Kind.CODE


def _write_row(writer: Writer, item: Item, until: int) -> None:
    text = writer.flow.text
    writer.write(f"\n| {item.lead}")
    start = writer.position
    begin = item.start + _heading_marks(text, item)
    writer.copy(begin, item.end, as_cell(text, item, begin), marks=False)
    end = writer.position
    writer.write(" | ")
    writer.marks_until(max(until, item.end))
    writer.piece(start, end)
    writer.write(" |")


def _keeps_table(flow: Flow) -> bool:
    """Tells whether the text contains a table of the model and nothing that does not fit beside it."""
    if "|" not in flow.text or not table_lines(flow.text):
        return False
    first = len(flow.text) - len(flow.text.lstrip())
    rules = {start + 1 for start, _ in table_lines(flow.text)}
    # A marker before the first word, or in the rule below the heads, would break the table.
    breaks = any(
        insert.position <= first or flow.text.count("\n", 0, insert.position) in rules for insert in flow.inserts
    )
    return not breaks and format_problem(flow.text.strip(), OutputFormat.TABLE) is None


def _heading_marks(text: str, item: Item) -> int:
    if item.kind is not Kind.HEADING:
        return 0
    words = text[item.start : item.end].lstrip("# \t")
    return item.end - item.start - len(words)


# ---- JSON ------------------------------------------------------------------------------------------------------


def _inside(text: str, item: Item) -> tuple[int, int]:
    """The bounds of an item's words: of code without its fences."""
    if item.kind is not Kind.CODE:
        return item.start, item.end
    first = text.find("\n", item.start, item.end) + 1 or item.end
    return first, item.end if item.unclosed else max(first, text.rfind("\n", item.start, item.end) + 1)


def write_json(writer: Writer, extras: Extras, labels: Sequence[Label]) -> None:
    """Writes ``{"answer": [{"text", "citations": [rank]}], "sources": [{"number", "title", ...}]}``; markers are ranks."""
    text = writer.flow.text
    writer.write('{"answer": [')
    for count, (item, until) in enumerate(_with_marker_ends(cut_items(writer.flow), writer.flow)):
        writer.write(f'{", " if count else ""}{{"text": "{json.dumps(item.lead, ensure_ascii=False)[1:-1]}')
        first, last = _inside(text, item)
        edits = as_string(text, item)
        # White space that begins with the line break of a fence is one edit.
        first, last = (next((e.end for e in edits if e.start < edge < e.end), edge) for edge in (first, last))
        start, end = _copy_apart(writer, item, (first, max(first, last)), edits)
        if item.unclosed:
            writer.write(f"\\n{item.unclosed}")
        writer.write('", "citations": [')
        writer.marks_until(max(until, item.end), "{rank}", ", ")
        writer.piece(start, end)
        writer.write("]}")
    ranks = writer.ranks.items() if writer.show_markers or extras.sources else ()
    sources = [{"number": rank, **labels[source - 1].json_entry()} for source, rank in ranks]
    writer.write(f'], "sources": {json.dumps(sources, ensure_ascii=False)}')
    if extras.score:
        name, score = extras.score
        writer.write(f", {json.dumps(name.lower().replace(' ', '_'))}: {round(score, 4)}")
    writer.write("}")
