"""Measures how well a passage fits the subject of a question: its words, and the kind of thing that it asks for.

The words of a question weigh by how much they name a subject: a word of any topic (``generic`` in the language tables)
less than others. A passage is read with its neighbours, its source and the source's metadata, because a sentence rarely
repeats its subject.
"""
# ruff: noqa: RUF001, RUF002 - typographic and full-width characters are meant

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import and_, or_
from typing import Any

from tasks.questions.question_words import (
    Expected,
    asks_for,
    form_words,
    function_words,
    generic_stems,
    joint_pattern,
    listed_words,
    may_ask_for,
    moments,
)
from tasks.text.sentences import plain_arabic, words
from tasks.text.source_index import SourceIndex, metadata_stems, text_stems
from tasks.text.wording import NEGATION, content_words, number_word, stems_of

_SPECIFIC_WEIGHT = 2.0
_GENERIC_WEIGHT = 1.0
_BACKGROUND = 0.5
"""Share of its weight that a word of another part, or of the previous question, keeps in a part."""

_METADATA = 0.7
_NEIGHBOUR = 0.5
"""Credit for a word that is only in the metadata of the source, or only in a neighbouring sentence."""


# ---- kinds of things ------------------------------------------------------------------------------------------


_NAME = re.compile(r"(?<=[\w,;:)(\"“„] )[A-ZÀ-ÖØ-Þ][\w'’-]+|(?<!\w)[A-ZÀ-ÖØ-Þ][\w'’-]+ [A-ZÀ-ÖØ-Þ][\w'’-]+")
"""A word in upper case that does not open a sentence, or two in a row."""
_LOWER_CASE = re.compile(r"[a-zà-öø-ÿ]")


def has_kind(kind: Expected, text: str, question: str) -> bool:
    """Tells whether a text has a thing of a kind that the question, in lower case, lacks."""
    if kind is Expected.NAME:
        if _LOWER_CASE.search(text) is None:
            return True
        return any(match.group().lower() not in question for match in _NAME.finditer(text))
    if any(match.group() not in question for match in _NUMERAL.finditer(text)):
        return True
    listed = listed_words("counts" if kind is Expected.NUMBER else "times")
    lowered = text.lower() if text.isascii() else plain_arabic(text.lower())
    if any(word in listed and word not in question for word in _WORD.findall(lowered)):
        return True
    return _HAN.search(text) is not None and any(
        word in text and word not in question for word in listed if _HAN.match(word)
    )


def has_time(text: str, question: str) -> bool:
    """Tells whether a text has a date, a time of day, a period or a condition that the question lacks."""
    if any(match.group() not in question for match in _DATE.finditer(text)):
        return True
    listed = moments()
    lowered = plain_arabic(text.lower())
    if any(hour.isdecimal() or number_word(hour) is not None for hour in _HOUR.findall(lowered)):
        return True
    for word in _WORD.findall(lowered):
        # Mondays, montags; with the Arabic article.
        if word in listed or word.removesuffix("s") in listed or word.removeprefix("ال") in listed:
            return True
    return _HAN.search(text) is not None and any(word in text for word in listed if _HAN.match(word))


_DATE = re.compile(
    r"(?<![\d.,])(?:1\d{3}|20\d{2})(?!\d|[.,]\d)|\d{1,2}[:./-]\d{1,2}|\d{1,2}(?:st|nd|rd|th)\b|(?<=\w )May\b"
)
"""A year, a date, a time of day or an ordinal; May in capitals, because the word in lower case is a verb."""
_HOUR = re.compile(r"\b(?:at|from|by|around|um|gegen|ab|à|vers|dès|las|la|alle|dalle|الساعه|الساعة) (\w+)")
"""A number after a word that leads a time of day: at nine, um 9, a las nueve."""
_NUMERAL = re.compile(r"\d[\d.,:]*")
_WORD = re.compile(r"[^\W\d_]+")
_HAN = re.compile("[\u3400-\u9fff]")


