"""Finds the evidence for a statement in bounded time: the window of a source with the greatest weight of its words.

Sources are indexed once per answer. A statement is compared with windows of up to three neighbouring passages, never
with a whole source, because a whole source contains the words of almost any statement.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import itemgetter
from time import monotonic
from typing import Any, NamedTuple

from schemas.job import SHOWN_METADATA, SourceContext
from tasks.text.sentences import (
    Passage,
    Span,
    latin_of_spans,
    letters_of,
    passage_spans,
    passages_around,
    sentence_spans,
    words,
    words_of_spans,
)
from tasks.text.word_places import Postings, number_stems, postings_of
from tasks.text.wording import (
    NEGATION,
    contains_number,
    content_words,
    has_other_readings,
    numbers_in,
    stem_of,
)

# ---- the time of a check ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """Time limit of a check, and the reason in its record when it took longer; 0 s: nothing is searched."""

    seconds: float
    reason: str = ""

    @property
    def message(self) -> str:
        """The reason, which names the setting unless there is another one."""
        return self.reason or (
            f"it took longer than {self.seconds:g} s (NIGHTDESK_CHECK_TIMEOUT_S); give fewer or shorter sources,"
            " or raise it and recheck"
        )


class OutOfTime(Exception):
    """The check took longer than it may."""


_END: ContextVar[tuple[float, str] | None] = ContextVar("end of the check", default=None)


@contextmanager
def within(limit: TimeLimit) -> Iterator[None]:
    """Bound what is done in the block; the block ends by itself, nothing cuts it off."""
    token = _END.set((monotonic() + limit.seconds, limit.message))
    try:
        yield
    finally:
        _END.reset(token)


def ensure_time() -> None:
    """Raise ``OutOfTime`` if the time of the block is up; without a limit there is always time."""
    end = _END.get()
    if end is not None and monotonic() >= end[0]:
        raise OutOfTime(end[1])


# ---- the index of one source -----------------------------------------------------------------------------------------

WINDOW = 3
"""Passages per window: a statement often combines a sentence with the previous sentence, which names the subject."""

_CACHED_CHARACTERS = 8_000
"""Longest content whose index is cached for the next job; bounds the memory of the cache."""


class SourceIndex:
    """The passages of a source in order, with the stems of their words and of their numbers, each read when it is needed.

    Args:
        content: the source.
    """

    __slots__ = ("_content", "_latin", "_numbers", "_stems", "is_latin", "spans")

    def __init__(self, content: str) -> None:
        self.spans = passages_of(content)
        self._content = content
        self._latin = latin_of_spans(content, self.spans)
        self.is_latin = self._latin is not None
        self._stems: tuple[str, ...] | None = None
        self._numbers: tuple[str, ...] | None = None if self.is_latin else ()

    @property
    def stems(self) -> tuple[str, ...]:
        """The stems of all words, with ``BREAK`` between passages; beyond Latin letters those of the numbers, too."""
        if self._stems is None:
            if self.is_latin:
                tokens = letters_of(self._text()).decode("latin-1").split()
                # It is as large as the stems, which are kept for the next job, and few sources need it again.
                self._latin = None
            else:
                tokens = words_of_spans(self._content, self.spans)[0]
            self._stems = tuple(map(stem_of, tokens))
        return self._stems

    @property
    def numbers(self) -> tuple[str, ...]:
        """The stems of its numbers, with ``BREAK`` between passages; empty for a source with other than Latin letters."""
        if self._numbers is None:
            self._numbers = number_stems(self._text())
        return self._numbers

    def _text(self) -> bytes:
        """A source of Latin letters in Latin-1."""
        text = self._latin if self._latin is not None else latin_of_spans(self._content, self.spans)
        assert text is not None
        return text

    def postings(self, vocabulary: frozenset[str]) -> Postings:
        """Inverted index of the vocabulary: for each of its words in the source the passages, in order."""
        numbers = self.numbers if any(stem[0] <= _DIGIT_END for stem in vocabulary) else ()
        return postings_of(vocabulary, self.stems, numbers)


_DIGIT_END = "9"


def index_source(content: str) -> SourceIndex:
    """Indexes a source by passages; short sources are cached, because neighbouring questions share chunks."""
    return _cached_index(content) if len(content) <= _CACHED_CHARACTERS else SourceIndex(content)


def passages_of(content: str) -> tuple[Passage, ...]:
    """The passages of a source; those of a short one are cached, those of a long one for the time of a check."""
    if len(content) <= _CACHED_CHARACTERS:
        return _cached_passages(content)
    if (shared := _SHARED.get()) is None:
        return passage_spans(content)
    if content not in shared.passages:
        shared.passages[content] = passage_spans(content)
    return shared.passages[content]


_cached_passages = lru_cache(maxsize=512)(passage_spans)


_cached_index = lru_cache(maxsize=512)(SourceIndex)


@lru_cache(maxsize=512)
def exact_sentences(paragraph: str) -> tuple[Span, ...]:
    """The exact sentences of a paragraph, for quotes; cached like the indexes."""
    return tuple(sentence_spans(paragraph))


def forget() -> None:
    """Empties the caches, for measurements."""
    _cached_index.cache_clear()
    _cached_passages.cache_clear()
    exact_sentences.cache_clear()
    _numbers_in.cache_clear()
    text_stems.cache_clear()


def metadata_stems(metadata: Mapping[str, Any]) -> frozenset[str]:
    """The content words of the metadata in the prompt: a statement may name a source's title, article or date."""
    values = [metadata.get(key) for key in SHOWN_METADATA] if metadata else ()
    return _NO_WORDS.union(*[text_stems(str(value)) for value in values if value is not None])


