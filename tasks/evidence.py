"""Find where in the sources a statement stands: the window of sentences that holds most of its words, by weight.

Sources are indexed once per answer. A statement is compared with windows of up to three neighbouring sentences, never
with a source as a whole: in a whole source, any statement finds its words somewhere.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from schemas.job import SHOWN_METADATA, SourceContext
from tasks.sentences import Span, sentence_spans, words

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

_NUMBER_WORDS = {
    word: str(value)
    for value, group in enumerate(
        "zero null|one eins ein|two zwei|three drei|four vier|five fünf|six sechs|seven sieben|eight acht|nine neun"
        "|ten zehn|eleven elf|twelve zwölf".split("|")
    )
    for word in group.split()
}
_SCALES = {
    "thousand": 3,
    "tausend": 3,
    "million": 6,
    "millions": 6,
    "millionen": 6,
    "mio": 6,
    "billion": 9,
    "milliarden": 9,
}


_STEM = 7
"""Characters a word is compared by; cuts endings in any language. Measured on four labelled sets: +0.6 points."""


def content_words(found: Iterable[str]) -> frozenset[str]:
    """Those words that say something, cut to the length they are compared by; numbers whole."""
    return frozenset(word[:_STEM] if word[0] > "9" else word for word in found if word not in STOPWORDS)


def numbers(found: Sequence[str]) -> set[str]:
    """The numbers among words, written out scales and small number words included."""
    values: set[str] = set()
    for position, word in enumerate(found):
        if word[0] <= "9":
            values.add(word)
            following = found[position + 1] if position + 1 < len(found) else ""
            if (scale := _SCALES.get(following)) and word.replace(".", "", 1).isdigit():
                values.add(f"{float(word) * 10**scale:.0f}")
        elif word in _NUMBER_WORDS:
            values.add(_NUMBER_WORDS[word])
    return values


# ---- the index of one source -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourceIndex:
    """The sentences of a source with their content words, and all numbers in it."""

    spans: tuple[Span, ...]
    words: tuple[frozenset[str], ...]
    numbers: frozenset[str]


def index_source(content: str) -> SourceIndex:
    """Index a source; a chunk that comes again (neighbouring questions share chunks) is not indexed again."""
    return _cached_index(content) if len(content) <= _CACHED_CHARACTERS else _index(content)


def _index(content: str) -> SourceIndex:
    spans = tuple(sentence_spans(content))
    found = [words(content[start:end]) for start, end in spans]
    values: set[str] = set()
    for sentence in found:
        values |= numbers(sentence)
    return SourceIndex(spans, tuple(content_words(sentence) for sentence in found), frozenset(values))


_cached_index = lru_cache(maxsize=512)(_index)


def metadata_words(metadata: dict[str, Any]) -> list[str]:
    """The words of the metadata a model is shown: a statement may name a source's title, article or date."""
    shown: list[str] = []
    for key in SHOWN_METADATA:
        value = metadata.get(key)
        if value is not None:
            shown.extend(words(str(value)))
    return shown


# ---- searching the sources of one answer -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Match:
    """The best window of one source for a statement: ``score`` in [0, 1], sentences ``[first, last]`` of the search."""

    source_index: int
    score: float
    window: int


class SourceSearch:
    """The sources of one answer, searchable for the words of a known vocabulary."""

    def __init__(self, sources: Sequence[SourceContext], vocabulary: Collection[str]) -> None:
        vocabulary = frozenset(vocabulary)
        self._spans: list[Span] = []
        self._words: list[frozenset[str]] = []
        self._source_of: list[int] = []
        self._first: list[int] = []
        self._titles: list[frozenset[str]] = []
        self.numbers: set[str] = set()
        self._sentences_with: dict[str, list[int]] = {}
        for number, source in enumerate(sources):
            self._add(number, source, vocabulary)
        self._windows: dict[str, tuple[int, ...]] = {}

    def _add(self, number: int, source: SourceContext, vocabulary: frozenset[str]) -> None:
        index = index_source(source.content)
        about = metadata_words(source.metadata) if source.metadata else []
        self.numbers |= index.numbers
        self.numbers |= numbers(about)
        self._titles.append(content_words(about) & vocabulary)
        first = len(self._spans)
        self._first.append(first)
        self._spans.extend(index.spans)
        self._source_of.extend([number] * len(index.spans))
        for position, sentence in enumerate(index.words, start=first):
            known = sentence & vocabulary
            self._words.append(known)
            for word in known:
                self._sentences_with.setdefault(word, []).append(position)

    def weight(self, word: str) -> float:
        """How much a word tells: its smoothed inverse frequency over the sentences of all sources, at least 2.

        The constant keeps one rare word from outweighing the rest of a statement when there are few sentences.
        """
        frequency = len(self._sentences_with.get(word, ()))
        return 2.0 + math.log((len(self._spans) + 1) / (frequency + 1))

    def _windows_with(self, word: str) -> tuple[int, ...]:
        """First sentences of the windows that hold a word, of sources whose metadata does not hold it anyway."""
        known = self._windows.get(word)
        if known is None:
            starts: dict[int, None] = {}
            for sentence in self._sentences_with.get(word, ()):
                source = self._source_of[sentence]
                if word not in self._titles[source]:
                    for start in range(max(self._first[source], sentence - WINDOW + 1), sentence + 1):
                        starts[start] = None
            known = self._windows[word] = tuple(starts)
        return known

    def best(self, statement: frozenset[str]) -> dict[int, Match]:
        """The best window of each source that holds any of the statement's words; the earliest among equals."""
        weights = {word: self.weight(word) for word in statement}
        total = sum(weights.values())
        if not total:
            return {}
        held: dict[int, float] = {}
        for word, weight in weights.items():
            for start in self._windows_with(word):
                held[start] = held.get(start, 0.0) + weight
        best: dict[int, tuple[float, int]] = {}
        for start, weight in held.items():
            source = self._source_of[start]
            known = best.get(source)
            if known is None or weight > known[0] + 1e-9 or (weight > known[0] - 1e-9 and start < known[1]):
                best[source] = (weight, start)
        return {
            source: Match(source, min(1.0, (weight + self._title_weight(source, weights)) / total), start)
            for source, (weight, start) in best.items()
        }

    def _title_weight(self, source: int, weights: dict[str, float]) -> float:
        return sum(weights[word] for word in self._titles[source] if word in weights)

    def window_words(self, match: Match) -> frozenset[str]:
        """The known words of a match's window and of its source's metadata."""
        held = self._titles[match.source_index]
        return held.union(*(self._words[sentence] for sentence in self._window(match)))

    def _window(self, match: Match) -> range:
        end = match.window
        while end < len(self._spans) and end < match.window + WINDOW and self._source_of[end] == match.source_index:
            end += 1
        return range(match.window, end)

    def span(self, match: Match, statement: frozenset[str]) -> Span:
        """The part of a match's window that matters: sentences at its ends that add no word are left out."""
        sentences = list(self._window(match))
        while len(sentences) > 1 and not self._adds(sentences[-1], sentences[:-1], statement):
            sentences.pop()
        while len(sentences) > 1 and not self._adds(sentences[0], sentences[1:], statement):
            sentences.pop(0)
        return Span(self._spans[sentences[0]].start, self._spans[sentences[-1]].end)

    def _adds(self, sentence: int, others: Sequence[int], statement: frozenset[str]) -> bool:
        rest = frozenset[str]().union(*(self._words[other] for other in others))
        return bool((self._words[sentence] & statement) - rest)
