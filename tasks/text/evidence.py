"""Finds the evidence for a statement in bounded time: the window of a source with the greatest weight of its words.

A statement is compared with windows of up to three neighbouring passages, never with a whole source, because a whole
source contains the words of almost any statement.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from heapq import nsmallest
from operator import itemgetter
from typing import Any, NamedTuple

from schemas.job import SourceContext
from tasks.text.sentences import LONGEST, Passage, Span, is_plain_latin, passages_around
from tasks.text.source_index import (
    Postings,
    SourceIndex,
    check_memory,
    index_in_time,
    metadata_stems,
    passages_of,
)
from tasks.text.time_limit import ensure_time

WINDOW = 3
"""Passages per window: a statement often combines a sentence with the previous sentence, which names the subject."""

_START = itemgetter(0)
_END_OF = itemgetter(1)


_SHORT = 3
"""Letters of a stem that is too short to be looked for without its ending."""
NEAR_BEST = 0.5
"""Share of the weight of the best passage for a statement below which another one is no place of it."""
_EQUAL = 1e-9
"""Largest difference of equal sums of weights."""


class Match(NamedTuple):
    """The best window of one source for a statement: ``score`` in [0, 1], ``window`` its first passage there."""

    source_index: int
    score: float
    window: int


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


def _has(text: str, beginnings: Iterable[str], spare: int) -> bool:
    """Tells whether a text has all beginnings of words but a few."""
    for beginning in beginnings:
        if beginning not in text:
            if not spare:
                return False
            spare -= 1
    return True


class SourceWords:
    """The words of the sources of one answer; a source is read when a statement needs it.

    Args:
        sources: all sources of the job.
        vocabulary: every content word of every statement to search for.
    """

    def __init__(self, sources: Sequence[SourceContext], vocabulary: Collection[str]) -> None:
        self.sources = sources
        self.vocabulary = frozenset(vocabulary)
        self._postings: list[Postings | None] = [None] * len(sources)
        self._searches: dict[frozenset[int] | None, SourceSearch] = {}
        self._indexes: list[SourceIndex | None] = [None] * len(sources)

    @cached_property
    def lower(self) -> list[str]:
        """Each source in lower case."""
        return [source.content.lower() for source in self.sources]

    @cached_property
    def small(self) -> list[str | None]:
        """Each source in lower case; None for one with letters that have several forms."""
        return [content if is_plain_latin(content) else None for content in self.lower]

    def search(self, scope: Collection[int] | None = None) -> "SourceSearch":
        """The search within a scope of the sources, the same one each time; None: all."""
        key = None if scope is None else frozenset(scope)
        if (search := self._searches.get(key)) is None:
            search = self._searches[key] = SourceSearch(self, key)
        return search

    def release(self) -> None:
        """Forgets the searches, which refer back to these words: else all stays until Python looks for cycles."""
        self._searches.clear()

    def read(self, source: int) -> Postings:
        """The passages of each word of the vocabulary in a source, which is read once."""
        if (postings := self._postings[source]) is None:
            postings = self._postings[source] = self.index(source).postings(self.vocabulary)
        return postings

    def index(self, source: int) -> SourceIndex:
        """The index of a source, which reads its passages."""
        if (index := self._indexes[source]) is None:
            index = self._indexes[source] = index_in_time(self.sources[source].content)
        return index

    def passages(self, source: int) -> tuple[Passage, ...]:
        """The passages of a source."""
        index = self._indexes[source]
        return passages_of(self.sources[source].content) if index is None else index.spans

    @cached_property
    def titles(self) -> list[frozenset[str]]:
        """The content words of the metadata of each source."""
        return [metadata_stems(source.metadata) for source in self.sources]


def begin_search(sources: Sequence[SourceContext], vocabulary: Collection[str]) -> "SourceSearch":
    """A new search over all sources of a job, for every content word of every statement to search for."""
    return SourceWords(sources, vocabulary).search()


def search_sources(sources: Sequence[SourceContext], vocabulary: Collection[str]) -> "SourceSearch":
    """The search of the same check over the same sources, if it has all words of the vocabulary; else a new one."""
    memory = check_memory()
    search = memory.search if memory is not None else None
    if isinstance(search, SourceSearch) and search.covers(sources, vocabulary):
        return search
    search = begin_search(sources, vocabulary)
    if memory is not None:
        memory.search = search
        memory.at_end.append(search.release)
    return search


class SourceSearch:
    """A search over all sources of one answer, or within a scope of them, for the words of a fixed vocabulary.

    Each scope weighs words by itself, so that a claim which the sources that it cites support needs no other one. An
    answer that quotes its sources reads none.

    Args:
        words: of all sources.
        scope: positions of the sources to search; None: all.
    """

    def __init__(self, words: SourceWords, scope: frozenset[int] | None = None) -> None:
        self._words = words
        self.scope = scope
        """Positions of its sources; None: all."""
        self.sources: Sequence[int] = range(len(words.sources)) if scope is None else sorted(scope)
        """Positions of its sources, in order."""
        self.weights: dict[str, float] = {}
        """Weight of each word that was looked for: its smoothed inverse frequency over the passages of its sources, at least 2.

        With few passages the constant keeps one rare word from outweighing the rest of a statement.
        """

    def within(self, scope: Collection[int] | None) -> "SourceSearch":
        """The search within a scope of all sources; None: all."""
        return self._words.search(scope)

    def likely(self, statement: Collection[str], share: float, but: Collection[int]) -> frozenset[int]:
        """Its other sources that may have a share of a statement's words, or all but one, in one place: by their beginnings, without reading any."""
        beginnings = [
            (stem[:-1], stem) for stem in statement if len(stem) > _SHORT and stem.isascii() and stem.isalpha()
        ]
        spare = max(1, math.floor((1 - share) * len(beginnings) + _EQUAL))
        # Each place has one of any words that are more than may be missing; long ones stand in few places.
        beginnings.sort(key=lambda beginning: (-len(beginning[0]), beginning))
        return frozenset(
            source for source in self.sources if source not in but and self._may_hold(source, beginnings, spare)
        )

    def _may_hold(self, source: int, beginnings: Sequence[tuple[str, str]], spare: int) -> bool:
        """Tells whether all beginnings of words but a few may stand in one place of a source."""
        small, title = self._words.small[source], self._words.titles[source]
        if small is None:
            return True
        untitled = [beginning for beginning, stem in beginnings if stem not in title]
        if len(untitled) <= spare or not _has(small, untitled, spare):
            return len(untitled) <= spare
        for beginning in untitled[: spare + 1]:
            place = small.find(beginning)
            while place >= 0:
                ensure_time()
                around = small[max(0, place - LONGEST) : place + 2 * LONGEST]
                # A row of a table is read with its heads.
                if "|" in around or _has(around, untitled, spare):
                    return True
                place = small.find(beginning, place + LONGEST)
        return False

    def covers(self, sources: Sequence[SourceContext], vocabulary: Collection[str]) -> bool:
        """Tells whether it is a search over these sources for all words of a vocabulary."""
        return sources is self._words.sources and self._words.vocabulary.issuperset(vocabulary)

    def release(self) -> None:
        """Lets go of what refers back to this search, once a check has ended; it still finds all."""
        self._words.release()

    def look_for(self, stems: AbstractSet[str]) -> None:
        """Looks for those words of the vocabulary that were not looked for before."""
        weights = self.weights
        if weights.keys() >= stems:
            return
        new = self._words.vocabulary.intersection(stems).difference(weights)
        if not new:
            return
        counts = dict.fromkeys(new, 1)
        total = 1
        for source in self.sources:
            ensure_time()
            postings = self._words.read(source)
            for word in postings.keys() & new:
                counts[word] += len(postings[word])
            total += len(self._words.passages(source))
        for word, count in counts.items():
            weights[word] = 2.0 + math.log(total / count)

    def weight(self, statement: Iterable[str]) -> float:
        """The total weight of words of the vocabulary that were looked for, independent of their order."""
        weights = self.weights
        return math.fsum([weights[word] for word in statement])

    def content(self, source_index: int) -> str:
        """The text of a source."""
        return self._words.sources[source_index].content

    def passages_with(self, source_index: int, start: int, end: int) -> Span | None:
        """The passages of a source from ``start`` to ``end``; None if they are more than a window."""
        ensure_time()
        spans = passages_around(self.content(source_index), start, end) or self._words.passages(source_index)
        first = _passage_at(spans, start)
        last = min(bisect_left(spans, end, lo=first, key=_END_OF), len(spans) - 1)
        return None if last - first >= WINDOW else Span(spans[first][0], spans[last][1])

    def metadata(self, source_index: int) -> Mapping[str, Any]:
        """The metadata of a source."""
        return self._words.sources[source_index].metadata

    # ---- words ----

    def holds(self, word: str) -> bool:
        """Tells whether any source or its metadata contains a word of the vocabulary."""
        self.look_for({word})
        titles = self._words.titles
        return any(word in self._words.read(source) or word in titles[source] for source in self.sources)

    def has_letters(self, letters: str) -> bool:
        """Tells whether any source has some letters in a row, in either case."""
        return any(letters in self._words.lower[source] for source in self.sources)

    # ---- windows ----

    def verbatim(self, text: str) -> Span | None:
        """The passages of the earliest source that has a text's characters as whole words; None also for more than a window."""
        for source in self.sources:
            if (start := _find_words(text, self.content(source))) is not None:
                return self.passages_with(source, start, start + len(text))
        return None

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
        titled = self._words.titles[source_index] & statement
        score = weights[window] + (self.weight(titled - self._in_window(titled, match)) if titled else 0.0)
        return Match(source_index, min(1.0, score / self.weight(statement)), window)

    def _window_weights(self, statement: frozenset[str], source_index: int) -> dict[int, float]:
        """The weight of the statement's words in each window with any of them, by the window's first passage."""
        postings, of_word = self._words.read(source_index), self.weights
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
        return weights

    def places(self, statement: frozenset[str], most: int) -> list[tuple[int, Span]]:
        """The passages with the greatest weight of a statement's words, best first, and none with much less than the best one."""
        self.look_for(statement)
        weights: list[tuple[float, int, int]] = []
        for source in self.sources:
            postings = self._words.read(source)
            by_passage: defaultdict[int, float] = defaultdict(float)
            for word in sorted(postings.keys() & statement):
                for passage in postings[word]:
                    by_passage[passage] += self.weights[word]
            titled = self.weight(sorted(self._words.titles[source] & statement))
            weights += [(-weight - titled, source, passage) for passage, weight in by_passage.items()]
        best = nsmallest(most, weights)
        return [
            (source, Span(*self._words.passages(source)[passage]))
            for weight, source, passage in best
            if weight <= NEAR_BEST * best[0][0]
        ]

    def several(self, statement: frozenset[str], source_index: int, most: int) -> list[Match]:
        """The best windows of one source without overlap, best first; words in its metadata do not count."""
        self.look_for(statement)
        counted = self._window_weights(statement, source_index)
        if not counted:
            return []
        total = self.weight(statement)
        matches: list[Match] = []
        for start, weight in sorted(counted.items(), key=lambda window: (-round(window[1], 6), window[0])):
            if len(matches) == most:
                break
            if all(abs(start - other.window) >= WINDOW for other in matches):
                matches.append(Match(source_index, min(1.0, weight / total), start))
        return matches

    def _in_window(self, statement: Iterable[str], match: Match) -> set[str]:
        postings = self._words.read(match.source_index)
        window = match.window
        matched = set()
        for word in statement:
            passages = postings.get(word)
            if passages is not None:
                following = bisect_left(passages, window)
                if following < len(passages) and passages[following] < window + WINDOW:
                    matched.add(word)
        return matched

    def matched_words(self, match: Match, statement: frozenset[str]) -> set[str]:
        """The words of a statement that are in a match's window or in its source's metadata."""
        self.look_for(statement)
        return self._in_window(statement, match) | (self._words.titles[match.source_index] & statement)

    # ---- spans ----

    def span(self, match: Match, statement: frozenset[str]) -> Span:
        """The part of a match's window with the statement's words, without passages at its ends that add no word."""
        postings = self._words.read(match.source_index)
        spans = self._words.passages(match.source_index)
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

    def around(self, match: Match, most_characters: int) -> Span:
        """A match's window with the passage before and after it if they fit; never less than the window."""
        spans = self._words.passages(match.source_index)
        first = match.window
        last = min(first + WINDOW, len(spans)) - 1
        start, end = spans[first][0], spans[last][1]
        if first > 0 and end - spans[first - 1][0] <= most_characters:
            start = spans[first - 1][0]
        if last + 1 < len(spans) and spans[last + 1][1] - start <= most_characters:
            end = spans[last + 1][1]
        return Span(start, end)