@lru_cache(maxsize=4096)
def text_stems(text: str) -> frozenset[str]:
    """The content words of a short text; cached, because the chunks of a document share its title."""
    return content_words(words(text))


_NO_WORDS = frozenset[str]()
_START = itemgetter(0)
_END_OF = itemgetter(1)


# ---- searching the sources of one answer -----------------------------------------------------------------------


# 10 KB each, with the source.
_numbers_in = lru_cache(maxsize=128)(numbers_in)

_MOST_WEIGHED = 256
"""Statements times sources whose windows stay weighed; bounds the memory of a check, some 10 KB each in a long source."""
_EQUAL = 1e-9
"""Largest difference of equal sums of weights."""


class Match(NamedTuple):
    """The best window of one source for a statement: ``score`` in [0, 1], ``window`` its first passage there.

    ``place``: the passages in which the statement stands word for word, where it does.
    """

    source_index: int
    score: float
    window: int
    place: Span | None = None


_UNCOUNTED = -1
"""Window of a match that has a place: the passages before it are counted only where somebody needs its number."""


@dataclass(slots=True)
class _Shared:
    """The indexes and passages of long sources, and the latest search, of one check."""

    indexes: dict[str, SourceIndex] = field(default_factory=dict)
    passages: dict[str, tuple[Passage, ...]] = field(default_factory=dict)
    search: "SourceSearch | None" = None


_SHARED: ContextVar[_Shared | None] = ContextVar("indexes of one check", default=None)


@contextmanager
def shared_indexes() -> Iterator[None]:
    """Index each source once for all searches of the block, and search once for the words of all its statements."""
    token = _SHARED.set(_Shared())
    try:
        yield
    finally:
        _SHARED.reset(token)


def _index_in_time(content: str) -> SourceIndex:
    ensure_time()
    shared = _SHARED.get()
    if shared is None or len(content) <= _CACHED_CHARACTERS:
        return index_source(content)
    if content not in shared.indexes:
        shared.indexes[content] = SourceIndex(content)
    return shared.indexes[content]


def search_sources(sources: Sequence[SourceContext], vocabulary: Collection[str]) -> "SourceSearch":
    """The search of the same check over the same sources, if it has all words of the vocabulary; else a new one."""
    shared = _SHARED.get()
    if shared is not None and (search := shared.search) is not None and search.covers(sources, vocabulary):
        return search
    search = SourceSearch(sources, vocabulary)
    if shared is not None:
        shared.search = search
    return search


def _passage_at(spans: Sequence[Passage], position: int) -> int:
    """The number of the passage with a position of the text, or of the one before it."""
    return max(0, bisect_right(spans, position, key=_START) - 1)


def _find_words(text: str, content: str) -> int | None:
    """The earliest place at which a content has the characters of a text as whole words."""
    start = content.find(text)
    while start >= 0:
        end = start + len(text)
        if not (content[start - 1 : start].isalnum() or content[end : end + 1].isalnum()):
            return start
        start = content.find(text, start + 1)
    return None


