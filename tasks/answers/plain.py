"""Removes Markdown marks from an answer in plain text; every word stays."""

import re
from collections.abc import Iterable

from tasks.answers.flow import fenced_blocks
from tasks.answers.write import Edit

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
