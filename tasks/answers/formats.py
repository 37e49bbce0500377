"""Chooses an answer's format, validates text in it with a real Markdown or JSON parser, and turns Markdown into plain text."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import assert_never

import orjson
from markdown_it import MarkdownIt
from markdown_it.rules_block.table import escapedSplit
from markdown_it.token import Token

from schemas.generation import GenerationMode, OutputFormat
from schemas.job import JobRequest
from tasks.answers.rendered import Edit, fenced_blocks
from tasks.text.language import SUPPORTED, language_tables

# ---- choosing --------------------------------------------------------------------------------------------------

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


def resolve_format(request: JobRequest) -> OutputFormat:
    """The output format of a job.

    Without a fixed one the first of these decides: the intent, a format that the query names, the mode, the kind of
    question (a list, a comparison, instructions).
    """
    if request.fixed_format is not None:
        return request.fixed_format
    if request.intent and (by_intent := _FORMAT_OF_INTENT.get(request.intent.strip().lower())):
        return by_intent
    named = _first_match(request.query, "named", (OutputFormat.TABLE, OutputFormat.STEPS, OutputFormat.BULLETS))
    return named or _implied_format(request)


def _implied_format(request: JobRequest) -> OutputFormat:
    if request.config.mode is GenerationMode.COMPARISON:
        return OutputFormat.TABLE
    implied = _first_match(request.query, "implied", (OutputFormat.BULLETS, OutputFormat.TABLE, OutputFormat.STEPS))
    return implied or OutputFormat.MARKDOWN


def _first_match(query: str, kind: str, formats: Iterable[OutputFormat]) -> OutputFormat | None:
    return next((output_format for output_format in formats if _queries(kind, output_format).search(query)), None)


@cache
def _queries(kind: str, output_format: OutputFormat) -> re.Pattern[str]:
    """The queries that name a format, or imply one, in all supported languages."""
    patterns = [
        pattern for code in SUPPORTED for pattern in language_tables()[code]["formats"][kind][output_format.value]
    ]
    return re.compile("|".join(patterns), re.IGNORECASE)


# ---- validation ------------------------------------------------------------------------------------------------

_MAY_BE_MARKDOWN = re.compile(r"[#*_`~\[]|^[=-]", re.MULTILINE)
_DELIMITER_ROW = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)+\|?[ \t]*\Z")
_URL = re.compile(r"https?:|/|#|mailto:")


@cache
def _blocks() -> MarkdownIt:
    """A parser for CommonMark with GFM's tables, blocks only: inline parsing costs most and decides no format."""
    return MarkdownIt("commonmark").enable("table").disable(["inline", "text_join"])


@cache
def _whole() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table")


def format_problem(text: str, output_format: OutputFormat) -> str | None:
    """The problem of an answer (without its list of sources) as text of its format; None for a valid answer.

    Args:
        text: the answer; for plain text with spaces in place of its markers.
        output_format: not ``auto``.
    """
    if not text.strip():
        return None
    match output_format:
        case OutputFormat.JSON:
            problem = _of_json(text)
        case OutputFormat.PLAIN:
            problem = _of_plain(text)
        case OutputFormat.MARKDOWN:
            problem = _of_markdown(text)
        case OutputFormat.TABLE:
            problem = _of_table(text)
        case OutputFormat.BULLETS | OutputFormat.STEPS:
            problem = _of_list(text, numbered=output_format is OutputFormat.STEPS)
        case OutputFormat.AUTO:
            raise ValueError("auto is no format of an answer")
        case _:
            assert_never(output_format)
    return f"the answer is not valid as {output_format.value}: {problem}" if problem else None


def _of_json(text: str) -> str | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return str(error)
    answer = value.get("answer") if isinstance(value, dict) else None
    good = isinstance(answer, list) and all(
        isinstance(entry, dict) and isinstance(entry.get("text"), str) and isinstance(entry.get("citations"), list)
        for entry in answer
    )
    return None if good else "it has no list 'answer' of texts with their citations"


