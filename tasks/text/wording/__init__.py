"""How each language words a denial, a courtesy, uncertainty and a figure; one module a language, matched together.

An answer may mix languages, so no language is asked for: the spaced Latin languages are one set of patterns, Chinese
and Arabic one each, tried only where their script stands in the text.
"""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks.text.among import Among
from tasks.text.sentences import plain_arabic
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
"""The languages known, English first."""

_HAN = re.compile("[\u3400-\u9fff]")
_ARABIC = re.compile("[\u0600-\u06ff]")
_NEVER = re.compile(r"(?!)")
_MOST = 4_000
"""Characters of an answer that are looked at for wording: far more than answers have."""


# ---- compiling -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Phrases:
    """Phrases looked for as substrings first, which is a hundred times quicker than the pattern that tells whole words."""

    listed: tuple[str, ...]
    among: Among
    pattern: re.Pattern[str]

    def find(self, text: str) -> list[str]:
        """Those phrases in a text that stand there as whole words, in order."""
        return self.pattern.findall(text) if self.among(text) else []


@dataclass(frozen=True, slots=True)
class _Patterns:
    """The patterns of languages that are matched together."""

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
"""As long as an amount may be; without a bound a row of digits and commas takes seconds."""
_SIGNS = "[€$£¥₹₩₽¢%‰％٪]"
_SIGNED = (re.compile(rf"{_NUMBER}\s?{_SIGNS}"), re.compile(rf"{_SIGNS}\s?\d"), re.compile(r"百分之\d"))


def _compile(*wordings: Wording) -> _Patterns:
    spaced = all(wording.spaced for wording in wordings)
    arabic = AR in wordings

    def either(patterns: Iterable[str]) -> re.Pattern[str]:
        joined = "|".join(patterns)
        return re.compile(plain_arabic(joined) if arabic else joined)

    def phrases(kind: str, before: str = "", after: str = "") -> _Phrases:
        found = {phrase for wording in wordings for phrase in getattr(wording, kind)}
        listed = tuple(sorted(map(plain_arabic, found) if arabic else found, key=lambda p: (-len(p), p)))
        return _Phrases(listed, Among(*listed), re.compile(f"{before}({'|'.join(map(re.escape, listed))}){after}"))

    def opens(kind: str, after: str = "") -> re.Pattern[str]:
        return re.compile(f"(?:{either(p for wording in wordings for p in getattr(wording, kind)).pattern}){after}")

    # Arabic writes "and" and "so" as one word with the next.
    left, right = (r"(?<!\w)[وف]?" if arabic else r"(?<!\w)", r"(?!\w)") if spaced else ("(?<!不)", "")
    units = "|".join(map(re.escape, phrases("units").listed))
    return _Patterns(
        denial=either(pattern for wording in wordings for pattern in wording.denials),
        hedge=either(pattern for wording in wordings for pattern in wording.hedges),
        turn=phrases("turns", left if spaced else "", right).pattern,
        courtesy=opens("courtesies", r"(?!\w)" if spaced else ""),
        next_step=opens("next_steps"),
        strong=phrases("strong", left, right),
        moderate=phrases("moderate", left, right),
        factual=phrases("factual", rf"\A\W*{left}" if arabic else left if spaced else "", right),
        # A number first: what a pattern begins with is what it is looked for by.
        figure=re.compile(rf"{_NUMBER}[\s\u00a0-]?(?:{units}){right}"),
    )


_LATIN = _compile(EN, DE, ES, FR)
_CHINESE = _compile(ZH)
_ARABIC_PATTERNS = _compile(AR)


def _ready(text: str) -> tuple[str, Sequence[_Patterns]]:
    """The text as the patterns are written, and the patterns that may match it."""
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
    """Whether a sentence only says that the sources, or the writer, do not say."""
    text, patterns = _ready(sentence)
    return any(one.denial.search(text) and one.hedge.search(text) for one in patterns) and not any(
        one.turn.search(text) for one in patterns
    )


_COURTESY_ENDS = re.compile(r"[^.!?,。！？，؟،]{0,80}[.!?,:。！？，：؟،\s]*\Z")


def is_courtesy(sentence: str) -> bool:
    """Whether a sentence is nothing but a greeting, thanks or the like."""
    text, patterns = _ready(sentence.lstrip("¡¿ "))
    return any((found := one.courtesy.match(text)) and _COURTESY_ENDS.match(text, found.end()) for one in patterns)


def is_next_step(sentence: str) -> bool:
    """Whether a sentence sends the reader elsewhere, or asks for more."""
    text, patterns = _ready(sentence)
    return any(one.next_step.match(text) for one in patterns)


def is_factual(question: str) -> bool:
    """Whether a question asks for a single fact: an amount, a time, a place, a name."""
    text, patterns = _ready(question)
    return any(one.factual.find(text) for one in patterns)


# ---- whole answers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hedging:
    """The uncertain wording of an answer: the phrases found, each once, in order."""

    strong: tuple[str, ...]
    moderate: tuple[str, ...]


def hedging(answer: str) -> Hedging:
    """Find phrases of uncertainty in an answer."""
    text, patterns = _ready(answer)
    found = [
        tuple(dict.fromkeys(match for one in patterns for match in getattr(one, kind).find(text)))
        for kind in ("strong", "moderate")
    ]
    return Hedging(*found)


def figures(answer: str) -> int:
    """Count amounts, percentages, times and ages in an answer."""
    text, patterns = _ready(answer)
    return sum(len(pattern.findall(text)) for pattern in (*_SIGNED, *(one.figure for one in patterns)))
