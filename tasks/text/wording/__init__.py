"""Detects denials, courtesies, uncertainty and figures in all languages at once; one module per language.

An answer may mix languages, so there is no language parameter. The Latin languages share one set of patterns; Chinese
and Arabic have one each, which runs only if the text contains their script.
"""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks.text.sentences import plain_arabic
from tasks.text.word_search import WordSearch
from tasks.text.wording.ar import WORDING as AR
from tasks.text.wording.de import WORDING as DE
from tasks.text.wording.en import WORDING as EN
from tasks.text.wording.es import WORDING as ES
from tasks.text.wording.fr import WORDING as FR
from tasks.text.wording.table import Wording
from tasks.text.wording.zh import WORDING as ZH

__all__ = [
    "WORDINGS",
    "Hedging",
    "Wording",
    "figures",
    "hedging",
    "is_courtesy",
    "is_denial",
    "is_factual",
    "is_next_step",
]

WORDINGS = (EN, DE, ES, FR, ZH, AR)
"""The supported languages, English first."""

_HAN = re.compile("[\u3400-\u9fff]")
_ARABIC = re.compile("[\u0600-\u06ff]")
_NEVER = re.compile(r"(?!)")
_MOST = 4_000
"""Most characters of an answer that are searched: far more than answers have."""


# ---- compiling -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Phrases:
    """Phrases that are searched as substrings first, a hundred times faster than with the pattern for whole words."""

    listed: tuple[str, ...]
    search: WordSearch
    pattern: re.Pattern[str]

    def find(self, text: str) -> list[str]:
        """The phrases that a text contains as whole words, in order."""
        return self.pattern.findall(text) if self.search(text) else []


@dataclass(frozen=True, slots=True)
class _Patterns:
    """The joint patterns of one or more languages."""

    denial: re.Pattern[str]
    hedge: re.Pattern[str]
    turn: re.Pattern[str]
    courtesy: re.Pattern[str]
    next_step: re.Pattern[str]
    strong: _Phrases
    moderate: _Phrases
    factual: _Phrases
    figure: re.Pattern[str]


_NUMBER = r"(?<!\d)\d(?:[\d.,]{0,18}\d)?"
"""An amount of bounded length; without the bound a row of digits and commas takes seconds."""
_SIGNS = "[€$£¥₹₩₽¢%‰％٪]"
_SIGNED = (re.compile(rf"{_NUMBER}\s?{_SIGNS}"), re.compile(rf"{_SIGNS}\s?\d"), re.compile(r"百分之\d"))


def _compile(*wordings: Wording) -> _Patterns:
    spaced = all(wording.spaced for wording in wordings)
    arabic = AR in wordings

    def either(patterns: Iterable[str]) -> re.Pattern[str]:
        joined = "|".join(patterns)
        return re.compile(plain_arabic(joined) if arabic else joined)

    def phrases(kind: str, before: str = "", after: str = "") -> _Phrases:
        variants = {phrase for wording in wordings for phrase in getattr(wording, kind)}
        listed = tuple(sorted(map(plain_arabic, variants) if arabic else variants, key=lambda p: (-len(p), p)))
        return _Phrases(listed, WordSearch(*listed), re.compile(f"{before}({'|'.join(map(re.escape, listed))}){after}"))

    def opens(kind: str, after: str = "") -> re.Pattern[str]:
        return re.compile(f"(?:{either(p for wording in wordings for p in getattr(wording, kind)).pattern}){after}")

    # Arabic joins "and" and "so" to the next word.
    before_word, after_word = (r"(?<!\w)[وف]?" if arabic else r"(?<!\w)", r"(?!\w)") if spaced else ("(?<!不)", "")
    units = "|".join(map(re.escape, phrases("units").listed))
    return _Patterns(
        denial=either(pattern for wording in wordings for pattern in wording.denials),
        hedge=either(pattern for wording in wordings for pattern in wording.hedges),
        turn=phrases("turns", before_word if spaced else "", after_word).pattern,
        courtesy=opens("courtesies", r"(?!\w)" if spaced else ""),
        next_step=opens("next_steps"),
        strong=phrases("strong", before_word, after_word),
        moderate=phrases("moderate", before_word, after_word),
        factual=phrases("factual", rf"\A\W*{before_word}" if arabic else before_word if spaced else "", after_word),
        # The number comes first, because the search goes by the beginning of a pattern.
        figure=re.compile(rf"{_NUMBER}[\s\u00a0-]?(?:{units}){after_word}"),
    )


_LATIN = _compile(EN, DE, ES, FR)
_CHINESE = _compile(ZH)
_ARABIC_PATTERNS = _compile(AR)


def _ready(text: str) -> tuple[str, Sequence[_Patterns]]:
    """The text in the spelling of the patterns, and the patterns that may match it."""
    text = text[:_MOST].lower()
    if text.isascii():
        return text, (_LATIN,)
    text = text.replace("’", "'")
    patterns = [_LATIN]
    if _HAN.search(text):
        patterns.append(_CHINESE)
    if _ARABIC.search(text):
        text = plain_arabic(text)
        patterns.append(_ARABIC_PATTERNS)
    return text, patterns


# ---- sentences -------------------------------------------------------------------------------------------------


def is_denial(sentence: str) -> bool:
    """Tells whether a sentence only says that the sources, or the writer, give no answer."""
    text, patterns = _ready(sentence)
    return any(language.denial.search(text) and language.hedge.search(text) for language in patterns) and not any(
        language.turn.search(text) for language in patterns
    )


_COURTESY_ENDS = re.compile(r"[^.!?,。！？，؟،]{0,80}[.!?,:。！？，：؟،\s]*\Z")


def is_courtesy(sentence: str) -> bool:
    """Tells whether a sentence is only a greeting, thanks or the like."""
    text, patterns = _ready(sentence.lstrip("¡¿ "))
    return any(
        (greeting := language.courtesy.match(text)) and _COURTESY_ENDS.match(text, greeting.end())
        for language in patterns
    )


def is_next_step(sentence: str) -> bool:
    """Tells whether a sentence sends the reader elsewhere, or asks for more."""
    text, patterns = _ready(sentence)
    return any(language.next_step.match(text) for language in patterns)


def is_factual(question: str) -> bool:
    """Tells whether a question asks for a single fact: an amount, a time, a place, a name."""
    text, patterns = _ready(question)
    return any(language.factual.find(text) for language in patterns)


# ---- whole answers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hedging:
    """The phrases of uncertainty in an answer, each once, in order."""

    strong: tuple[str, ...]
    moderate: tuple[str, ...]


def hedging(answer: str) -> Hedging:
    """Finds phrases of uncertainty in an answer."""
    text, patterns = _ready(answer)
    phrases = [
        tuple(dict.fromkeys(match for language in patterns for match in getattr(language, kind).find(text)))
        for kind in ("strong", "moderate")
    ]
    return Hedging(*phrases)


def figures(answer: str) -> int:
    """Counts amounts, percentages, times and ages in an answer."""
    text, patterns = _ready(answer)
    return sum(len(pattern.findall(text)) for pattern in (*_SIGNED, *(language.figure for language in patterns)))
