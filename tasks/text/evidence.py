"""Find where in the sources a statement stands: the window of sentences that holds most of its words, by weight.

Sources are indexed once per answer. A statement is compared with windows of up to three neighbouring sentences, never
with a source as a whole: in a whole source, any statement finds its words somewhere.
"""

import math
import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from schemas.job import SHOWN_METADATA, SourceContext
from tasks.text.numerals import NUMBER_WORDS, is_among, numbers_in
from tasks.text.passages import passage_spans
from tasks.text.sentences import BREAK, Span, number, sentence_spans, words, words_of_spans

WINDOW = 3
"""Sentences looked at together: a statement often joins a sentence with the one before it that names the subject."""

_CACHED_CHARACTERS = 8_000
"""Longest content whose index is kept for the next job; bounds the memory of the cache."""

STOPWORDS = frozenset(
    """a about after all also am an and any are as at be because been before being both but by can could d did do does
    doing don down during each for from further had has have having he her here hers him his how i if in into is it its
    itself just ll m may me might more most must my no nor not of off on once only or other our out over own re s same
    shall she should so some such t than that the their theirs them then there these they this those through to too
    under until up upon us ve very was we were what when where which while who whom why will with would you your
    der die das den dem des ein eine einer eines einem einen und oder aber ist sind war waren wird werden wurde wurden
    hat haben hatte im in am an auf aus bei mit nach von vom zu zum zur für über unter durch als auch nicht nur noch
    sich es er sie wir ihr ich dass daß wenn wie so man kann muss soll
    le la les un une des du de et ou est sont dans par pour sur avec que qui ne pas ce cette il elle se
    el los las y o es son en por para con que no se su al lo una uno del
    il lo gli e è sono di da con per che non si""".split()
)
"""Function words of English, German, French, Spanish and Italian: they stand everywhere and support nothing."""

_STEM = 5
"""Characters a word is compared by; cuts endings in any language. On six labelled sets, as the only feature: 67.1 %
balanced accuracy; with 7 characters 66.3, with whole words 65.8, with suffixes cut by rules 66.3."""

NEGATION = "\xac"
"""Stands for every word that denies. No word of a text is ever equal to it."""
_DENYING = frozenset(
    """no not never none nobody nothing neither nor without cannot t kein keine keinen keiner keines keinem nicht nie
    niemals ohne sans jamais nunca sin nessun mai""".split()
)
"""``t`` is what is left of ``don't``. French and Italian function words that also do other work are left out."""


class _Stems(dict[str, str]):
    """What a word is compared by, worked out once per word and process.

    A function word gives the empty string, a denying one ``NEGATION``, a number word its digits.
    """

    def __missing__(self, word: str) -> str:
        if len(self) >= _MOST_STEMS:
            self.clear()
        stem = self[word] = _stem(word)
        return stem


_MOST_STEMS = 200_000
"""Words remembered, some 20 MB."""


def _stem(word: str) -> str:
    if word == BREAK:
        return BREAK
    if word in _DENYING:
        return NEGATION
    if word in STOPWORDS:
        return ""
    if word in NUMBER_WORDS:
        return NUMBER_WORDS[word]
    if word[0] <= "9":
        return number(word)
    return sys.intern(_singular(word)[:_STEM])


def _singular(word: str) -> str:
    """The word without the s of a plural, and with i for a final y: too short a word is not cut where its ending begins."""
    if len(word) > _SHORT and word[-1] == "s" and word[-2] not in "siu":
        word = word[:-3] + "i" if word.endswith("ies") else word[:-1]
    return word[:-1] + "i" if len(word) > _SHORT and word[-1] == "y" else word


_SHORT = 3
"""Letters of a word that is left as it is."""


_STEMS = _Stems()


def stems_of(found: Iterable[str]) -> list[str]:
    """What each word is compared by: empty for a function word, ``NEGATION`` for one that denies."""
    return list(map(_STEMS.__getitem__, found))


def content_words(found: Iterable[str]) -> frozenset[str]:
    """Those words that say something, cut to the length they are compared by; numbers whole."""
    return frozenset(map(_STEMS.__getitem__, found)) - _NOTHING


_NOTHING = frozenset({"", NEGATION})


# ---- the index of one source -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceIndex:
    """The pieces of a source in order, and the words they say, as they are compared.

    ``stems`` are the words of all pieces with ``BREAK`` between them; ``numbers`` are (position of the piece, number).
    """

    spans: tuple[Span, ...]
    stems: tuple[str, ...]
    numbers: tuple[tuple[int, str], ...]

    def held(self, vocabulary: frozenset[str]) -> dict[str, list[int]]:
        """An inverted list for those words of a vocabulary that stand in the source: the pieces, in order."""
        held: dict[str, list[int]] = {}
        piece = 0
        for stem in filter((vocabulary | _MARK).__contains__, self.stems):
            if stem == BREAK:
                piece += 1
            elif (pieces := held.get(stem)) is None:
                held[stem] = [piece]
            elif pieces[-1] != piece:
                pieces.append(piece)
        for piece, value in self.numbers:
            if value in vocabulary:
                pieces = held.setdefault(value, [])
                if piece not in pieces:
                    insort(pieces, piece)
        return held


