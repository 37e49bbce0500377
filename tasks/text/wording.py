"""Reads words by the tables of all languages at once: stems, numbers, denials, courtesies, uncertainty.

An answer may mix languages, so there is no language parameter. The Latin languages share one set of patterns; Chinese
and Arabic have one each, which runs only if the text contains their script. The tables are in lower case:

denials      patterns of words that every hedge contains; searched first, because most sentences have none
hedges       patterns of sentences that only say that the sources, or the writer, give no answer
turns        words after which a hedge continues with a statement
courtesies   patterns at the start of a sentence without content
next_steps   patterns at the start of a sentence that sends the reader elsewhere
strong       literal phrases of strong uncertainty
moderate     literal phrases of moderate uncertainty
factual      literal words of a question for a single fact
units        literal words that make the number before them an amount, a share, a time or an age
"""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from tasks.text.language import language_tables, number_words, word_set
from tasks.text.memo import Memo
from tasks.text.numbers import number
from tasks.text.sentences import BREAK, plain_arabic, words
from tasks.text.word_search import AsciiSearch, WordSearch

# ---- stems -----------------------------------------------------------------------------------------------------------

_STEM = 5
"""Characters of a stem; this removes endings in any language. On six labelled sets, as the only feature: 67.1 %
balanced accuracy; with 7 characters 66.3, with whole words 65.8, with suffix rules 66.3."""

NEGATION = "\xac"
"""The stem of every negation; no word of a text equals it."""


_MOST_STEMS = 200_000
"""Most words in the cache: some 20 MB in all."""


def _stem(word: str) -> str:
    """The stem of a word; that of a stopword is empty, as it is in every text and supports nothing; of a number word its digits."""
    if word == BREAK:
        return BREAK
    # French and Italian negations with other functions too are not in the tables; ``t`` ends ``don't``.
    if word in word_set("negations"):
        return NEGATION
    if word in word_set("stopwords"):
        return ""
    if (digits := number_word(word)) is not None:
        return digits
    if word[0] <= "9":
        return number(word)
    return sys.intern(_singular(word)[:_STEM])


def _singular(word: str) -> str:
    """The word without the s of a plural, and with i for a final y, so that short words with endings compare equal."""
    if len(word) > _SHORT and word[-1] == "s" and word[-2] not in "siu":
        word = word[:-3] + "i" if word.endswith("ies") else word[:-1]
    return word[:-1] + "i" if len(word) > _SHORT and word[-1] == "y" else word


_SHORT = 3
"""Letters; a word up to this length stays unchanged."""


stem_of = Memo(_stem, _MOST_STEMS).__getitem__
"""The stem of a word: empty for a function word, ``NEGATION`` for a negation. A builtin, for ``map`` over sources."""


def stems_of(tokens: Iterable[str]) -> list[str]:
    """The stem of each word."""
    return list(map(stem_of, tokens))


def content_words(tokens: Iterable[str]) -> frozenset[str]:
    """The stems of the words that carry content; numbers stay whole."""
    return frozenset(map(stem_of, tokens)) - _NOTHING


_NOTHING = frozenset({"", NEGATION})


class TextWords(NamedTuple):
    """The words of a short text, and those of content as stems."""

    words: tuple[str, ...]
    content: frozenset[str]


@lru_cache(maxsize=512)
def words_of(text: str) -> TextWords:
    """Reads the words of a sentence; the latest are cached, because each step of a check reads it again."""
    tokens = words(text)
    return TextWords(tuple(tokens), content_words(tokens))


# ---- numbers ---------------------------------------------------------------------------------------------------------


def number_word(word: str) -> str | None:
    """The digits of a number word; None for other words, and for ``one``, which is rarely a count."""
    return number_words().get(word)


# ---- phrases ---------------------------------------------------------------------------------------------------------

_HAN = re.compile("[\u3400-\u9fff]")
_ARABIC = re.compile("[\u0600-\u06ff]")
_MOST = 4_000
"""Most characters of an answer that are searched: far more than answers have."""


# ---- compiling -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Phrases:
    """Phrases that are searched as substrings first, a hundred times faster than with the pattern for whole words."""

    search: WordSearch
    pattern: re.Pattern[str]

    def find(self, text: str) -> list[str]:
        """The phrases that a text contains as whole words, in order."""
        return self.pattern.findall(text) if self.search(text) else []


@dataclass(frozen=True, slots=True)
class _Patterns:
    """The joint patterns of one or more languages."""

    denial: WordSearch
    hedge: re.Pattern[str]
    hedge_in_ascii: AsciiSearch
    turn: re.Pattern[str]
    courtesy: re.Pattern[str]
    next_step: re.Pattern[str]
    strong: _Phrases
    moderate: _Phrases
    factual: _Phrases
    figure: re.Pattern[str]


_NUMBER = r"\d(?<!\d\d)(?:[\d.,]{0,18}\d)?"
"""An amount of bounded length; without the bound a row of digits and commas takes seconds.

It begins with the digit itself, so that a search skips all other characters at once.
"""
_SIGNS = "[€$£¥₹₩₽¢%‰％٪]"
_SIGNED = (re.compile(rf"{_NUMBER}\s?{_SIGNS}"), re.compile(rf"{_SIGNS}\s?\d"), re.compile(r"百分之\d"))

