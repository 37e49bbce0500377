"""Find where a quoted passage stands in a source, to the code point."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
import unicodedata
from collections.abc import Iterator

from tasks.text.sentences import Span

_ALIKE = str.maketrans(
    {
        **dict.fromkeys("“”„‟«»‹›″〝〞＂", '"'),
        **dict.fromkeys("‘’‚‛′`´＇", "'"),
        **dict.fromkeys("‐‑‒–—―−﹘﹣－", "-"),
        **dict.fromkeys(
            "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
        ),
        **dict.fromkeys("\t\n\r\v\f\x1c\x1d\x1e\x1f\x85\u2028\u2029", " "),
        **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", None),
    }
)
"""Characters that quoting models exchange for one another; invisible ones count for nothing."""
_INVISIBLE = re.compile("[\u00ad\u200b\u200c\u200d\u2060\ufeff]")
_ELISION = re.compile(r"\s*(?:\[\s*(?:\.{3,}|…)\s*\]|\(\s*(?:\.{3,}|…)\s*\)|\.{3,}|…)\s*")
_AROUND = " \t\n\"'“”„‘’«».,;:…"
_LONGEST_ELISION = 600
"""Characters that an elided quote may leave out in all; more is two quotes, not one."""


def locate(quote: str, content: str) -> Span | None:
    """Find a quote in a source: exactly, then whatever its case, white space, compatibility forms, quotes and dashes.

    A quote with an ellipsis is found if its parts stand in the source in order and near each other. The earliest
    place wins.

    Returns: a span of ``content``, trimmed; ``comparable`` of both sides is equal (without ellipsis). None when the
        quote isn't there, or says nothing.
    """
    quote = quote.strip()
    if not quote:
        return None
    start = content.find(quote)
    if start >= 0:
        return Span(start, start + len(quote))
    return _tolerant(quote, content) or _tolerant(quote.strip(_AROUND), content) or _elided(quote, content)


def comparable(text: str) -> str:
    """The form in which quotes are compared: compatibility-normalised, case-folded, plain quotes, dashes and spaces."""
    return "".join(key for key, _ in _keys(text)).strip(" ")


def _tolerant(quote: str, content: str) -> Span | None:
    wanted = comparable(quote)
    if not wanted:
        return None
    # The common differences (case, a line break, typographic marks) keep every offset: no map is needed for them.
    if not _INVISIBLE.search(content):
        same_length = content.translate(_ALIKE)
        lowered = same_length.lower()
        if lowered.isascii() and "  " not in lowered:
            start = lowered.find(wanted)
            return Span(start, start + len(wanted)) if start >= 0 else None
    return _mapped(wanted, content)


def _mapped(wanted: str, content: str) -> Span | None:
    """Search in the comparable form of the content, character clusters kept whole."""
    pieces = list(_keys(content))
    text = "".join(key for key, _ in pieces)
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    position = 0
    for key, span in pieces:
        if key:
            starts[position] = span.start
            position += len(key)
            ends[position] = span.end
    found = text.find(wanted)
    while found >= 0:
        if found in starts and found + len(wanted) in ends:
            return Span(starts[found], ends[found + len(wanted)])
        found = text.find(wanted, found + 1)
    return None


def _keys(text: str) -> Iterator[tuple[str, Span]]:
    """Each character cluster (a base with its combining marks, a run of white space) in its comparable form."""
    position = 0
    was_space = False
    while position < len(text):
        end = position + 1
        while end < len(text) and unicodedata.combining(text[end]):
            end += 1
        key = _key(text[position:end])
        if key == " ":
            if not was_space:
                yield " ", Span(position, end)
            was_space = True
        else:
            was_space = was_space and not key
            yield key, Span(position, end)
        position = end


def _key(cluster: str) -> str:
    if cluster.isascii():
        return cluster.translate(_ALIKE).lower()
    folded = unicodedata.normalize("NFKC", cluster.translate(_ALIKE)).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).translate(_ALIKE).split()) or (
        " " if folded.isspace() else ""
    )


def _elided(quote: str, content: str) -> Span | None:
    parts = [part for part in _ELISION.split(quote) if part.strip(_AROUND)]
    if len(parts) < 2 or any(" " not in part.strip() for part in parts):  # noqa: PLR2004 - at least one ellipsis
        return None
    start = end = -1
    for part in parts:
        offset = max(end, 0)
        found = locate(part, content[offset:])
        if found is None:
            return None
        start = found.start + offset if start < 0 else start
        end = found.end + offset
    return Span(start, end) if end - start <= len(quote) + _LONGEST_ELISION else None