# ---- the question ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """One part of a question in the form for comparisons.

    Attributes:
        stems: the content words of the whole question, in order; the same for all parts.
        weights: the weight of each in this part.
        expected: the kinds of things that this part asks for.
        names: the bits of the stems that are names.
        text: the whole question, in lower case.
    """

    stems: tuple[str, ...]
    weights: tuple[float, ...]
    expected: frozenset[Expected]
    names: int
    text: str

    @property
    def vocabulary(self) -> frozenset[str]:
        """The content words as a set."""
        return frozenset(self.stems)


def read_question(text: str, previous: str = "") -> tuple[Question, ...]:
    """Reads the parts of a question ("how long may it last, and who decides?"); none without words of content.

    Args:
        text: the question. Sentences before the one that asks are its background.
        previous: the question before it in a conversation, which may name its subject.
    """
    own = _weigh(text) or _weigh(previous) or _weigh_words(text, words(text))
    if not own:
        return ()
    parts = [(part, _weigh(part)) for part in _asking_parts(text)]
    in_parts = frozenset(stem for _, weights in parts for stem in weights)
    background = {stem: weight * _BACKGROUND for stem, weight in _weigh(previous).items()}
    for stem, weight in own.items():
        background[stem] = weight * (_BACKGROUND if stem in in_parts else 1.0)
    whole = dict.fromkeys(stem for _, weights in parts for stem in weights) | background
    named = _names(text)
    names = sum([1 << bit for bit, stem in enumerate(whole) if stem in named]) if named else 0
    stems, lowered = tuple(whole), plain_arabic(text.strip().lower())
    return tuple(
        [
            Question(
                stems=stems,
                weights=tuple([weights.get(stem, background.get(stem, 0.0)) for stem in stems]),
                expected=_expected_kinds(plain_arabic(part.strip().lower())),
                names=names,
                text=lowered,
            )
            for part, weights in parts
        ]
    )


def _expected_kinds(part: str) -> frozenset[Expected]:
    """The kinds of things that a part of a question, in lower case, asks for."""
    return frozenset([kind for kind in _KINDS if may_ask_for(kind).may_match(part) and asks_for(kind).search(part)])


_KINDS = tuple(Expected)


def _names(text: str) -> frozenset[str]:
    """The stems of a question's names: capital letters inside a sentence, where not every noun has one."""
    names = _INNER_NAME.findall(text)
    if not names:
        return frozenset()
    tokens = text.lower().split()
    if len(names) > _MOST_NAMES * len(tokens) or len(function_words("de").intersection(tokens)) > len(
        function_words("en").intersection(tokens)
    ):
        return frozenset()
    return content_words(words(" ".join(names))) - generic_stems()


_INNER_NAME = re.compile(r"(?<=[\w,;:)] )[A-ZÀ-ÖØ-Þ][\w&-]*[a-zà-öø-ÿ][\w&-]*")
_MOST_NAMES = 0.5
"""Share of the words; with more of them in capital letters, the question is written like a title."""

_SENTENCE = re.compile(r"[^.!?。！？؟]+(?:\.(?=\S)[^.!?。！？؟]*)*[.!?。！？؟]*")


_LEAST_PART = 1
"""Words of content; a shorter part belongs to the one before it, unless a sentence before it says what it is about."""


def _asking_parts(text: str) -> list[str]:
    """The parts of a text that ask; all of it without a question mark."""
    sentences = [match.group().strip() for match in _SENTENCE.finditer(text)]
    asking = [sentence.rstrip("?？؟") for sentence in sentences if sentence.endswith(("?", "？", "؟"))]
    least = _LEAST_PART if len(asking) == len(sentences) else 0
    parts: list[str] = []
    for sentence in asking or [text]:
        start = 0
        for joint in joint_pattern().finditer(sentence):
            piece, rest = sentence[start : joint.start()], sentence[joint.end() :]
            if piece[-1:].isdigit() and rest[:1].isdigit():
                # A comma inside a number.
                continue
            if min(len(_weigh(piece)), len(_weigh(rest))) >= least:
                parts.append(piece)
                start = joint.end()
        parts.append(sentence[start:])
    return parts