_HAS_SIGN = WordSearch(patterns=(f"{_SIGNS}|百分之",))


@cache
def _compile(*codes: str) -> _Patterns:
    spaced = all(language_tables()[code].get("spaced", True) for code in codes)
    arabic = "ar" in codes

    def listed(kind: str) -> Iterable[str]:
        for code in codes:
            for text in language_tables()[code]["wording"][kind]:
                for name, part in language_tables()[code]["parts"].items():
                    text = text.replace(f"{{{name}}}", part)  # noqa: PLW2901 - one text with its parts
                yield plain_arabic(text) if arabic else text

    def either(kind: str) -> re.Pattern[str]:
        return re.compile("|".join(listed(kind)))

    def phrases(kind: str, before: str = "", after: str = "") -> _Phrases:
        longest_first = tuple(sorted(set(listed(kind)), key=lambda phrase: (-len(phrase), phrase)))
        alternatives = "|".join(map(re.escape, longest_first))
        return _Phrases(WordSearch(*longest_first), re.compile(f"{before}({alternatives}){after}"))

    # Arabic joins "and" and "so" to the next word.
    before_word, after_word = (r"(?<!\w)[وف]?" if arabic else r"(?<!\w)", r"(?!\w)") if spaced else ("(?<!不)", "")
    return _Patterns(
        denial=WordSearch(patterns=("|".join(listed("denials")),)),
        hedge=(hedge := either("hedges")),
        hedge_in_ascii=AsciiSearch(lambda: hedge.pattern),
        turn=phrases("turns", before_word if spaced else "", after_word).pattern,
        courtesy=re.compile(f"(?:{either('courtesies').pattern}){after_word}"),
        next_step=either("next_steps"),
        strong=phrases("strong", before_word, after_word),
        moderate=phrases("moderate", before_word, after_word),
        factual=phrases("factual", rf"\A\W*{before_word}" if arabic else before_word if spaced else "", after_word),
        # The number comes first, because the search goes by the beginning of a pattern.
        figure=phrases("units", rf"{_NUMBER}[\s\u00a0-]?", after_word).pattern,
    )


def _ready(text: str) -> tuple[str, Sequence[_Patterns]]:
    """The text in the spelling of the patterns, and the patterns that may match it."""
    text = text[:_MOST].lower()
    latin = _compile("en", "de", "es", "fr")
    if text.isascii():
        return text, (latin,)
    text = text.replace("’", "'")
    patterns = [latin]
    if _HAN.search(text):
        patterns.append(_compile("zh"))
    if _ARABIC.search(text):
        text = plain_arabic(text)
        patterns.append(_compile("ar"))
    return text, patterns


# ---- sentences -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def is_negative(sentence: str) -> bool:
    """Tells whether a sentence holds a word that every denial holds; the latest are cached, because they are asked twice."""
    text, patterns = _ready(sentence)
    return any(language.denial(text) for language in patterns)


def denied_part(sentence: str) -> str | None:
    """The words of a denial beside those that deny; None for a sentence that is no denial."""
    if not is_negative(sentence):
        return None
    text, patterns = _ready(sentence)
    if not any(language.hedge_in_ascii.may_match(text) for language in patterns):
        return None
    start = apology.end() if (apology := _apologies().match(text)) else 0
    hedges = [match.span() for language in patterns for match in language.hedge.finditer(text, start)]
    if not hedges or any(language.turn.search(text, start) for language in patterns):
        return None
    if len(text) == len(sentence):
        text = sentence
    for begin, end in hedges:
        text = text[:begin] + " " * (end - begin) + text[end:]
    return text[start:]


@cache
def _apologies() -> re.Pattern[str]:
    """The patterns of an apology before a refusal, in all languages."""
    tables = language_tables().values()
    return re.compile("|".join(table["statements"]["apologies"] for table in tables if "statements" in table))


def may_open_politely() -> str:
    """The pattern of what `opens_politely` and `is_next_step` look for at the start of a text in lower case, for ASCII."""
    latin = _compile("en", "de", "es", "fr")
    return f"{latin.courtesy.pattern}|{latin.next_step.pattern}|{_apologies().pattern}"


def opens_politely(sentence: str) -> bool:
    """Tells whether a sentence begins with a greeting, thanks, an apology or the like."""
    text, patterns = _ready(sentence.lstrip("¡¿ "))
    return any(language.courtesy.match(text) for language in patterns) or _apologies().match(text) is not None


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
    # Beyond ASCII, for 百分之.
    signed = (_SIGNED[:-1] if text.isascii() else _SIGNED) if _HAS_SIGN(text) else ()
    return sum([len(pattern.findall(text)) for pattern in (*signed, *[language.figure for language in patterns])])


DENIAL = "it only says that the sources do not answer"
"""The reason for a sentence that only reports a gap in the sources."""