class SourceSearch:
    """A search over the sources of one answer for the words of a fixed vocabulary.

    Sources are read when a statement needs it: an answer that quotes them never does.

    Args:
        sources: all sources of the job.
        vocabulary: every content word of every statement to search for.
    """

    def __init__(self, sources: Sequence[SourceContext], vocabulary: Collection[str]) -> None:
        self._sources = sources
        self._vocabulary = frozenset(vocabulary)
        self._expected: Callable[[], Iterable[frozenset[str]]] = tuple
        self._lookups: set[str] = set()
        self._postings: list[Postings] = [{} for _ in sources]
        self.weights: dict[str, float] = {}
        """Weight of each word that was looked for: its smoothed inverse frequency over the passages of all sources, at least 2.

        With few passages the constant keeps one rare word from outweighing the rest of a statement.
        """
        self._window_memo: dict[tuple[frozenset[str], int], dict[int, float]] = {}
        self._weight_memo: dict[frozenset[str], float] = {}
        self._copies: dict[tuple[str, int], tuple[Match | None] | None] = {}
        self._numbers: dict[int, frozenset[str]] = {}
        self._bounds: dict[frozenset[str], dict[int, float]] = {}

    def covers(self, sources: Sequence[SourceContext], vocabulary: Collection[str]) -> bool:
        """Tells whether it is a search over these sources for all words of a vocabulary."""
        return sources is self._sources and self._vocabulary.issuperset(vocabulary)

    def expect(self, statements: Callable[[], Iterable[frozenset[str]]]) -> None:
        """Takes a function that lists statements which will be searched for: the words of all are looked for together."""
        self._expected = statements

    def _passages(self, source: int) -> tuple[Passage, ...]:
        return (
            self._indexes[source].spans if "_indexes" in self.__dict__ else passages_of(self._sources[source].content)
        )

    @cached_property
    def _indexes(self) -> list[SourceIndex]:
        return [_index_in_time(source.content) for source in self._sources]

    @cached_property
    def _titles(self) -> list[frozenset[str]]:
        return [metadata_stems(source.metadata) for source in self._sources]

    def look_for(self, stems: Collection[str]) -> None:
        """Looks for those words of the vocabulary that were not looked for before."""
        if self._lookups.issuperset(stems):
            return
        new = self._vocabulary.intersection(stems) - self._lookups
        if not new:
            return
        expected, self._expected = self._expected(), tuple
        new = new.union(*expected) & self._vocabulary - self._lookups
        listed = []
        for index in self._indexes:
            ensure_time()
            listed.append(index.postings(new))
        counts = dict.fromkeys(new, 1)
        for postings in listed:
            for word, passages in postings.items():
                counts[word] += len(passages)
        total = sum(len(index.spans) for index in self._indexes) + 1
        self.weights.update({word: 2.0 + math.log(total / count) for word, count in counts.items()})
        for postings, more in zip(self._postings, listed, strict=True):
            postings.update(more)
        self._lookups |= new

    def weight(self, statement: Iterable[str]) -> float:
        """The total weight of words of the vocabulary that were looked for, independent of their order."""
        weights = self.weights
        return math.fsum([weights[word] for word in statement])

    def _total(self, statement: frozenset[str]) -> float:
        """The weight of a whole statement, computed once: each of its windows is a share of it."""
        if (total := self._weight_memo.get(statement)) is None:
            total = self._weight_memo[statement] = self.weight(statement)
        return total

    def content(self, source_index: int) -> str:
        """The text of a source."""
        return self._sources[source_index].content

    # ---- words and numbers ----

    def holds(self, word: str, scope: Collection[int] | None = None) -> bool:
        """Tells whether any source of a scope (None: all) or its metadata contains a word of the vocabulary."""
        self.look_for((word,))
        return any(word in self._postings[source] or word in self._titles[source] for source in self._within(scope))

    def holds_number(self, values: Collection[str], scope: Collection[int] | None = None) -> bool:
        """Tells whether any source of a scope (None: all) or its metadata contains a number, by any of its readings.

        The source may have it in the same digits, in words, with a scale, in a date, or unrounded.
        """
        if any(self.holds(value, scope) for value in values):
            return True
        # Not part of the index, because it is rare: only a number that no source has in the same digits gets here.
        return any(self._states_number(values, source) for source in self._within(scope))

    def _states_number(self, values: Collection[str], source: int) -> bool:
        ensure_time()
        content = self._sources[source].content
        if source not in self._numbers:
            # Mostly its numbers are known already.
            numbers = frozenset(self._indexes[source].numbers)
            self._numbers[source] = numbers if numbers and not has_other_readings(content) else _numbers_in(content)
        numbers = self._numbers[source] if self._vocabulary.issuperset(values) else _numbers_in(content)
        return contains_number(values, numbers, content)

    def denies(self, match: Match) -> bool:
        """Tells whether a match's window contains a negation."""
        window = self._window(match)
        spans = self._passages(match.source_index)[window : window + WINDOW]
        tokens, _ = words_of_spans(self.content(match.source_index), spans)
        return NEGATION in map(stem_of, tokens)

    def _within(self, scope: Collection[int] | None) -> Iterable[int]:
        return range(len(self._sources)) if scope is None else sorted(scope)

    # ---- windows ----

    def verbatim(self, text: str, scope: Collection[int] | None = None) -> Match | None:
        """The earliest place in the sources of a scope (None: all) that has a text's characters as whole words."""
        for source in self._within(scope):
            # Each sentence is looked for twice: to locate its citations, and to check it.
            key = (text, source)
            if key not in self._copies:
                start = _find_words(text, self._sources[source].content)
                self._copies[key] = None if start is None else (self._place(source, start, start + len(text)),)
            if (copy := self._copies[key]) is not None:
                return copy[0]
        return None

    def _place(self, source: int, start: int, end: int) -> Match | None:
        """The passages from ``start`` to ``end`` as a match; None if they are more than a window."""
        ensure_time()
        spans = passages_around(self._sources[source].content, start, end) or self._passages(source)
        first = _passage_at(spans, start)
        last = min(bisect_left(spans, end, lo=first, key=_END_OF), len(spans) - 1)
        if last - first >= WINDOW:
            return None
        return Match(source, 1.0, _UNCOUNTED, Span(spans[first][0], spans[last][1]))

    def best_of_all(self, statement: frozenset[str], scope: Collection[int] | None = None) -> Match | None:
        """The best window in the sources of a scope (None: all); the earliest source among equals.

        A source is searched only if all its words together can beat the best window so far.
        """
        self.look_for(statement)
        if scope is not None and len(scope) == 1:
            return self.best(statement, *scope)
        best: Match | None = None
        bounds = [(self._bound(statement, source), source) for source in self._within(scope)]
        for bound, source in sorted(bounds, key=lambda candidate: (-candidate[0], candidate[1])):
            if bound <= 0 or (best is not None and bound < best.score - _EQUAL):
                break
            match = self.best(statement, source)
            if match is not None and (
                best is None
                or match.score > best.score + _EQUAL
                or (match.score > best.score - _EQUAL and source < best.source_index)
            ):
                best = match
        return best

    def _bound(self, statement: frozenset[str], source: int) -> float:
        """The share of a statement's words, by weight, that a source has anywhere."""
        bounds = self._bounds.setdefault(statement, {})
        if source not in bounds:
            matched = self._postings[source].keys() & statement
            total = self._total(statement)
            bounds[source] = self.weight(matched | (self._titles[source] & statement)) / total if total else 0.0
        return bounds[source]

    def best(self, statement: frozenset[str], source_index: int) -> Match | None:
        """The best window of one source, the earliest among equals; None if it has none of the statement's words.

        Words in the source's metadata count for each of its windows.
        """
        ensure_time()
        self.look_for(statement)
        weights = self._window_weights(statement, source_index)
        if not weights:
            return None
        most = max(weights.values()) - _EQUAL
        window = min([start for start, weight in weights.items() if weight >= most])
        match = Match(source_index, weights[window], window)
        titled = self._titles[source_index] & statement
        score = weights[window] + (self.weight(titled - self._in_window(titled, match)) if titled else 0.0)
        return Match(source_index, min(1.0, score / self._total(statement)), window)

    def _window_weights(self, statement: frozenset[str], source_index: int) -> dict[int, float]:
        """The weight of the statement's words in each window with any of them, by the window's first passage."""
        key = (statement, source_index)
        if key in self._window_memo:
            return self._window_memo[key]
        postings, of_word = self._postings[source_index], self.weights
        weights: defaultdict[int, float] = defaultdict(float)
        for word in sorted(postings.keys() & statement):
            weight = of_word[word]
            following = 0
            for passage in postings[word]:
                # Windows that begin before ``following`` have the word already.
                if passage - WINDOW >= following:
                    following = passage - WINDOW + 1
                while following <= passage:
                    weights[following] += weight
                    following += 1
        if len(self._window_memo) >= _MOST_WEIGHED:
            self._window_memo.clear()
        self._window_memo[key] = weights
        return weights

    def several(self, statement: frozenset[str], source_index: int, most: int, near: float = 1.0) -> list[Match]:
        """The best windows of one source without overlap, best first; words in its metadata do not count.

        Those more than ``near`` below the best one may be left out.
        """
        self.look_for(statement)
        counted = self._window_weights(statement, source_index)
        if not counted:
            return []
        total = self._total(statement)
        matches: list[Match] = []
        least = min(total, max(counted.values())) - near * total - _EQUAL
        windows = [window for window in counted.items() if window[1] >= least]
        for start, weight in sorted(windows, key=lambda window: (-round(window[1], 6), window[0])):
            if len(matches) == most:
                break
            if all(abs(start - other.window) >= WINDOW for other in matches):
                matches.append(Match(source_index, min(1.0, weight / total), start))
        return matches

    def nearly_best(self, statement: frozenset[str], sources: Iterable[int], most: int, near: float) -> list[Match]:
        """The best of the ``several`` of some sources, at most ``near`` below the best one; best first."""
        self.look_for(statement)
        top = 0.0
        matches: list[Match] = []
        bounds = [(self._bound(statement, source), source) for source in sources]
        for bound, source in sorted(bounds, reverse=True):
            # The best window of all comes from a source with a high bound, and spares the others a search.
            if bound <= 0 or bound < top - near:
                break
            listed = self.several(statement, source, most, near)
            matches += listed
            top = max([top, *(match.score for match in listed)])
        matches.sort(key=lambda match: (-match.score, match.source_index))
        return [match for match in matches if match.score >= top - near]

    def _in_window(self, statement: Iterable[str], match: Match) -> set[str]:
        postings = self._postings[match.source_index]
        window = self._window(match)
        matched = set()
        for word in statement:
            passages = postings.get(word)
            if passages is not None:
                following = bisect_left(passages, window)
                if following < len(passages) and passages[following] < window + WINDOW:
                    matched.add(word)
        return matched

    def _window(self, match: Match) -> int:
        """The first passage of a match's window."""
        if match.place is None:
            return match.window
        return _passage_at(self._passages(match.source_index), match.place.start)

    def matched_words(self, match: Match, statement: frozenset[str]) -> set[str]:
        """The words of a statement that are in a match's window or in its source's metadata."""
        self.look_for(statement)
        return self._in_window(statement, match) | (self._titles[match.source_index] & statement)

    # ---- spans ----

    def span(self, match: Match, statement: frozenset[str]) -> Span:
        """The part of a match's window with the statement's words, without passages at its ends that add no word."""
        if match.place is not None:
            return match.place
        postings = self._postings[match.source_index]
        spans = self._passages(match.source_index)
        first, last = match.window, min(match.window + WINDOW, len(spans)) - 1
        matched: dict[int, set[str]] = {passage: set() for passage in range(first, last + 1)}
        for word in postings.keys() & statement:
            passages = postings[word]
            for passage in passages[bisect_left(passages, first) : bisect_right(passages, last)]:
                matched[passage].add(word)
        while first < last and matched[last] <= set[str]().union(*(matched[at] for at in range(first, last))):
            last -= 1
        while first < last and matched[first] <= set[str]().union(*(matched[at] for at in range(first + 1, last + 1))):
            first += 1
        return Span(spans[first][0], spans[last][1])

    def window_span(self, match: Match) -> Span:
        """The whole window of a match."""
        window = self._window(match)
        spans = self._passages(match.source_index)[window : window + WINDOW]
        return Span(spans[0][0], spans[-1][1])

    def around(self, match: Match, most_characters: int) -> Span:
        """A match's window with the passage before and after it if they fit; never less than the window."""
        spans = self._passages(match.source_index)
        first = self._window(match)
        last = min(first + WINDOW, len(spans)) - 1
        start, end = spans[first][0], spans[last][1]
        if first > 0 and end - spans[first - 1][0] <= most_characters:
            start = spans[first - 1][0]
        if last + 1 < len(spans) and spans[last + 1][1] - start <= most_characters:
            end = spans[last + 1][1]
        return Span(start, end)
