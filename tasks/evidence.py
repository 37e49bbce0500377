"""Find where in the sources a statement stands: the window of sentences that holds most of its words, by weight.

Sources are indexed once per answer. A statement is compared with windows of up to three neighbouring sentences, never
with a source as a whole: in a whole source, any statement finds its words somewhere.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
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
    telling = set(found) - STOPWORDS
    return frozenset([word if len(word) <= _STEM or word[0] <= "9" else word[:_STEM] for word in telling])


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
    """The sentences of a source, and for each content word the sentences that hold it, in order."""

    spans: tuple[Span, ...]
    sentences_with: Mapping[str, Sequence[int]]


def index_source(content: str) -> SourceIndex:
    """Index a source; a chunk that comes again (neighbouring questions share chunks) is not indexed again."""
    return _cached_index(content) if len(content) <= _CACHED_CHARACTERS else _index(content)


def _index(content: str) -> SourceIndex:
    spans = tuple(sentence_spans(content))
    sentences_with: dict[str, list[int]] = defaultdict(list)
    for position, (start, end) in enumerate(spans):
        for word in content_words(words(content[start:end])):
            sentences_with[word].append(position)
    return SourceIndex(spans, dict(sentences_with))


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


_EQUAL = 1e-9
"""Sums of weights nearer than this are the same."""


@dataclass(frozen=True, slots=True)
class Match:
    """The best window of one source for a statement: ``score`` in [0, 1], ``window`` its first sentence."""

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
        self._spans: list[Span] = []
        self._source_of: list[int] = []
        self._first: list[int] = []
        self._titles: list[frozenset[str]] = []
        self._sentences_with: dict[str, list[int]] = {word: [] for word in vocabulary}
        self._windows: dict[str, tuple[int, ...]] = {}
        self._numbers: set[str] | None = None
        for number, source in enumerate(sources):
            self._add(number, source)

    def _add(self, number: int, source: SourceContext) -> None:
        index = index_source(source.content)
        about = content_words(metadata_words(source.metadata)) if source.metadata else frozenset[str]()
        self._titles.append(about & self._sentences_with.keys())
        first = len(self._spans)
        self._first.append(first)
        self._spans.extend(index.spans)
        self._source_of.extend([number] * len(index.spans))
        for word, sentences in self._sentences_with.items():
            if (held := index.sentences_with.get(word)) is not None:
                sentences.extend([first + position for position in held])

    def holds_number(self, value: str) -> bool:
        """Whether a number of the vocabulary stands in any source or its metadata, in digits, words or with a scale."""
        if self._sentences_with.get(value) or any(value in title for title in self._titles):
            return True
        if self._numbers is None:
            # Rare, so not part of the index: only a number that nobody wrote in the same digits comes here.
            self._numbers = set[str]().union(
                *(numbers([*words(source.content), *metadata_words(source.metadata)]) for source in self._sources)
            )
        return value in self._numbers

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
        weights = {word: self.weight(word) for word in sorted(statement)}
        total = sum(weights.values())
        if not total:
            return {}
        held: dict[int, float] = {}
        for word, weight in weights.items():
            for start in self._windows_with(word):
                held[start] = held.get(start, 0.0) + weight
        best: dict[int, tuple[float, int]] = {}
        for start in sorted(held):
            source, weight = self._source_of[start], held[start]
            if source not in best or weight > best[source][0] + _EQUAL:
                best[source] = (weight, start)
        return {
            source: Match(source, min(1.0, (weight + self._title_weight(source, weights)) / total), start)
            for source, (weight, start) in best.items()
        }

    def _title_weight(self, source: int, weights: Mapping[str, float]) -> float:
        return sum(weights[word] for word in self._titles[source] if word in weights)

    def held(self, match: Match, statement: frozenset[str]) -> set[str]:
        """Those words of a statement that stand in a match's window or in its source's metadata."""
        return set(self._titles[match.source_index] & statement).union(
            *self._held_by_sentence(match, statement).values()
        )

    def span(self, match: Match, statement: frozenset[str]) -> Span:
        """The part of a match's window that matters: sentences at its ends that add no word are left out."""
        held = self._held_by_sentence(match, statement)
        sentences = list(held)
        while len(sentences) > 1 and held[sentences[-1]] <= set[str]().union(*(held[s] for s in sentences[:-1])):
            sentences.pop()
        while len(sentences) > 1 and held[sentences[0]] <= set[str]().union(*(held[s] for s in sentences[1:])):
            sentences.pop(0)
        return Span(self._spans[sentences[0]].start, self._spans[sentences[-1]].end)

    def _held_by_sentence(self, match: Match, statement: frozenset[str]) -> dict[int, set[str]]:
        """The sentences of a match's window, in order, each with the statement's words in it."""
        last = self._first[match.source_index + 1] if match.source_index + 1 < len(self._first) else len(self._spans)
        held: dict[int, set[str]] = {s: set() for s in range(match.window, min(match.window + WINDOW, last))}
        for word in statement:
            for sentence in self._sentences_with.get(word, ()):
                if sentence in held:
                    held[sentence].add(word)
        return held