@lru_cache(maxsize=32)
def _weigh(text: str) -> Mapping[str, float]:
    """The weight of each word of content but those that only form the question; cached, for a part is weighed twice."""
    shape = form_words()
    return _weigh_words(text, [word for word in words(text) if word not in shape])


def _weigh_words(text: str, tokens: Iterable[str]) -> Mapping[str, float]:
    stems = [stem for stem in stems_of(tokens) if stem and stem != NEGATION]
    if not text.isascii():
        stems = [stem for stem in stems if _PARTICLES.isdisjoint(stem)]
    generic = generic_stems()
    return {stem: _GENERIC_WEIGHT if stem in generic else _SPECIFIC_WEIGHT for stem in stems}


_PARTICLES = frozenset("的了是在和与與吗嗎呢谁誰什么麼哪几幾多少这這那为為怎样樣吧")
"""Characters of Chinese function words; a pair of characters with one of them is no word."""


# ---- the expected kind ------------------------------------------------------------------------------------------
def is_expected(question: Question, text: str) -> bool:
    """Tells whether a text has a thing of a kind that the question asks for, and that the question itself lacks."""
    return not question.expected or any(has_kind(kind, text, question.text) for kind in question.expected)


def lacks_kind(question: Question, texts: Sequence[str]) -> bool:
    """Tells whether a question asks for a number or a time alone, and no text has one.

    A condition ("before the tenant moves in") may be a time, too.
    """
    kind = next(iter(question.expected), None) if len(question.expected) == 1 else None
    if kind is Expected.NUMBER:
        return not any(has_kind(kind, text, question.text) for text in texts)
    return kind is Expected.TIME and not any(has_time(text, question.text) for text in texts)


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
EXPECTED = 1.55
"""Log-odds for a thing of the kind that the question asks for."""
OFF_SUBJECT = 2.0
"""Log-odds that a passage loses without any word that names the subject beyond the title of its source."""
_WHOLE_SUBJECT = 0.5
"""Title share from which the title itself is the subject, as of an article about one thing."""
OTHER_NAME = 1.0
"""Log-odds that a passage loses when its source has none of the names in the question."""
BIAS = -5.1
"""Brings the total of a passage that is just about the subject to 0. The values were fitted on half of the public
questions of ``bench/questions.py`` with the right sources, near ones, and their own without the answer; some were then
chosen by the figures of the other half."""


@dataclass(frozen=True, slots=True)
class Masks:
    """The words of a question in one source, as bits in the order of its stems.

    Attributes:
        passages: the bits of each passage.
        metadata: the bits of the metadata.
        whole: the bits of the passages and the metadata together.
        title_share: share of the words of the source's title that the question has.
        is_shared_title: True where all of several sources have the title, so that it names the subject of none.
    """

    passages: list[int]
    metadata: int
    whole: int
    title_share: float
    is_shared_title: bool = False

    @property
    def subject_share(self) -> float:
        """The title's share, where the title may be the subject."""
        return 0.0 if self.is_shared_title else self.title_share


_RANGE = re.compile(r"(?<![\d.,])(\d{1,12}(?:[.,]\d{1,6})?)\s?[-–—]\s?(\d{1,12}(?:[.,]\d{1,6})?)(?![\d.,])")


def numbers_in_range(question: Question, text: str) -> int:
    """The bits of the question's numbers that lie in a range of a text, such as ``13–17``."""
    bits = 0
    for match in _RANGE.finditer(text):
        least, most = (float(end.replace(",", ".")) for end in match.groups())
        for bit, stem in enumerate(question.stems):
            if stem[0] <= "9" and _PLAIN_NUMBER.fullmatch(stem) and least <= float(stem) <= most:
                bits |= 1 << bit
    return bits


