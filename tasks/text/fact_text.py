"""Splits a text into the tokens among which its facts are read, with the stem and the place of each."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from dataclasses import dataclass, field
from itertools import accumulate

from tasks.text.lexicon import Lexicon, Pole
from tasks.text.quantities import PERCENT, Quantity, number
from tasks.text.wording import NEGATION, stem_of, stems_of

HAN_NUMBER = "零〇一二两兩三四五六七八九十百千万萬亿億"
SIGNS = {"%": PERCENT, "€": "€", "$": "$", "£": "£", "¥": "¥"}
"""Units that are signs."""
_HAN = "\u3400-\u9fff"
_TOKEN = re.compile(
    r"[^\W\d_]+|\d+(?:[.,'’]\d+|[\u00a0\u202f\u2009]\d{3}(?!\d))*|[%€$£¥]|[.!?]+(?=\s|\Z|[A-ZÀ-Þ])|[,;:()\n–—]"
)
_SPACED_THOUSANDS = re.compile(rf"(?<!\d)\d{{1,3}}(?: \d{{3}})+(?!\d)(?:,\d+)?|{_TOKEN.pattern}")
"""French separates thousands by a space, which in other languages stands between two numbers."""
_HAN_TOKEN = re.compile(
    rf"[{HAN_NUMBER}]+|[{_HAN}]|[^\W\d_{_HAN}]+|\d+(?:[.,'’]\d+|[\u00a0\u202f\u2009]\d{3}(?!\d))*|[%€$£¥]|[.!?。！？]+|[,;:()\n，；：、（）]"
)
_APOSTROPHES = "'’"
_SPACES = re.compile("[ \u00a0\u202f\u2009]")
_SENTENCE_ENDS = frozenset(".!?\n。！？")
_SENTENCE_GAP = 8.0
_CLAUSE_GAP = 1.0


@dataclass(slots=True)
class FactText:
    """The facts of a text; all positions count its tokens.

    ``stems`` are empty for function words; ``places`` are positions with gaps at the ends of clauses and sentences.
    """

    text: str
    lows: list[str]
    spans: list[tuple[int, int]]
    stems: list[str]
    places: list[float] = field(default_factory=list)
    breaks: frozenset[int] = frozenset()
    """Punctuation."""
    positions: dict[str, list[int]] = field(default_factory=dict)
    quantities: list[Quantity] = field(default_factory=list)
    poles: list[tuple[int, int, tuple[Pole, ...]]] = field(default_factory=list)
    """(first token, last token, sides)."""
    cues: list[tuple[int, int]] = field(default_factory=list)
    """Negations: first and last token."""
    comparisons: frozenset[tuple[int, int]] = frozenset()
    """Those of the negations that only prefer one thing to another: rather than."""
    doubts: frozenset[tuple[int, int]] = frozenset()
    """Those of the negations that deny nothing of the matter: "I am not sure", "not only"."""
    sums: bool = False
    """A word stands there that makes a number a sum or a difference of others: together, increase, aged."""
    implied: tuple[int, ...] = ()
    """Words that may imply a denial: forbidden, only, unless."""
    negated: frozenset[int] = frozenset()
    """Tokens within the reach of a negation."""
    subjects: frozenset[int] = frozenset()
    """Tokens just before a negation, which it may deny, too: the subject of "is not"."""
    names: list[int] = field(default_factory=list)

    def words(self, first: int, last: int) -> str:
        """The text of the tokens from ``first`` to ``last``; an "n't" with its verb."""
        start = self.spans[first][0]
        if first and self.text[start - 1] in _APOSTROPHES:
            start = self.spans[first - 1][0]
        return self.text[start : self.spans[last][1]]

    def sentence(self, position: int) -> tuple[int, int]:
        """The first token of the sentence of a token, and the one after its last."""
        ends = [at for at in self.breaks if self.lows[at][0] in _SENTENCE_ENDS]
        start = max((at + 1 for at in ends if at < position), default=0)
        return start, min((at for at in ends if at >= position), default=len(self.lows))


def split_numerals(text: str, words: Lexicon) -> FactText:
    """Splits a text into tokens without their places, and with the stems of those alone that stand after a number.

    Only for a language with spaces whose words have no prefixes.
    """
    pattern = _SPACED_THOUSANDS if words.code == "fr" else _TOKEN
    lows: list[str] = []
    spans: list[tuple[int, int]] = []
    stems: list[str] = []
    breaks = set()
    after_number = False
    for match in pattern.finditer(text):
        token = match.group()
        first = token[0]
        if first.isalpha():
            low = token.lower()
            stems.append(stems_of([low])[0] if after_number else "")
            after_number = low in words.numbers
        elif first.isdigit():
            low = number(_SPACES.sub("", token))
            stems.append("")
            after_number = True
        else:
            low = token
            stems.append("")
            if token not in SIGNS:
                breaks.add(len(lows))
        lows.append(low)
        spans.append(match.span())
    return FactText(text, lows, spans, stems, breaks=frozenset(breaks))


def split_tokens(text: str, words: Lexicon) -> FactText:
    """Splits a text into tokens, with the stem and the place of each."""
    pattern = _HAN_TOKEN if not words.spaced else _SPACED_THOUSANDS if words.code == "fr" else _TOKEN
    matches = list(pattern.finditer(text))
    tokens = [match[0] for match in matches]
    spans = [match.span() for match in matches]
    lows = list(map(_LOWS.__getitem__, tokens))
    if words.code == "ar":
        lows = [_without_prefix(low, words) for low in lows]
    elif "t" in lows:
        _read_contractions(text, lows, spans)
    stems = list(map(_STEMS_OF_LOWS.__getitem__, lows))
    gaps = [1.0] * len(stems)
    breaks = []
    positions: dict[str, list[int]] = {}
    for position, stem in enumerate(stems):
        if not stem:
            low, token = lows[position], tokens[position]
            if token.isupper():
                if not low.isalpha() or not _is_label(token, position, lows):
                    continue
                stem = stems[position] = token  # noqa: PLW2901 - the label is the stem
            else:
                if not low[0].isalnum() and low not in SIGNS:
                    breaks.append(position)
                    gaps[position] = _SENTENCE_GAP if low[0] in ".!?。！？\n" else _CLAUSE_GAP
                continue
        if stem in positions:
            positions[stem].append(position)
        else:
            positions[stem] = [position]
    positions.pop(NEGATION, None)
    return FactText(text, lows, spans, stems, list(accumulate(gaps)), frozenset(breaks), positions)


def _read_contractions(text: str, lows: list[str], spans: list[tuple[int, int]]) -> None:
    """Reads "mustn't" as "must not", so that phrases with "not" hold for it, too."""
    for at in range(1, len(lows)):
        if lows[at] == "t" and lows[at - 1][-1] == "n" and text[spans[at][0] - 1] in _APOSTROPHES:
            verb = lows[at - 1]
            lows[at - 1 : at + 1] = _CONTRACTED.get(verb) or verb[:-1] or verb, "not"


_CONTRACTED = {"can": "can", "won": "will", "shan": "shall"}


class _Lows(dict[str, str]):
    """Cache of the normal form of each token, per process."""

    def __missing__(self, token: str) -> str:
        low = token.lower() if token[0].isalpha() else _without_letters(token)
        return _keep(self, token, low)


class _StemsOfLows(dict[str, str]):
    """Cache of the stem of each normal form, empty for punctuation, per process."""

    def __missing__(self, low: str) -> str:
        return _keep(self, low, stem_of(low) if low[0].isalnum() else "")


def _keep(cache: dict[str, str], key: str, value: str) -> str:
    if len(key) <= _LONGEST_TOKEN:
        if len(cache) >= _MOST_TOKENS:
            cache.clear()
        cache[key] = value
    return value


_MOST_TOKENS = 50_000
_LONGEST_TOKEN = 40
"""Most tokens in a cache, and the characters of the longest: 10 MB in each."""
_LOWS = _Lows()
_STEMS_OF_LOWS = _StemsOfLows()


def _without_letters(token: str) -> str:
    """A token that begins with a digit or a sign, with its number in the normal spelling."""
    if not token[0].isdigit():
        return token
    return number(token if token.isdecimal() else _SPACES.sub("", token))


def _is_label(label: str, position: int, lows: list[str]) -> bool:
    """Tells whether a function word in capitals is a name: WHO, IT; or a single letter inside a sentence: plan A."""
    if len(label) > 1:
        return True
    return label != "I" and position > 0 and (lows[position - 1][0].isalnum() or lows[position - 1] in {",", "("})


_ARABIC_PREFIXES = ("وال", "فال", "بال", "ال", "و", "ف", "ب", "ل")


def _without_prefix(low: str, words: Lexicon) -> str:
    """An Arabic word without conjunction, preposition and article, where the lexicon knows the rest."""
    for prefix in ("", *_ARABIC_PREFIXES):
        bare = low.removeprefix(prefix)
        if low.startswith(prefix) and (
            bare in words.negations or bare in words.numbers or bare in words.poles or bare in words.units
        ):
            return bare
    return low