_MARK = frozenset({BREAK})


def index_source(content: str) -> SourceIndex:
    """Index a source by passages; a chunk that comes again (neighbouring questions share chunks) is not read again."""
    return _cached_index(content) if len(content) <= _CACHED_CHARACTERS else _index(content)


def index_sentences(content: str) -> SourceIndex:
    """Index a source by its exact sentences, for what quotes them."""
    return _cached_sentences(content) if len(content) <= _CACHED_CHARACTERS else _index_sentences(content)


def _index(content: str) -> SourceIndex:
    return _read(content, passage_spans(content))


def _index_sentences(content: str) -> SourceIndex:
    return _read(content, tuple(sentence_spans(content)))


def _read(content: str, spans: tuple[Span, ...]) -> SourceIndex:
    found, numbers = words_of_spans(content, spans)
    return SourceIndex(
        spans, tuple(map(_STEMS.__getitem__, found)), tuple([(piece, _STEMS[number]) for piece, number in numbers])
    )


_cached_index = lru_cache(maxsize=512)(_index)
_cached_sentences = lru_cache(maxsize=512)(_index_sentences)


def forget() -> None:
    """Drop every kept index, as if no source had been read: for measurements."""
    _cached_index.cache_clear()
    _cached_sentences.cache_clear()
    _numbers_in.cache_clear()


def metadata_words(metadata: dict[str, Any]) -> list[str]:
    """The words of the metadata a model is shown: a statement may name a source's title, article or date."""
    shown: list[str] = []
    for key in SHOWN_METADATA:
        value = metadata.get(key)
        if value is not None:
            shown.extend(words(str(value)))
    return shown


# ---- searching the sources of one answer -----------------------------------------------------------------------


_NO_WORDS = frozenset[str]()
_numbers_in = lru_cache(maxsize=512)(numbers_in)

_EQUAL = 1e-9
"""Sums of weights nearer than this are the same."""


@dataclass(frozen=True, slots=True)
class Match:
    """The best window of one source for a statement: ``score`` in [0, 1], ``window`` its first passage there."""

    source_index: int
    score: float
    window: int


