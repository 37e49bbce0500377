"""Find where in the sources a statement stands: the window of sentences that holds most of its words, by weight.

Sources are indexed once per answer. A statement is compared with windows of up to three neighbouring sentences, never
with a source as a whole: in a whole source, any statement finds its words somewhere.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from schemas.job import SHOWN_METADATA, SourceContext
from tasks.text.sentences import BREAK, Span, number, sentence_spans, words, words_by_sentence

WINDOW = 3
"""Sentences looked at together: a statement often joins a sentence with the one before it that names the subject."""

_CACHED_CHARACTERS = 8_000
"""Longest content whose index is kept for the next job; bounds the memory of the cache."""

_MOST_SENTENCES = 1_000
"""Sentences noted for one word of one source: a word that stands in more tells nothing, and would cost most."""

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
    sentences_with: dict[str, list[int]] = {}
    position = 0
    for word in words_by_sentence(content, spans):
        if word in STOPWORDS:
            continue
        if word == BREAK:
            position += 1
            continue
        key = word[:_STEM] if word[0] > "9" else number(word)
        held = sentences_with.get(key)
        if held is None:
            sentences_with[key] = [position]
        elif held[-1] != position and len(held) < _MOST_SENTENCES:
            held.append(position)
    return SourceIndex(spans, sentences_with)


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
    """The best window of one source for a statement: ``score`` in [0, 1], ``window`` its first sentence there."""

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
            content_words(metadata_words(source.metadata)) if source.metadata else frozenset[str]()
            for source in sources
        ]
        self._weights = self._weigh(vocabulary)
        self._numbers: set[str] | None = None

    def _weigh(self, vocabulary: Collection[str]) -> dict[str, float]:
        """How much each word tells: its smoothed inverse frequency over the sentences of all sources, at least 2.

        The constant keeps one rare word from outweighing the rest of a statement when there are few sentences.
        """
        frequency = dict.fromkeys(vocabulary, 0)
        for index in self._indexes:
            held_by = index.sentences_with
            for word in vocabulary:
                if (sentences := held_by.get(word)) is not None:
                    frequency[word] += len(sentences)
        total = sum(len(index.spans) for index in self._indexes) + 1
        return {word: 2.0 + math.log(total / (count + 1)) for word, count in frequency.items()}

    def weight(self, statement: Iterable[str]) -> float:
        """The weight of words of the vocabulary, all together."""
        return sum(self._weights[word] for word in sorted(statement))

    def holds_number(self, value: str) -> bool:
        """Whether a number stands in any source or its metadata, in digits, in words or with a scale."""
        if any(value in index.sentences_with for index in self._indexes) or any(value in t for t in self._titles):
            return True
        if self._numbers is None:
            # Rare, so not part of the index: only a number that nobody wrote in the same digits comes here.
            self._numbers = set[str]().union(
                *(numbers([*words(source.content), *metadata_words(source.metadata)]) for source in self._sources)
            )
        return value in self._numbers

    def best_of_all(self, statement: frozenset[str]) -> Match | None:
        """The best window of all sources; the earliest source among equals."""
        best: Match | None = None
        for source_index in range(len(self._indexes)):
            match = self.best(statement, source_index)
            if match is not None and (best is None or match.score > best.score + _EQUAL):
                best = match
        return best

    def best(self, statement: frozenset[str], source_index: int) -> Match | None:
        """The best window of one source, the earliest among equals; None if it holds none of the statement's words.

        Words in the source's metadata count for each of its windows.
        """
        held_by = self._indexes[source_index].sentences_with
        titles = self._titles[source_index]
        held: dict[int, float] = {}
        total = always = 0.0
        for word in sorted(statement):
            weight = self._weights[word]
            total += weight
            if word in titles:
                always += weight
                continue
            begun = -1
            for sentence in held_by.get(word, ()):
                # Windows that begin at or before the last one counted hold the word already.
                for start in range(max(begun + 1, sentence - WINDOW + 1), sentence + 1):
                    held[start] = held.get(start, 0.0) + weight
                begun = sentence
        if not held:
            return None
        most = max(held.values()) - _EQUAL
        window = min(start for start, weight in held.items() if weight >= most)
        return Match(source_index, min(1.0, (held[window] + always) / total), window)

    def held(self, match: Match, statement: frozenset[str]) -> set[str]:
        """Those words of a statement that stand in a match's window or in its source's metadata."""
        by_sentence = self._held_by_sentence(match, statement)
        return set(self._titles[match.source_index] & statement).union(*by_sentence.values())

    def span(self, match: Match, statement: frozenset[str]) -> Span:
        """The part of a match's window that matters: sentences at its ends that add no word are left out."""
        held = self._held_by_sentence(match, statement)
        sentences = list(held)
        while len(sentences) > 1 and held[sentences[-1]] <= set[str]().union(*(held[s] for s in sentences[:-1])):
            sentences.pop()
        while len(sentences) > 1 and held[sentences[0]] <= set[str]().union(*(held[s] for s in sentences[1:])):
            sentences.pop(0)
        spans = self._indexes[match.source_index].spans
        return Span(spans[sentences[0]].start, spans[sentences[-1]].end)

    def _held_by_sentence(self, match: Match, statement: frozenset[str]) -> dict[int, set[str]]:
        """The sentences of a match's window, in order, each with the statement's words in it."""
        index = self._indexes[match.source_index]
        last = min(match.window + WINDOW, len(index.spans))
        held: dict[int, set[str]] = {sentence: set() for sentence in range(match.window, last)}
        for word in statement:
            for sentence in index.sentences_with.get(word, ()):
                if sentence in held:
                    held[sentence].add(word)
        return held
