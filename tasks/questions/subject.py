"""Measures how well a passage fits the subject of a question, by the words that they share.

The words of a question weigh by how much they name a subject: a word of any topic (``generic`` in the language tables)
less than others. A passage is read with its neighbours, its source and the source's metadata, because a sentence rarely
repeats its subject.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from schemas.job import JobRequest
from tasks.text.language import language_tables, word_set
from tasks.text.sentences import plain_arabic, words
from tasks.text.source_index import SourceIndex, metadata_stems, text_stems
from tasks.text.wording import NEGATION, content_words, stems_of

_SPECIFIC_WEIGHT = 2.0
_GENERIC_WEIGHT = 1.0
_BACKGROUND = 0.5
"""Share of its weight that a word of the previous question has in the next one."""

_METADATA = 0.7
_NEIGHBOUR = 0.5
"""Credit for a word that is only in the metadata of the source, or only in a neighbouring sentence."""


# ---- the question ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """A question in the form for comparisons.

    Attributes:
        stems: its content words, in order.
        weights: the weight of each.
        names: the bits of the stems that are names.
    """

    stems: tuple[str, ...]
    weights: tuple[float, ...]
    names: int


def read_question(request: JobRequest) -> Question | None:
    """Reads the question of a job, and the one before it in the conversation, which may name its subject; None without words of content.

    What the metadata of all its sources have, such as the name of the product in every title, names no subject.
    """
    text, history = request.query, request.conversation_history
    background = {stem: weight * _BACKGROUND for stem, weight in _weigh(history[-1][0] if history else "").items()}
    weights = background | _weigh(text) or _weigh_words(text, words(text))
    if len(request.context) > 1:
        shared = frozenset.intersection(*(metadata_stems(source.metadata) for source in request.context))
        weights = {stem: weight for stem, weight in weights.items() if stem not in shared} or weights
    if not weights:
        return None
    named = _names(text)
    names = sum([1 << bit for bit, stem in enumerate(weights) if stem in named])
    return Question(tuple(weights), tuple(weights.values()), names)


@cache
def _listed_words(kind: str) -> frozenset[str]:
    """The words of a kind in all languages.

    Words of ``shape`` form a question and rarely occur in its answer; words of ``generic`` occur in texts of any subject.
    """
    tables = (table.get("questions", {}) for table in language_tables().values())
    return frozenset(plain_arabic(word) for table in tables for word in table.get(kind, "").split())


@cache
def _generic_stems() -> frozenset[str]:
    return content_words(_listed_words("generic"))


def _names(text: str) -> frozenset[str]:
    """The stems of a question's names: capital letters inside a sentence, where not every noun has one."""
    names = _INNER_NAME.findall(text)
    if not names:
        return frozenset()
    tokens = text.lower().split()
    german, english = (language_tables()[code]["function_words"].split() for code in ("de", "en"))
    if len(names) > _MOST_NAMES * len(tokens) or len({*german} & {*tokens}) > len({*english} & {*tokens}):
        return frozenset()
    return content_words(words(" ".join(names))) - _generic_stems()


_INNER_NAME = re.compile(r"(?<=[\w,;:)] )[A-ZÀ-ÖØ-Þ][\w&-]*[a-zà-öø-ÿ][\w&-]*")
_MOST_NAMES = 0.5
"""Share of the words; with more of them in capital letters, the question is written like a title."""


def _weigh(text: str) -> dict[str, float]:
    """The weight of each word of content but those that only form the question."""
    shape = _listed_words("shape") | word_set("function_words")
    return _weigh_words(text, [word for word in words(text) if word not in shape])


def _weigh_words(text: str, tokens: Iterable[str]) -> dict[str, float]:
    stems = [stem for stem in stems_of(tokens) if stem and stem != NEGATION]
    if not text.isascii():
        stems = [stem for stem in stems if _PARTICLES.isdisjoint(stem)]
    generic = _generic_stems()
    return {stem: _GENERIC_WEIGHT if stem in generic else _SPECIFIC_WEIGHT for stem in stems}


