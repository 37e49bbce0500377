"""Names the sources of an answer, and locates its citations: in the answer, and their quotes in the source."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

from schemas.answer import CanonicalAnswer, Citation, SegmentCitation
from schemas.generation import Style
from schemas.job import JobRequest, SourceContext
from tasks.answers.parse import storable
from tasks.answers.rendered import Mark, Rendered
from tasks.answers.styles import manner_of
from tasks.text.evidence import SourceSearch, search_sources
from tasks.text.sentences import Span, in_one_form
from tasks.text.time_limit import OutOfTime, ensure_time
from tasks.text.wording import words_of

SNIPPET_CHARACTERS = 150
DECENT_MATCH = 0.35
"""Least share (by weight) of a sentence's words that a source must contain to locate a marker without a quote."""
_LEAST_COPIED = 3
"""Words of content from which a sentence that its source has word for word is located there; fewer are chance."""

_SHOWN_QUOTE = 80


def locate_citations(
    request: JobRequest,
    answer: CanonicalAnswer,
    rendered: Rendered,
    source_indexes: Sequence[int],
    *,
    sentences: Sequence[tuple[Span, int]],
    bare: str,
) -> tuple[list[Citation], list[str]]:
    """All citations in the order of their markers, and a warning for each quote that its source does not contain.

    A citation without a quote gets the passage of its source that fits its sentence best, if one fits well enough.

    Args:
        request: the job's request.
        answer: the canonical answer.
        rendered: the same answer as text.
        source_indexes: the source index of each source number - 1.
        sentences: the sentences of the text, each with the position up to which markers belong to it.
        bare: the text with spaces in place of its markers.
    """
    citations: list[Citation] = []
    warnings: list[str] = []
    places = _Places(request, bare, sentences)
    for mark in rendered.marks:
        source_index = source_indexes[mark.source - 1]
        source = request.context[source_index]
        for reference in answer.segments[mark.segment].citations:
            if reference.source != mark.source:
                continue
            place = None
            try:
                ensure_time()
                if not reference.quote.strip():
                    place = places.of(mark.start, source_index)
                elif (place := locate(reference.quote, source.content)) is None:
                    warnings.append(_not_there(reference, mark.rank, request, source_indexes))
            except OutOfTime as error:
                warnings.append(f"not all citations were looked up in their sources: {error}")
            citations.append(_citation(source, source_index, mark, place))
    return citations, warnings


def _not_there(reference: SegmentCitation, rank: int, request: JobRequest, source_indexes: Sequence[int]) -> str:
    quote = " ".join(storable(reference.quote).split())
    quote = quote if len(quote) <= _SHOWN_QUOTE else quote[:_SHOWN_QUOTE] + "…"
    matching = [
        number
        for number, index in enumerate(source_indexes, 1)
        if reference.quote.strip() in request.context[index].content
    ]
    elsewhere = f" (it is in context[{source_indexes[matching[0] - 1]}])" if matching else ""
    return f'a quote does not stand in the source [{rank}] it is attributed to{elsewhere}: "{quote}"'


class _Places:
    """Locates the passage of a source that fits a sentence which cites it without a quote."""

    def __init__(self, request: JobRequest, bare: str, sentences: Sequence[tuple[Span, int]]) -> None:
        self._request = request
        self._sentences = sentences
        self._reaches = [reach for _, reach in sentences]
        self._passages: dict[tuple[int, int], Span | None] = {}
        self._bare = bare
        self._search: SourceSearch | None = None
        self._words: list[frozenset[str]] = []

    def of(self, position: int, source_index: int) -> Span | None:
        if self._search is None:
            self._words = [words_of(self._bare[span.start : span.end]).content for span, _ in self._sentences]
            self._search = search_sources(self._request.context, frozenset[str]().union(*self._words))
        number = bisect_left(self._reaches, position)
        if number == len(self._sentences) or position < self._sentences[number][0].start:
            return None
        key = number, source_index
        if key not in self._passages:
            self._passages[key] = self._passage(number, source_index, self._search.within((source_index,)))
        return self._passages[key]

    def _passage(self, number: int, source_index: int, search: SourceSearch) -> Span | None:
        """The passage of a source that fits a sentence."""
        sentence_words = self._words[number]
        # A sentence that the source has word for word needs no search by words, which reads all sources.
        if (copy := self._copy(number, search)) is not None:
            return copy
        match = search.best(sentence_words, source_index)
        return search.span(match, sentence_words) if match is not None and match.score >= DECENT_MATCH else None

    def _copy(self, number: int, search: SourceSearch) -> Span | None:
        """The passages in the sources of a search that has a sentence word for word."""
        if len(self._words[number]) < _LEAST_COPIED:
            return None
        span = self._sentences[number][0]
        text = self._bare[span.start : span.end].strip(_AROUND)
        return search.verbatim(text) if text else None


def _citation(source: SourceContext, source_index: int, mark: Mark, place: Span | None) -> Citation:
    about = source.metadata
    return Citation(
        source_index=source_index,
        rank=mark.rank,
        chunk_id=source.chunk_id,
        document_id=source.document_id,
        quoted_text=source.content[place.start : place.end] if place else "",
        text_snippet=source.content[:SNIPPET_CHARACTERS],
        start_pos=mark.start,
        end_pos=mark.end,
        source_start=place.start if place else None,
        source_end=place.end if place else None,
        relevance_score=source.relevance_score,
        page=scalar(about.get("page")) if about else None,
        article=scalar(about.get("article")) if about else None,
        section=section_path(about) if about else None,
        verified=place is not None,
    )