_PLAIN_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,6})?")


def mask_source(
    question: Question, index: SourceIndex, metadata: Mapping[str, Any], *, is_shared_title: bool = False
) -> Masks:
    """Marks the words of a question in a source; see `Masks` for ``is_shared_title``."""
    passages = [0] * len(index.spans)
    postings = index.postings(question.vocabulary)
    about = metadata_stems(metadata)
    in_metadata = whole = 0
    for position, stem in enumerate(question.stems):
        bit = 1 << position
        if stem in about:
            in_metadata |= bit
        for passage in postings.get(stem, ()):
            passages[passage] |= bit
            whole |= bit
    share = title_share(question, metadata)
    return Masks(passages, in_metadata, whole | in_metadata, share, is_shared_title)


def title_share(question: Question, metadata: Mapping[str, Any]) -> float:
    """Share of the words of a source's title that a question has."""
    title = text_stems(str(metadata["title"])) if metadata.get("title") else frozenset[str]()
    return len(title & question.vocabulary) / len(title) if title else _NO_TITLE


_LEAST_KNOWN = 0.5
"""Share of the words that name the subject; with fewer of them in any source, it is hardly the subject of one."""
UNKNOWN_SUBJECT = 0.5
"""Log-odds that the best passage must reach then."""


def is_unknown(questions: Sequence[Question], sources: Sequence[Masks]) -> bool:
    """Tells whether several sources together lack most words that name the subject of a question.

    A word in the metadata of all of them, such as the name of the product in every title, names no subject. One source
    alone is judged by its passages.
    """
    if len(sources) < _SEVERAL:
        return False
    shared = reduce(and_, [masks.metadata for masks in sources])
    whole = reduce(or_, [masks.whole for masks in sources])
    weights = [max(question.weights[bit] for question in questions) for bit in range(len(questions[0].stems))]
    subject = [bit for bit, weight in enumerate(weights) if weight >= _SPECIFIC_WEIGHT and not shared >> bit & 1]
    return sum(whole >> bit & 1 for bit in subject) < _LEAST_KNOWN * len(subject)


_SEVERAL = 2
"""Sources; what fewer of them share says nothing."""


class SubjectScore:
    """Scores passages for one question as log-odds: above 0, a passage is about the question's subject."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self._weights = {0: 0.0}
        self._total = math.fsum(question.weights)
        self._specific = sum(1 << bit for bit, weight in enumerate(question.weights) if weight >= _SPECIFIC_WEIGHT)
        self._bias = BIAS + LENGTH * (math.log(self._total) if question.stems else 0.0)

    def weight(self, mask: int) -> float:
        """The weight of the words of a mask, as a share of all words of the question."""
        weight = self._weights.get(mask)
        if weight is None:
            weights = self.question.weights
            weight = math.fsum([weights[bit] for bit in range(mask.bit_length()) if mask >> bit & 1]) / self._total
            self._weights[mask] = weight
        return weight

    def score(self, inside: int, beside: int, masks: Masks) -> float:
        """The log-odds of a passage without ``EXPECTED``.

        Args:
            inside: the bits of the passage.
            beside: the bits of its neighbours.
            masks: those of its source.
        """
        window = (
            self.weight(inside)
            + _METADATA * self.weight(masks.metadata & ~inside)
            + _NEIGHBOUR * self.weight(beside & ~inside & ~masks.metadata)
        )
        shares = INSIDE * self.weight(inside) + WINDOW * window + SOURCE * self.weight(masks.whole)
        score = self._bias + shares + TITLE_SHARE * masks.title_share
        focus = self._specific & ~masks.metadata
        if focus and not (inside | beside) & focus:
            score -= OFF_SUBJECT * max(0.0, 1 - masks.subject_share / _WHOLE_SUBJECT)
        names = self.question.names
        if missing := names & ~masks.whole:
            score -= OTHER_NAME * missing.bit_count() / names.bit_count()
        return score