_PARTICLES = frozenset("的了是在和与與吗嗎呢谁誰什么麼哪几幾多少这這那为為怎样樣吧")
"""Characters of Chinese function words; a pair of characters with one of them is no word."""


# ---- the words of a question in a source ------------------------------------------------------------------------

INSIDE = 1.3
WINDOW = 1.4
SOURCE = 2.1
"""Log-odds for all words of the question in the passage, in the passage with its neighbours and the source's metadata,
and anywhere in the source."""
TITLE_SHARE = 0.5
_NO_TITLE = 0.55
"""Log-odds for a title that has only words of the question; a source without a title counts as if half of it had."""
LENGTH = 0.6
"""Log-odds per unit of the logarithm of the question's weight: a long question rarely has all its words in one place."""
OTHER_NAME = 1.0
"""Log-odds that a passage loses when its source has none of the names in the question."""
BIAS = -3.65
"""Brings the total of a passage that is just about the subject to 0. The values were fitted on half of the public
questions of ``bench/questions.py`` with the right sources, near ones, and their own without the answer; some were then
chosen by the figures of all."""


@dataclass(frozen=True, slots=True)
class Masks:
    """The words of a question in one source, as bits in the order of its stems.

    Attributes:
        passages: the bits of each passage.
        metadata: the bits of the metadata.
        whole: the bits of the passages and the metadata together.
        title_share: share of the words of the source's title that the question has.
    """

    passages: list[int]
    metadata: int
    whole: int
    title_share: float


def mask_source(question: Question, index: SourceIndex, metadata: Mapping[str, Any]) -> Masks:
    """Marks the words of a question in a source."""
    passages = [0] * len(index.spans)
    postings = index.postings(frozenset(question.stems))
    about = metadata_stems(metadata)
    in_metadata = whole = 0
    for position, stem in enumerate(question.stems):
        bit = 1 << position
        if stem in about:
            in_metadata |= bit
        for passage in postings.get(stem, ()):
            passages[passage] |= bit
            whole |= bit
    return Masks(passages, in_metadata, whole | in_metadata, title_share(question, metadata))


def title_share(question: Question, metadata: Mapping[str, Any]) -> float:
    """Share of the words of a source's title that a question has."""
    title = text_stems(str(metadata["title"])) if metadata.get("title") else frozenset[str]()
    return len(title.intersection(question.stems)) / len(title) if title else _NO_TITLE


class SubjectScore:
    """Scores passages for one question as log-odds: above 0, a passage is about the question's subject."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._shares = {0: 0.0}
        self._total = math.fsum(question.weights)
        self._bias = BIAS + LENGTH * math.log(self._total)

    def _share(self, mask: int) -> float:
        """The weight of the words of a mask, as a share of all words of the question."""
        share = self._shares.get(mask)
        if share is None:
            weights = self._question.weights
            share = math.fsum([weights[bit] for bit in range(mask.bit_length()) if mask >> bit & 1]) / self._total
            self._shares[mask] = share
        return share

    def score(self, inside: int, beside: int, masks: Masks) -> float:
        """The log-odds of a passage.

        Args:
            inside: the bits of the passage.
            beside: the bits of its neighbours.
            masks: those of its source.
        """
        window = (
            self._share(inside)
            + _METADATA * self._share(masks.metadata & ~inside)
            + _NEIGHBOUR * self._share(beside & ~inside & ~masks.metadata)
        )
        shares = INSIDE * self._share(inside) + WINDOW * window + SOURCE * self._share(masks.whole)
        score = self._bias + shares + TITLE_SHARE * masks.title_share
        names = self._question.names
        if missing := names & ~masks.whole:
            score -= OTHER_NAME * missing.bit_count() / names.bit_count()
        return score