# ---- quotes ----------------------------------------------------------------------------------------------------------

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
_ELISION = re.compile(r"(?<!\s)\s*(?:\[\s*(?:\.{3,}|…)\s*\]|\(\s*(?:\.{3,}|…)\s*\)|\.{3,}|…)\s*")
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


@dataclass(frozen=True)
class _Comparable:
    """A text in its comparable form: the joined keys of its clusters (a base character with its combining marks).

    In a run of white space all keys but the first are empty. ``keeps_offsets`` means that each key is one character.
    """

    clusters: Sequence[str]
    keys: Sequence[str]
    text: str
    keeps_offsets: bool

    @cached_property
    def _ends(self) -> list[int]:
        """The end of each key in the comparable form."""
        return list(accumulate(map(len, self.keys)))

    def place_of(self, start: int, end: int) -> Span | None:
        """Span in the text for ``[start, end)`` of the comparable form; None if that splits a cluster."""
        if self.keeps_offsets:
            return Span(start, end)
        ends = self._ends
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
    folded = in_one_form(cluster.translate(_ALIKE)).casefold()
    return " ".join(in_one_form(folded).translate(_ALIKE).split()) or (" " if folded.isspace() else "")


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


# ---- labels and markers of sources -----------------------------------------------------------------------------------

_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])|<(?=[A-Za-z/!?])|&(?=#?\w+;)")
"""Characters that Markdown can parse as mark-up in a title: all but an underscore inside a word."""


@dataclass(frozen=True, slots=True)
class Label:
    """The name of a source in the answer, and its place in the document as far as the metadata has it."""

    name: str
    section: str | None = None
    article: str | int | None = None
    page: str | int | None = None

    def __str__(self) -> str:
        parts = [self.name if self.section is None else f"{self.name} - {self.section}"]
        if self.article is not None:
            numbered = isinstance(self.article, int) or self.article[:1].isdigit()
            parts.append(f"art. {self.article}" if numbered else str(self.article))
        if self.page is not None:
            parts.append(f"p. {self.page}")
        return ", ".join(parts)

    def json_entry(self) -> dict[str, str | int]:
        """Entry of the list of sources in JSON."""
        facts = {"title": self.name, "section": self.section, "article": self.article, "page": self.page}
        return {key: value for key, value in facts.items() if value is not None}


def name_of(source: SourceContext) -> str:
    """Name of a source: its title, else product and kind of document, else its path; empty without any."""
    about = source.metadata
    if not about:
        return ""
    names = (about.get("title"), _product(about), about.get("source_path"))
    return next((name for value in names if (name := one_line(value))), "")


def label(source: SourceContext, number: int) -> Label:
    """The label of a source; its number replaces a missing name."""
    about = source.metadata
    if not about:
        return Label(f"source {number}")
    article = scalar(about.get("article"))
    page = scalar(about.get("page"))
    return Label(
        name=name_of(source) or f"source {number}",
        section=one_line(section_path(about)) or None,
        article=article if isinstance(article, int) else one_line(article) or None,
        page=page if isinstance(page, int) else one_line(page) or None,
    )


def _product(about: Mapping[str, Any]) -> str:
    return " ".join(str(about[key]) for key in ("product_name", "document_type") if about.get(key))


def one_line(value: Any) -> str:
    """A value as text without line breaks, runs of white space and control characters; empty for None."""
    if value is None:
        return ""
    text = str(value)
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(text.split())


def scalar(value: Any) -> str | int | None:
    """A page or article as a number or text; the entries of a list are joined."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def section_path(about: Mapping[str, Any]) -> str | None:
    """The section of a source from its metadata, as a path from the widest to the narrowest; None without one."""
    for key in ("section", "section_hierarchy"):
        value = about.get(key)
        if isinstance(value, list | tuple):
            value = " > ".join(str(part) for part in value if part not in (None, ""))
        if value not in (None, ""):
            return str(value)
    return None


def marker(style: Style, rank: int, source: Label, *, markdown: bool) -> str:
    """The marker of a source in running text; for Markdown the title is escaped."""
    manner = manner_of(style)
    return manner.mark(rank, _title(source, markdown=markdown) if manner.names else "")


def reference(style: Style, rank: int, source: Label, *, markdown: bool) -> str:
    """The line of a source in the list of sources: its marker, or else its number, and its title."""
    lead = f"[{rank}]" if manner_of(style).names else marker(style, rank, source, markdown=markdown)
    return f"{lead} {_title(source, markdown=markdown)}"


def _title(source: Label, *, markdown: bool) -> str:
    return escape_markdown(str(source)) if markdown else neutral_title(str(source))


_OPENS_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def neutral_title(title: str) -> str:
    """A source's title that is no HTML where a page takes plain text for HTML."""
    return _OPENS_TAG.sub("< ", title)


def escape_markdown(text: str) -> str:
    """Markdown that displays exactly this text."""
    return _MARKUP.sub(lambda match: f"\\{match.group()}", text)