class SourceSearch:
    """The sources of one answer, searchable for the words of a known vocabulary.

    Args:
        sources: all sources of the job.
        vocabulary: every content word of every statement that will be looked for.
    """

    def __init__(self, sources: Sequence[SourceContext], vocabulary: Collection[str]) -> None:
        self._sources = sources
        self._indexes = [index_source(source.content) for source in sources]
        self._titles = [
            content_words(metadata_words(source.metadata)) if source.metadata else _NO_WORDS for source in sources
        ]
        looked_for = frozenset(vocabulary) | {NEGATION}
        self._held = [index.held(looked_for) for index in self._indexes]
        self.weights = self._weigh(vocabulary)

    def _weigh(self, vocabulary: Collection[str]) -> dict[str, float]:
        """How much each word tells: its smoothed inverse frequency over the passages of all sources, at least 2.

        The constant keeps one rare word from outweighing the rest of a statement when there are few passages.
        """
        frequency = dict.fromkeys(vocabulary, 1)
        for held in self._held:
            for word, passages in held.items():
                if word in frequency:
                    frequency[word] += len(passages)
        total = sum(len(index.spans) for index in self._indexes) + 1
        return {word: 2.0 + math.log(total / count) for word, count in frequency.items()}

    def weight(self, statement: Iterable[str]) -> float:
        """The weight of words of the vocabulary, all together; the same in whatever order they come."""
        return math.fsum([self.weights[word] for word in statement])

    def content(self, source_index: int) -> str:
        """The text of a source."""
        return self._sources[source_index].content

    # ---- words and numbers ----

    def holds(self, word: str, scope: Collection[int] | None = None) -> bool:
        """Whether a word of the vocabulary stands in any source of a scope (None: all), or in its metadata."""
        return any(word in self._held[source] or word in self._titles[source] for source in self._within(scope))

    def holds_number(self, values: Collection[str], scope: Collection[int] | None = None) -> bool:
        """Whether a number, by any of its readings, stands in a source of a scope (None: all) or its metadata.

        In the same digits, in words, with a scale, in a date, or as what it is rounded from.
        """
        if any(self.holds(value, scope) for value in values):
            return True
        # Rare, so not part of the index: only a number that nobody wrote in the same digits comes here.
        return any(
            is_among(values, _numbers_in(self._sources[source].content), self._sources[source].content)
            for source in self._within(scope)
        )

    def denies(self, match: Match) -> bool:
        """Whether a match's window holds a word that denies."""
        return bool(self._in_window([NEGATION], match))

    def _within(self, scope: Collection[int] | None) -> Iterable[int]:
        return range(len(self._sources)) if scope is None else sorted(scope)

    # ---- windows ----

    def best_of_all(self, statement: frozenset[str], scope: Collection[int] | None = None) -> Match | None:
        """The best window of a scope's sources (None: all); the earliest source among equals.

        A source is looked at only if all its words together could beat the best window so far.
        """
        best: Match | None = None
        bounds = [(self._bound(statement, source), source) for source in self._within(scope)]
        for bound, source in sorted(bounds, key=lambda found: (-found[0], found[1])):
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
        held = self._held[source].keys() & statement
        return self.weight(held | (self._titles[source] & statement)) / self.weight(statement) if statement else 0.0

    def best(self, statement: frozenset[str], source_index: int) -> Match | None:
        """The best window of one source, the earliest among equals; None if it holds none of the statement's words.

        Words in the source's metadata count for each of its windows.
        """
        held = self._counted(statement, source_index)
        if not held:
            return None
        most = max(held.values()) - _EQUAL
        window = min([start for start, weight in held.items() if weight >= most])
        match = Match(source_index, held[window], window)
        titled = self._titles[source_index] & statement
        score = held[window] + (self.weight(titled - self._in_window(titled, match)) if titled else 0.0)
        return Match(source_index, min(1.0, score / self.weight(statement)), window)

    def _counted(self, statement: frozenset[str], source_index: int) -> dict[int, float]:
        """The weight of the statement's words in each window that holds any, by the window's first passage."""
        held_by = self._held[source_index]
        held: dict[int, float] = {}
        get = held.get
        for word in sorted(held_by.keys() & statement):
            weight = self.weights[word]
            begun = -1
            for passage in held_by[word]:
                # Windows that begin at or before the last one counted hold the word already.
                for start in range(max(begun + 1, passage - WINDOW + 1), passage + 1):
                    held[start] = get(start, 0.0) + weight
                begun = passage
        return held

    def several(self, statement: frozenset[str], source_index: int, most: int) -> list[Match]:
        """The best windows of one source that don't overlap, best first; words in its metadata count for none."""
        total = self.weight(statement)
        found: list[Match] = []
        counted = self._counted(statement, source_index)
        for start, held in sorted(counted.items(), key=lambda one: (-round(one[1], 6), one[0])):
            if len(found) == most:
                break
            if all(abs(start - other.window) >= WINDOW for other in found):
                found.append(Match(source_index, min(1.0, held / total), start))
        return found

    def _in_window(self, statement: Iterable[str], match: Match) -> set[str]:
        held_by = self._held[match.source_index]
        held = set()
        for word in statement:
            passages = held_by.get(word)
            if passages is not None:
                following = bisect_left(passages, match.window)
                if following < len(passages) and passages[following] < match.window + WINDOW:
                    held.add(word)
        return held

    def held(self, match: Match, statement: frozenset[str]) -> set[str]:
        """Those words of a statement that stand in a match's window or in its source's metadata."""
        return self._in_window(statement, match) | (self._titles[match.source_index] & statement)

    # ---- spans ----

    def span(self, match: Match, statement: frozenset[str]) -> Span:
        """The part of a match's window that matters: passages at its ends that add no word are left out."""
        held_by = self._held[match.source_index]
        spans = self._indexes[match.source_index].spans
        first, last = match.window, min(match.window + WINDOW, len(spans)) - 1
        held: dict[int, set[str]] = {passage: set() for passage in range(first, last + 1)}
        for word in held_by.keys() & statement:
            passages = held_by[word]
            for passage in passages[bisect_left(passages, first) : bisect_right(passages, last)]:
                held[passage].add(word)
        while first < last and held[last] <= set[str]().union(*(held[at] for at in range(first, last))):
            last -= 1
        while first < last and held[first] <= set[str]().union(*(held[at] for at in range(first + 1, last + 1))):
            first += 1
        return Span(spans[first].start, spans[last].end)

    def window_span(self, match: Match) -> Span:
        """The whole window of a match."""
        spans = self._indexes[match.source_index].spans[match.window : match.window + WINDOW]
        return Span(spans[0].start, spans[-1].end)

    def around(self, match: Match, most_characters: int) -> Span:
        """A match's window with the passage before and after it, where those fit in; never less than the window."""
        spans = self._indexes[match.source_index].spans
        first, last = match.window, min(match.window + WINDOW, len(spans)) - 1
        start, end = spans[first].start, spans[last].end
        if first > 0 and end - spans[first - 1].start <= most_characters:
            start = spans[first - 1].start
        if last + 1 < len(spans) and spans[last + 1].end - start <= most_characters:
            end = spans[last + 1].end
        return Span(start, end)
