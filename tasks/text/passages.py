"""Splits a source into short passages for evidence, fast and close to its sentence ends.

``sentence_spans`` is exact and takes four times as long. For sources speed matters more than exact ends: all sources
of an answer take a millisecond or two.
"""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re

from tasks.text.sentences import FILLED_LINE, Span, never_ends_sentence

LONGEST = 500
"""Most characters of a passage; a source without punctuation is split there, so that a window stays short."""
_FIRST_CUT = 400

_END = re.compile(r"[.!?\n](?:(?<=\n)|[\"')\]”’»]*\s)\s*")
_WIDE_END = re.compile(r"[.!?\n。！？।۔؟](?:(?<=[\n。！？।۔؟])|[\"')\]”’»]*\s)\s*")
_WIDE = re.compile("[。！？।۔؟]")
_TERMINAL = frozenset(".!?:;|。！？।۔؟")
_OPENS_LINE = frozenset("-*+•‣◦|#")


def passage_spans(text: str) -> tuple[Span, ...]:
    """The passages of a text in order: trimmed, not empty, without overlap, and together all of it but white space."""
    spans: list[Span] = []
    start = len(text) - len(text.lstrip())
    end_of = _END if text.isascii() or not _WIDE.search(text) else _WIDE_END
    for match in end_of.finditer(text, start):
        mark, end = match.span()
        if _goes_on(text, start, mark, end):
            continue
        _add(spans, text, start, end)
        start = end
    _add(spans, text, start, len(text))
    return tuple(spans)


def _goes_on(text: str, start: int, mark: int, end: int) -> bool:
    """Tells whether the sentence from ``start`` continues after a mark that often ends a sentence."""
    following = text[end : end + 1]
    if text[mark] == ".":
        if following.islower():
            return "\n\n" not in text[mark:end]
        if text[mark - 1].isupper() and not text[mark - 2].isalnum():
            return mark > start
        last = text[text.rfind(" ", start, mark) + 1 : mark].lower()
        return mark - start > 1 and never_ends_sentence(last)
    if text[mark] != "\n":
        return False
    # A wrapped line continues in lower case or is long; a heading or an item of a list is short.
    if following.islower():
        return True
    return mark - start >= FILLED_LINE and following not in _OPENS_LINE and text[mark - 1] not in _TERMINAL


def _add(spans: list[Span], text: str, start: int, end: int) -> None:
    """Adds the passage from ``start`` to ``end`` without trailing white space, split at ``LONGEST``."""
    end = start + len(text[start:end].rstrip())
    while end - start > LONGEST:
        space = text.rfind(" ", start + _FIRST_CUT, start + LONGEST)
        boundary = space if space > 0 else start + LONGEST
        piece = text[start:boundary].rstrip()
        if piece:
            spans.append(Span(start, start + len(piece)))
        start = boundary + len(text[boundary:end]) - len(text[boundary:end].lstrip())
    if end > start:
        spans.append(Span(start, end))