def _of_plain(text: str) -> str | None:
    if not _MAY_BE_MARKDOWN.search(text):
        return None
    for token in _whole().parse(text):
        if token.type in {"heading_open", "fence", "table_open"}:
            return f"a {token.tag if token.type == 'heading_open' else token.type.removesuffix('_open')} is left"
        if markup := _inline_markup(token.children or ()):
            return f"{markup} is left"
    return None


def _inline_markup(children: Sequence[Token]) -> str | None:
    before = ""
    for token in children:
        if token.type == "code_inline":
            return "code"
        if token.type in {"em_open", "strong_open"} and not before[-1:].isalnum():
            return "emphasis"
        if token.type == "link_open" and token.markup != "autolink" and _URL.match(str(token.attrs.get("href", ""))):
            return "a link"
        before = token.content
    return None


def _of_markdown(text: str) -> str | None:
    if any(block.unclosed for block in fenced_blocks(text)):
        return "a block of code is not closed"
    if "|" not in text:
        return None
    lines = text.split("\n")
    tokens = _blocks().parse(text)
    parsed_lines: set[int] = set()
    for start, end in (
        token.map for token in tokens if token.map and token.type in {"table_open", "fence", "code_block"}
    ):
        parsed_lines.update(range(start, end))
    if any(_DELIMITER_ROW.match(line) and number not in parsed_lines for number, line in enumerate(lines)):
        return "a table is broken: its heads do not fit its columns"
    for table in tables(text, tokens):
        if any(len(row) > len(table[0]) for row in table):
            return "a table is broken: a row has more cells than the table has columns"
    return None


def _of_table(text: str) -> str | None:
    tokens = _blocks().parse(text)
    tables_in_text = tables(text, tokens)
    # Code stands between two tables, or fills none.
    blocks = sum(token.type == "fence" for token in tokens)
    if not (blocks and len(tables_in_text) <= blocks + 1) and len(tables_in_text) != 1:
        return f"it has {len(tables_in_text)} tables"
    if any(len({len(row) for row in table}) != 1 for table in tables_in_text):
        return "the rows of the table do not have the same number of cells"
    block_types = {token.type for token in tokens if token.level == 0 and token.nesting >= 0}
    unknown = block_types - {"table_open", "paragraph_open", "heading_open", "inline", "fence"}
    return f"beside the table it has a {_block_name(unknown)}" if unknown else None


def tables(text: str, tokens: Sequence[Token] | None = None) -> list[list[list[str]]]:
    """The tables of a Markdown text, each as rows of raw cells, the header first."""
    lines = text.split("\n")
    result: list[list[list[str]]] = []
    for token in tokens if tokens is not None else _blocks().parse(text):
        if token.type == "table_open":
            result.append([])
        elif token.type == "tr_open" and token.map:
            result[-1].append(_cells(lines[token.map[0]]))
    return result


def table_lines(text: str) -> list[tuple[int, int]]:
    """The lines ``[first, last)`` of each table of a Markdown text."""
    return [(t.map[0], t.map[1]) for t in _blocks().parse(text) if t.type == "table_open" and t.map]


def _cells(line: str) -> list[str]:
    cells = escapedSplit(line.strip())
    if cells and not cells[0]:
        cells.pop(0)
    if cells and not cells[-1]:
        cells.pop()
    return [cell.strip() for cell in cells]


def _of_list(text: str, *, numbered: bool) -> str | None:
    list_type = "ordered_list_open" if numbered else "bullet_list_open"
    tokens = _blocks().parse(text)
    numbers: list[str] = []
    lists = 0
    for token in tokens:
        if token.level == 0 and token.nesting >= 0:
            lists += token.type == list_type
            if token.type not in {list_type, "paragraph_open", "heading_open", "fence"}:
                return f"beside the list it has a {_block_name({token.type})}"
        if token.type == "list_item_open" and token.level == 1:
            numbers.append(token.info)
    if not lists and not any(token.type == "fence" for token in tokens):
        return "it has no list"
    if numbered and numbers != [str(number) for number in range(1, len(numbers) + 1)]:
        return "its steps are not numbered one by one"
    return None


def _block_name(types: set[str]) -> str:
    return min(types).removesuffix("_open").replace("_", " ")


# ---- plain text ------------------------------------------------------------------------------------------------------

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
