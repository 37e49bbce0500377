"""Cut a source into the short pieces that evidence is made of: quickly, and nearly where its sentences end.

``sentence_spans`` is exact and takes four times as long; where a sentence of a source ends matters less than that all
sources of an answer are read within a millisecond or two.
"""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re

from tasks.text.sentences import FILLED_LINE, NEVER_LAST, Span

LONGEST = 500
"""Characters of a piece; a source without punctuation is cut there, so that a window of it stays a place."""
_FIRST_CUT = 400

_END = re.compile(r"[.!?\n](?:(?<=\n)|[\"')\]”’»]*\s)\s*")
_WIDE_END = re.compile(r"[.!?\n。！？।۔؟](?:(?<=[\n。！？।۔؟])|[\"')\]”’»]*\s)\s*")
_WIDE = re.compile("[。！？।۔؟]")
_TERMINAL = frozenset(".!?:;|。！？।۔؟")
_OPENS_LINE = frozenset("-*+•‣◦|#")


def passage_spans(text: str) -> tuple[Span, ...]:
    """The pieces of a text in order: trimmed, never empty, without overlap, together all of it but white space."""
    spans: list[Span] = []
    left = len(text) - len(text.lstrip())
    end_of = _END if text.isascii() or not _WIDE.search(text) else _WIDE_END
    for found in end_of.finditer(text, left):
        start, cut = found.span()
        if _goes_on(text, left, start, cut):
            continue
        _add(spans, text, left, cut)
        left = cut
    _add(spans, text, left, len(text))
    return tuple(spans)


def _goes_on(text: str, left: int, mark: int, cut: int) -> bool:
    """Whether the sentence that begins at ``left`` goes on after a mark that often ends one."""
    following = text[cut : cut + 1]
    if text[mark] == ".":
        if following.islower():
            return "\n\n" not in text[mark:cut]
        if text[mark - 1].isupper() and not text[mark - 2].isalnum():
            return mark > left
        return mark - left > 1 and text[text.rfind(" ", left, mark) + 1 : mark].lower() in NEVER_LAST
    if text[mark] != "\n":
        return False
    # A wrapped line goes on with a small letter, or was filled; a heading or an item of a list is short.
    if following.islower():
        return True
    return mark - left >= FILLED_LINE and following not in _OPENS_LINE and text[mark - 1] not in _TERMINAL


def _add(spans: list[Span], text: str, left: int, right: int) -> None:
    """Add the piece from ``left``, where it begins, to ``right``, before which there may be white space."""
    end = left + len(text[left:right].rstrip())
    while end - left > LONGEST:
        space = text.rfind(" ", left + _FIRST_CUT, left + LONGEST)
        cut = space if space > 0 else left + LONGEST
        piece = text[left:cut].rstrip()
        if piece:
            spans.append(Span(left, left + len(piece)))
        left = cut + len(text[cut:end]) - len(text[cut:end].lstrip())
    if end > left:
        spans.append(Span(left, end))
