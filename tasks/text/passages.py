"""Splits the text of a source into passages: fast, and with exact offsets."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from collections.abc import Callable
from functools import partial
from typing import cast

from tasks.text.language import word_set
from tasks.text.sentences import FILLED_LINE, Span

LONGEST = 500
"""Most characters of a passage; a source without punctuation is split there, so that a window stays short."""
_FIRST_CUT = 400

_PASSAGE_END = re.compile(r"[.!?\n](?:(?<=\n)|[\"')\]”’»]*\s)\s*")
_WIDE_END = re.compile(r"[.!?\n。！？।۔؟](?:(?<=[\n。！？।۔؟])|[\"')\]”’»]*\s)\s*")
_WIDE = re.compile("[。！？।۔؟]")
_ENDS_PASSAGE = frozenset(".!?:;|。！？।۔؟")
_OPENS_LINE = frozenset("-*+•‣◦|#")


def passage_spans(text: str) -> tuple[Span, ...]:
    """The passages of a text in order: trimmed, not empty, without overlap, and together all of it but white space."""
    passages: list[tuple[int, int]] = []
    start = len(text) - len(text.lstrip())
    end_of = _PASSAGE_END if text.isascii() or not _WIDE.search(text) else _WIDE_END
    inner = word_set("inner_abbreviations")
    for match in end_of.finditer(text, start):
        mark, end = match.span()
        sign = text[mark]
        if sign == ".":
            if text[end : end + 1].islower():
                if "\n\n" not in text[mark:end]:
                    continue
            elif text[mark - 1].isupper() and not text[mark - 2].isalnum():
                if mark > start:
                    continue
            elif text[text.rfind(" ", start, mark) + 1 : mark].lower() in inner and mark - start > 1:
                continue
        elif sign == "\n" and _is_wrapped(text, start, mark, end):
            continue
        if sign != "\n" and end == mark + 2 and mark < start + LONGEST:
            passages.append((start, mark + 1))
        else:
            _add(passages, text, start, end)
        start = end
    _add(passages, text, start, len(text))
    return tuple(map(_new_span, passages))


_new_span = cast("Callable[[tuple[int, int]], Span]", partial(tuple.__new__, Span))
"""``Span._make`` without a call of Python code; a source has hundreds of spans."""


def _is_wrapped(text: str, start: int, mark: int, end: int) -> bool:
    """Tells whether a line break stands within a sentence: the next line is in lower case, or this one is long."""
    # A heading or an item of a list is short.
    following = text[end : end + 1]
    if following.islower():
        return True
    return mark - start >= FILLED_LINE and following not in _OPENS_LINE and text[mark - 1] not in _ENDS_PASSAGE


def _add(passages: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    """Adds the passage from ``start`` to ``end`` without trailing white space, split at ``LONGEST``."""
    while end > start and text[end - 1].isspace():
        end -= 1
    while end - start > LONGEST:
        space = text.rfind(" ", start + _FIRST_CUT, start + LONGEST)
        boundary = space if space > 0 else start + LONGEST
        piece = text[start:boundary].rstrip()
        if piece:
            passages.append((start, start + len(piece)))
        start = boundary + len(text[boundary:end]) - len(text[boundary:end].lstrip())
    if end > start:
        passages.append((start, end))
