"""Locates a quote in a source, exactly to the code point."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from tasks.text.evidence import ensure_time
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
"""Characters that models exchange when they quote; invisible characters are ignored."""
_ELISION = re.compile(r"\s*(?:\[\s*(?:\.{3,}|…)\s*\]|\(\s*(?:\.{3,}|…)\s*\)|\.{3,}|…)\s*")
_AROUND = " \t\n\"'“”„‘’«».,;:…"
_LONGEST_ELISION = 600
"""Most characters that a quote with an ellipsis may omit in all; beyond that it is two quotes."""


def locate(quote: str, content: str) -> Span | None:
    """Locates a quote in a source: exactly, then without regard to case, white space, quotation marks and dashes.

    A quote with an ellipsis matches if its parts are in the source in order and near each other. The earliest match
    wins.

    Returns: a trimmed span of ``content``; ``comparison_form`` of both sides is equal (without an ellipsis). None without a
        match, or for a quote without words.
    """
    quote = quote.strip()
    if not quote:
        return None
    start = content.find(quote)
    if start >= 0:
        return Span(start, start + len(quote))
    return (
        _locate_tolerantly(quote, content)
        or _locate_tolerantly(quote.strip(_AROUND), content)
        or _locate_elided(quote, content)
    )


def comparison_form(text: str) -> str:
    """The normal form for comparing quotes: NFKC, case-folded, with plain quotation marks, dashes and spaces."""
    return _comparable(text).text.strip(" ")


def _locate_tolerantly(quote: str, content: str) -> Span | None:
    key = comparison_form(quote)
    if not key:
        return None
    if content.isascii():
        # Case and line breaks, the common differences, keep every offset, so no map is necessary.
        lowered = content.translate(_ALIKE).lower()
        if "  " not in lowered:
            start = lowered.find(key)
            return Span(start, start + len(key)) if start >= 0 else None
    source = _cached_comparable(content) if len(content) <= _LONGEST_CACHED else _comparable(content)
    position = source.text.find(key)
    while position >= 0:
        if (place := source.place_of(position, position + len(key))) is not None:
            return place
        position = source.text.find(key, position + 1)
    return None


@dataclass(frozen=True, slots=True)
class _Comparable:
    """A text in its comparable form: the joined keys of its clusters (a base character with its combining marks).

    In a run of white space all keys but the first are empty. ``keeps_offsets`` means that each key is one character.
    """

    clusters: Sequence[str]
    keys: Sequence[str]
    text: str
    keeps_offsets: bool

    def place_of(self, start: int, end: int) -> Span | None:
        """Span in the text for ``[start, end)`` of the comparable form; None if that splits a cluster."""
        if self.keeps_offsets:
            return Span(start, end)
        ends = list(accumulate(map(len, self.keys)))
        first, last = bisect_right(ends, start), bisect_left(ends, end)
        if ends[first] - len(self.keys[first]) != start or ends[last] != end:
            return None
        before = sum(map(len, self.clusters[:first]))
        return Span(before, before + sum(map(len, self.clusters[first : last + 1])))


def _comparable(text: str) -> _Comparable:
    characters = set(text)
    marks = "".join(filter(unicodedata.combining, characters))
    clusters = re.findall(f"(?s).[{re.escape(marks)}]*", text) if marks else list(text)
    keeps_offsets = not marks and all(len(_KEYS[character]) == 1 for character in characters)
    keys = list(map(_KEYS.__getitem__, clusters))
    joined = "".join(keys)
    if "  " in joined:
        keeps_offsets = False
        was_space = False
        for position, key in enumerate(keys):
            if key == " " and was_space:
                keys[position] = ""
            elif key:
                was_space = key == " "
        joined = "".join(keys)
    return _Comparable(clusters, keys, joined, keeps_offsets)


_LONGEST_CACHED = 8_000
"""Longest source whose comparable form is cached: an answer quotes the same few sources."""
_cached_comparable = lru_cache(maxsize=32)(_comparable)


class _Keys(dict[str, str]):
    """Cache of the comparable form of each cluster; an ignored cluster has an empty string."""

    def __missing__(self, cluster: str) -> str:
        key = _key(cluster)
        if len(self) < _MOST_KEYS and len(cluster) <= _LONGEST_KEY:
            self[cluster] = key
        return key


_MOST_KEYS = 20_000
_LONGEST_KEY = 4
_KEYS = _Keys()


def _key(cluster: str) -> str:
    if cluster.isascii():
        return cluster.translate(_ALIKE).lower()
    folded = unicodedata.normalize("NFKC", cluster.translate(_ALIKE)).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).translate(_ALIKE).split()) or (
        " " if folded.isspace() else ""
    )


def _locate_elided(quote: str, content: str) -> Span | None:
    parts = [part for part in _ELISION.split(quote) if part.strip(_AROUND)]
    if len(parts) < 2 or any(" " not in part.strip() for part in parts):  # noqa: PLR2004 - at least one ellipsis
        return None
    start = end = -1
    for part in parts:
        ensure_time()
        offset = max(end, 0)
        place = locate(part, content[offset:])
        if place is None:
            return None
        start = place.start + offset if start < 0 else start
        end = place.end + offset
    return Span(start, end) if end - start <= len(quote) + _LONGEST_ELISION else None
