"""Reads the facts of a sentence in order: numbers with their unit, dates, words that turn or bound it, and all other words of content.

Two facts say the same if one's ``keys`` are among what the other one ``covers``: two years are 24 months, 31 May is in May.
"""
# ruff: noqa: RUF001 - typographic and full-width characters are meant
# ruff: noqa: C901, PLR0911, PLR0912, PLR0917, PLR2004 - a grammar of numbers and dates: its cases and the numbers of a calendar

import re
from collections.abc import Hashable
from enum import StrEnum
from functools import cache, lru_cache
from typing import NamedTuple

from tasks.text.fact_words import NOT, FactWords, Side, fact_words, root_of
from tasks.text.memo import Memo
from tasks.text.numbers import number
from tasks.text.sentences import HIDDEN


class Kind(StrEnum):
    """The kind of a fact."""

    NUMBER = "number"
    DATE = "date"
    NAME = "name"
    SIGN = "sign"
    """A negation, condition, modal, limit, quantifier, direction."""
    WORD = "word"


class Fact(NamedTuple):
    """One fact at ``[start, end)`` of its text."""

    kind: Kind
    start: int
    end: int
    keys: frozenset[Hashable]
    covers: frozenset[Hashable]
    group: frozenset[Hashable]
    """What it is one of: facts of one group exclude one another, such as lengths, parts of dates, opposites."""
    role: str = ""
    """The function word that leads it, from, to, by; or the case that its article tells."""
    clause: int = 0
    """The number of its part of the sentence, between commas and the like."""
    amounts: tuple[float, ...] = ()
    """The readings of its number in its own unit."""

    @property
    def denies(self) -> bool:
        """Tells whether it is a negation."""
        return NOT[0] in self.group


RELATIVE = "who"
"""The role of the first fact of a clause about the noun before it."""
OF = "of"
"""The role of what belongs to the word before it, in each language."""


class FactText(NamedTuple):
    """The facts of a sentence; those of a language without lists are all its words."""

    text: str
    facts: tuple[Fact, ...]
    has_lists: bool

    def of(self, fact: Fact) -> str:
        """The words of one of its facts, with the sign of a negative number."""
        signed = fact.amounts and max(fact.amounts) < 0 and _SIGNED.search(self.text[: fact.start])
        return self.text[signed.start() if signed else fact.start : fact.end]


_TOKEN = re.compile(
    r"(?P<code>\b(?!USD|EUR|GBP|CHF|JPY|CNY|INR|RUB|PLN|SEK|NOK|DKK)[A-Z]{1,5}-?\d{1,4}[A-Z]?\b(?![.,:/]\d)|\b[A-Z]{1,3}[+#-]{1,2}(?![\w+#-]))"
    r"|(?P<word>(?:(?![\u3400-\u9fff\u3040-\u30ff])[^\W\d_])+|[\u3400-\u9fff\u3040-\u30ff])"
    r"|(?P<date>\d{4}-\d{2}-\d{2}(?!\d)|\d{4}年\d{1,2}月\d{1,2}日|(?<![\d.])\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d{2})(?![\d/])|(?<![\d.,])[0-3]?\d\.[01]?\d\.(?=\s|,|\Z))"
    r"|(?P<time>(?<![\d.,:])(?:[01]?\d|2[0-4])(?:[:.][0-5]\d(?:\s?[ap]\.?\s?m\b\.?|\s?Uhr\b|\s?h\b)|:[0-5]\d(?![\d:])|\s?[ap]\.?\s?m\b\.?|\s?Uhr\b|\s?h\s?[0-5]\d(?!\d)))"
    r"|(?P<number>(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d])(?:,\d+)?|\d+(?:(?:[.,'’\u00a0\u202f\u2009]|, )\d{3}(?!\d)|[.,]\d+)*(?:[/⁄]\d+)?)"
    r"|(?P<mark>[<>≤≥±≈~−+]|[%‰°²³]|[^\W\d]|[€$£¥₹₩₽₺¢]|-(?=\d))"
    r"|(?P<break>[!?。！？]+|[,;:()\n，；：、（）—|]|[–-](?=\s))"
)
_TOKEN_OR_ADDRESS = re.compile(
    r"(?P<address>(?:https?://|www\.)[^\s<>\"]+(?<![.,;:!?)])|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+)|"
    + _TOKEN.pattern
)
"""The parts of an address have the lengths of RFC 5321 and RFC 1035: without a bound a row of letters and points takes minutes."""
_ADDRESS_SIGNS = ("@", "://", "www.")
_RAISED = re.compile("[¹²³⁰⁴-⁹]")
_SUPERSCRIPT = re.compile(r"(?<=[\d\w.,;:!?)\"])[¹²³⁰⁴-⁹]+(?![\w])")
_SCALE = re.compile(r"[ \u00a0\u202f-]?((?:(?![\u3400-\u9fff])[^\W\d_])+|[\u3400-\u9fff])(?:\.(?=\s+\S))?")
_MINUS = re.compile(r"\bminus \Z", re.IGNORECASE)
_SIGNED = re.compile(r"(?:[-−–]|\bminus )\Z", re.IGNORECASE)
_ORDINAL = re.compile(r"(?:st|nd|rd|th|º|ª|er|ère|ème)\b|\.(?=\s)")
_DIGITS = {
    **{zero + digit: str(digit) for zero in (0x660, 0x6F0, 0x966, 0xFF10) for digit in range(10)},
    0x66A: "%",
    0x66B: ".",
    0x66C: ",",
}
"""Digits of other scripts, and the marks between them in Arabic."""
_SIGN_OF = {
    "<": ("limit", 1),
    "≤": ("limit", 1),
    ">": ("limit", 0),
    "≥": ("limit", 0),
    "±": ("tolerance", 0),
    "~": ("roughly", 0),
    "≈": ("roughly", 0),
}
_VERSION = re.compile(r"\d+\.[1-9]\d*0")
"""The number of a version, a clause or a room where no unit follows: 3.10 is not 3.1."""
_YEAR = re.compile(r"(?:1[1-9]|20)\d\d\Z")
_HAN = re.compile("[\u3400-\u9fff\u3040-\u30ff]")
_TIMES = frozenset({"second", "month"})
_CLAUSE_NUMBER = re.compile(r"\d{1,3}(?:\.\d{1,3})+\.?\s+(?![A-Z]+[a-z]?[A-Z]|[A-Z]\b)[^\W\d_a-z]")
"""The number of a clause before its first sentence; GHz, mAh and W are units."""
_JOINTS = frozenset(" \u00a0\u202f\n-")
"""Characters that may stand between a number and its unit."""
_CHUNK = re.compile(r"[^\s\d,;:()\[\]\"“”|–—]+")
_CURRENCY = re.compile(
    r"(?:[A-Z]{0,3}[€$£¥₹₩₽₺]|\b(?:USD|EUR|GBP|CHF|JPY|CNY|INR|RUB|PLN|SEK|NOK|DKK|Rs\.?|Fr\.?))[ \u00a0]?\Z"
)
_COMPOUND = 4
"""Least letters of a unit at the end of a compound: Werktage."""


# 10 KB each.
@lru_cache(maxsize=512)
def read_facts(text: str, code: str | None) -> FactText:
    """Reads a sentence with the words of a language."""
    words = fact_words(code)
    if not text.isascii():
        if HIDDEN.search(text) is not None:
            return _read_hiding(text, code)
        text = text.translate(_DIGITS)
    return _Reader(text, words, _plain_words(code)).read()


def _read_hiding(text: str, code: str | None) -> FactText:
    """Reads a text without the characters that nobody sees in it; its facts stand where they do with these."""
    places = [at for at, character in enumerate(text) if HIDDEN.match(character) is None]
    read = read_facts("".join([text[at] for at in places]), code)
    facts = [fact._replace(start=places[fact.start], end=places[fact.end - 1] + 1) for fact in read.facts]
    return read._replace(text=text, facts=tuple(facts))


class _Token(NamedTuple):
    kind: str
    text: str
    low: str
    start: int
    end: int


class _Plain(NamedTuple):
    """A word that means the same wherever it stands: one of content, with a root, or a function word."""

    root: frozenset[Hashable] = frozenset()
    opposites: frozenset[Hashable] = frozenset()
    role: str = ""
    """The role of the words after it that it tells."""
    case: str = ""
    """The same, unless a preposition tells another one."""


def _plain(text: str, words: FactWords) -> _Plain | None:
    """The meaning of a word that is no sign, month, weekday or number where it stands; None for others."""
    low = text.casefold()
    if low in words.roles:
        return _Plain(role=words.roles[low])
    if (case := words.cases.get(low)) is not None:
        return _Plain(case=case)
    if low in words.relatives or low in words.joins:
        return None
    if low in words.neutral:
        return _Plain()
    if len(low) == 1 or words.unit(text):
        return None
    return _content(text, words)


def _content(text: str, words: FactWords) -> _Plain:
    """The meaning of a word of content."""
    root = root_of(text.casefold(), words.endings, words.code, noun=text[0].isupper())
    return _Plain(frozenset({root}), words.opposites.get(root, frozenset()))


_MOST_WORDS = 32_768
"""Most words in a table: 10 MB for a language."""


@cache
def _plain_words(code: str | None) -> Memo[str, _Plain | None]:
    """The words of a language that mean the same wherever they stand, as they are written; None for others."""
    words = fact_words(code)
    varying = (words.signs, words.months, words.weekdays, words.numbers, words.articles_of_one, words.halves)

    def read(text: str) -> _Plain | None:
        return None if any(text.casefold() in table for table in varying) else _plain(text, words)

    return Memo(read, _MOST_WORDS)


class _Reader:
    """One reading of one text."""

    def __init__(self, text: str, words: FactWords, plain: Memo[str, _Plain | None]) -> None:
        self._text, self._words, self._plain = text, words, plain
        self._facts: list[Fact] = []
        self._tokens = _split(text)
        self._clause = 0
        self._role = ""
        self._opens = True
        self._pending: tuple[int, int] | None = None

    def read(self) -> FactText:
        at = 0
        while at < len(self._tokens):
            at = self._read(at)
        return FactText(self._text, tuple(self._facts), self._words.has_lists)

    def _add(
        self,
        kind: Kind,
        start: int,
        end: int,
        keys: frozenset[Hashable],
        group: frozenset[Hashable] = frozenset(),
        covers: frozenset[Hashable] | None = None,
        amounts: tuple[float, ...] = (),
    ) -> None:
        fact = Fact(kind, start, end, keys, covers or keys, group, self._role, self._clause, amounts)
        self._facts.append(fact)
        self._opens, self._role = False, ""

    def _read(self, at: int) -> int:
        """Reads what begins with a token; returns the position behind it."""
        token = self._tokens[at]
        if token.kind == "break":
            self._clause += 1
            self._role = ""
            self._opens = self._opens or token.text[0] in ".!?\n:"
            return at + 1
        if token.kind in {"date", "time"}:
            return self._digits_of_date(at)
        if token.kind == "number":
            if self._opens and _CLAUSE_NUMBER.match(self._text, token.start):
                return at + 1
            return self._month_date(at) or self._number(at, _value(token.text), token)
        if token.kind in {"address", "code"}:
            # HT-3 is HT3, but A- is not A.
            joined = token.text.replace("-", "") if token.text[-1].isalnum() else token.text
            self._add(Kind.NAME, token.start, token.end, frozenset({joined}))
            return at + 1
        if token.kind == "mark":
            if (side := _SIGN_OF.get(token.text)) is not None:
                self._sign(token.start, token.end, frozenset({side}))
            return at + 1
        return self._word(at)

    # ---- words ----

    def _word(self, at: int) -> int:
        token, words = self._tokens[at], self._words
        if self._is_label(at):
            self._add(Kind.NAME, token.start, token.end, frozenset({token.low}))
            return at + 1
        if (plain := self._plain[token.text]) is not None:
            return self._add_plain(at, plain)
        if token.low in words.halves and (following := self._half(at)) is not None:
            return following
        if (signed := self._signs_at(at)) is not None:
            last, sides = signed
            if NOT in sides and self._opens and self._low(last + 1) == ",":
                # No, it costs nothing.
                return last + 1
            if not (last == at and self._is_month(at)):
                self._sign(token.start, self._tokens[last].end, sides)
                return last + 1
        if token.low in words.months and (following := self._month_date(at)) is not None:
            return following
        if token.low in words.weekdays and len(token.low) > 2:
            key = ("weekday", words.weekdays[token.low])
            self._add(Kind.DATE, token.start, token.end, frozenset({key}), frozenset({"weekday"}))
            return at + 1
        if token.low in words.numbers and token.low != "second":
            return self._number_words(at)
        if token.low in words.articles_of_one and self._low(at + 1) in words.halves:
            return at + 1
        if token.low in words.articles_of_one and (unit := self._unit_behind(token.end)) is not None:
            return self._single_unit(at, *unit)
        if (plain := _plain(token.text, words)) is not None:
            return self._add_plain(at, plain)
        if token.low in words.relatives and at and self._tokens[at - 1].kind == "break":
            self._role = RELATIVE
            return at + 1
        if token.low in words.joins:
            self._clause += 1
            return at + 1
        if token.low in words.neutral or (
            len(token.low) == 1 and token.text.islower() and words.spaced and not _HAN.match(token.low)
        ):
            return at + 1
        if token.text in words.units and _CURRENCY.fullmatch(token.text) and self._is_before_number(at):
            return at + 1
        if meanings := (words.unit(token.low) if len(token.low) > 3 else ()):
            times = frozenset((dimension, factor) for dimension, factor in meanings)
            self._add(
                Kind.WORD, token.start, token.end, frozenset(("unit", *each) for each in times), frozenset({"unit"})
            )
            return at + 1
        self._add_word(token, _content(token.text, words))
        return at + 1

    def _add_plain(self, at: int, plain: _Plain) -> int:
        if plain.root:
            self._add_word(self._tokens[at], plain)
        else:
            self._role = self._role if self._role == RELATIVE else plain.role or self._role or plain.case
        return at + 1

    def _is_label(self, at: int) -> bool:
        """Tells whether a letter names what stands before it, such as vitamin A."""
        letter = self._tokens[at].text
        if len(letter) > 1 or not letter.isupper() or at == 0 or self._tokens[at - 1].kind != "word":
            return False
        before = self._plain[self._tokens[at - 1].text]
        return before is not None and bool(before.root)

    def _add_word(self, token: _Token, plain: _Plain) -> None:
        is_name = token.text[0].isupper() and not self._opens and not self._words.nouns_in_capitals
        self._add(Kind.NAME if is_name else Kind.WORD, token.start, token.end, plain.root, plain.opposites)

    def _sign(self, start: int, end: int, sides: frozenset[Side]) -> None:
        self._add(Kind.SIGN, start, end, sides, frozenset(group for group, _ in sides))

    def _signs_at(self, at: int) -> tuple[int, frozenset[Side]] | None:
        """The last token and the sides of a word or phrase that turns or bounds a statement; None for others."""
        for behind, sides in self._words.signs.get(self._tokens[at].low, ()):
            last = at + len(behind)
            if behind == tuple(token.low for token in self._tokens[at + 1 : last + 1]):
                return last, sides
        return None

    def _is_month(self, at: int) -> bool:
        token = self._tokens[at]
        before = self._low(at - 1) if at else ""
        return (
            token.low in self._words.months
            and token.text[0].isupper()
            and (before[:1].isdigit() or before in self._words.roles or self._is_before_number(at))
        )

    # ---- numbers ----

    def _number(self, at: int, values: tuple[float, ...], token: _Token) -> int:
        """A number in digits with its sign, scale and unit."""
        before = self._text[max(0, token.start - 6) : token.start]
        money = _CURRENCY.search(before)
        bare = before[: money.start()] if money else before
        negative = _MINUS.search(bare) is not None or (
            bare[-1:] in {"-", "−", "–"}
            and not bare[-2:-1].isalnum()
            and not (bare[-2:-1].isspace() and bare[-3:-2].isdigit())
        )
        end, factor = self._scale_behind(token.end, money=money is not None)
        units = self._words.unit(money[0].strip().rstrip(".")) if money else ()
        if not units:
            unit = self._unit_behind(end)
            if unit is not None:
                units, end = unit
        values = tuple(-value * factor if negative else value * factor for value in values)
        raw = token.text
        if not units and factor == 1 and _YEAR.match(raw):
            self._add(
                Kind.DATE,
                token.start,
                token.end,
                frozenset({("date", int(raw), 0, 0), ("", float(raw))}),
                frozenset({"date"}),
                amounts=(float(raw),),
            )
            return at + 1
        if not units and (ordinal := _ORDINAL.match(self._text, end)) and ordinal[0] != ".":
            end = ordinal.end()
        if not units and factor == 1 and _VERSION.fullmatch(raw):
            self._add(Kind.NUMBER, token.start, end, frozenset({("code", raw)}), frozenset({"code"}), amounts=values)
            return at + 1
        start = token.start - (len(money[0]) if money else 0)
        self._quantity(start, end, values, units)
        return self._behind(at, end)

    def _quantity(self, start: int, end: int, values: tuple[float, ...], units: tuple[tuple[str, float], ...]) -> None:
        keys = frozenset(
            (dimension, _rounded(value * factor)) for dimension, factor in units or (("", 1.0),) for value in values
        )
        group = frozenset(dimension for dimension, _ in units) or frozenset({""})
        if any(len(dimension) == 3 and dimension.isupper() for dimension in group):
            group |= {"money"}
        if group & _TIMES:
            group |= {"time"}
        self._add(Kind.NUMBER, start, end, keys, group, amounts=values)
        if self._pending is not None:
            begin, stop = self._pending
            self._pending = None
            low = self._text[begin:stop].strip().casefold()
            if low not in self._words.neutral and low not in _FILLERS:
                self._add(Kind.WORD, begin, stop, frozenset({root_of(low, self._words.endings, self._words.code)}))

    def _number_words(self, at: int) -> int:
        """A number in words: two hundred and fifty."""
        if not self._words.spaced:
            return self._han_number(at)
        numbers = self._words.numbers
        total = current = 0.0
        last = at
        position = at
        while True:
            value = numbers.get(self._low(position))
            if value is None:
                if (
                    position == last + 1
                    and self._low(position) in {"and", "und", "y", "et", "e"}
                    and self._low(position + 1) in numbers
                    and current >= 100
                ):
                    position += 1
                    continue
                break
            if value >= 100:
                current = (current or 1.0) * value
                if value >= 1000:
                    total, current = total + current, 0.0
            elif current and current % 100 and not (current % 100 >= 20 and value < 10):
                break
            else:
                current += value
            last = position
            position += 1
        end = self._tokens[last].end
        if (half := _AND_A_HALF.match(self._text, end)) is not None:
            current, end = current + 0.5, half.end()
        units: tuple[tuple[str, float], ...] = ()
        if (match := self._unit_behind(end)) is not None:
            units, end = match
        self._quantity(self._tokens[at].start, end, (total + current,), units)
        return self._behind(last, end)

    def _han_number(self, at: int) -> int:
        """A number in Chinese characters before a unit or a scale, or of several characters; else a character of a word."""
        token, last = self._tokens[at], at
        value = digit = 0.0
        while (each := self._words.numbers.get(self._low(last))) is not None:
            if each < 10:
                # Digits in a row are those of a year: 一九九八.
                digit = digit * 10 + each
            else:
                value, digit = value + (digit or 1.0) * each, 0.0
            last += 1
        stop = self._tokens[last - 1].end
        end, factor = self._scale_behind(stop, money=False)
        unit = self._unit_behind(end)
        if unit is None and end == stop and last == at + 1:
            self._add_word(token, _content(token.text, self._words))
            return at + 1
        meanings, end = unit or ((), end)
        self._quantity(token.start, end, ((value + digit) * factor,), meanings)
        return self._behind(last - 1, end)

    def _half(self, at: int) -> int | None:
        """Half a unit: half an hour, media hora; None for other halves."""
        end = self._tokens[at + (self._low(at + 1) in self._words.articles_of_one)].end
        unit = self._unit_behind(end + (self._text[end : end + 1] in _APOSTROPHES))
        if unit is None or self._pending is not None:
            self._pending = None
            return None
        self._quantity(self._tokens[at].start, unit[1], (0.5,), unit[0])
        return self._behind(at, unit[1])

    def _single_unit(self, at: int, units: tuple[tuple[str, float], ...], end: int) -> int:
        """An article before a unit: one of it, or per unit."""
        token = self._tokens[at]
        if (half := _AND_A_HALF.match(self._text, end)) is not None:
            self._quantity(token.start, half.end(), (1.5,), units)
            return self._behind(at, half.end())
        keys = frozenset(
            {("unit", *unit) for unit in units} | {(dimension, _rounded(factor)) for dimension, factor in units}
        )
        group = frozenset(dimension for dimension, _ in units)
        group |= {"unit", "time"} if group & _TIMES else {"unit"}
        self._add(Kind.NUMBER, token.start, end, keys, group, amounts=(1.0,))
        return self._behind(at, end)

    def _behind(self, at: int, end: int) -> int:
        while at < len(self._tokens) and self._tokens[at].start < end:
            at += 1
        return at

    def _scale_behind(self, end: int, *, money: bool) -> tuple[int, float]:
        """The end of the scale behind a number, and its factor: 3 million, $3m, 3亿."""
        factor = 1.0
        while (match := _SCALE.match(self._text, end)) is not None:
            name = match[1]
            scale = self._words.scales.get(name) or (self._words.scales.get(name.casefold()) if len(name) > 1 else None)
            if name == "m" and money:
                scale = 1e6
            if scale is None or (len(name) == 1 and name.isascii() and not money):
                break
            factor *= scale
            end = match.end()
        return end, factor

    def _unit_behind(self, end: int) -> tuple[tuple[tuple[str, float], ...], int] | None:
        """The unit behind a number and where it ends; a word may stand between the number and a time: three working days."""
        text, words = self._text, self._words
        start = end + (text[end : end + 1] in _JOINTS)
        if not words.spaced or _HAN.match(text, start):
            for length in (3, 2, 1):
                if meanings := words.units.get(text[start : start + length]):
                    return meanings, start + length
            return None
        chunks = [(match.start(), match.end()) for match in _CHUNK.finditer(text[start : start + 40])]
        if not chunks or chunks[0][0] != 0:
            return None
        for count in (3, 2, 1):
            if len(chunks) >= count:
                name = " ".join(text[start + a : start + b] for a, b in chunks[:count]).replace("\u00a0", " ")
                for candidate in (name, name.rstrip(".!?'’*_"), name.split("-")[0] if count == 1 else ""):
                    if (
                        candidate
                        and (meanings := words.unit(candidate))
                        and not (count == 1 and candidate in _NO_UNITS)
                    ):
                        return meanings, start + chunks[count - 1][1] - len(name) + len(candidate)
        name = text[start : start + chunks[0][1]].rstrip(".!?'’*_")
        if "/" in name and all(map(words.unit, name.split("/"))):
            # Its dimension is its name: mg/g is not g/mg.
            return ((name, 1.0),), start + len(name)
        return self._unit_of_time(start, chunks)

    def _unit_of_time(
        self, start: int, chunks: list[tuple[int, int]]
    ) -> tuple[tuple[tuple[str, float], ...], int] | None:
        """The unit of time behind another word, or at the end of a compound: the word stays a fact of its own."""
        for begin, stop in chunks[1:2]:
            if self._text[start + chunks[0][1] : start + begin] not in {" ", "\u00a0"}:
                break
            name = self._text[start + begin : start + stop].rstrip(".!?'’*_")
            if meanings := self._of_time(name):
                self._pending = (start, start + begin)
                return meanings, start + begin + len(name)
        name = self._text[start : start + chunks[0][1]].rstrip(".!?'’*_")
        for boundary in range(2, len(name) - _COMPOUND + 1) if self._words.code in {"de", "nl"} else ():
            if name[boundary].islower() and (meanings := self._of_time(name[boundary:])):
                self._pending = (start, start + boundary)
                return meanings, start + len(name)
        return None

    def _of_time(self, name: str) -> tuple[tuple[str, float], ...]:
        """The meanings of the name of a unit of time; empty for others."""
        meanings = self._words.unit(name) if len(name) >= _COMPOUND - 1 else ()
        return tuple(meaning for meaning in meanings if meaning[0] in _TIMES)

    # ---- dates ----

    def _digits_of_date(self, at: int) -> int:
        token = self._tokens[at]
        if token.kind == "time":
            clock = frozenset({("clock", _seconds(token.text))})
            self._add(Kind.DATE, token.start, token.end, clock, frozenset({"clock"}))
            return at + 1
        parts = [int(part) for part in re.findall(r"\d+", token.text)]
        if token.text[:4].isdigit():
            year, month, day = parts
        elif len(parts) == 2 and self._words.code != "de":
            return self._number(at, _value(token.text[:-1]), token._replace(text=token.text[:-1], end=token.end - 1))
        elif len(parts) == 2:
            (day, month), year = parts, 0
        else:
            day, month, year = parts
            year += 2000 if year < 100 else 0
        if month > 12 >= day:
            month, day = day, month
        self._date(token.start, token.end, year, month, day)
        return at + 1

    def _date(self, start: int, end: int, year: int, month: int, day: int) -> None:
        covers = {("date", y, m, d) for y in {year, 0} for m in {month, 0} for d in {day, 0} if (y, m, d) != (0, 0, 0)}
        self._add(
            Kind.DATE,
            start,
            end,
            frozenset({("date", year, month, day)}),
            frozenset({"date"}),
            frozenset(covers | ({("", float(year))} if year else set())),
        )

    def _month_date(self, at: int) -> int | None:
        """A date with the name of its month: 1 April 2024, April 1, 2024, am 1. April; None for others."""
        tokens, months = self._tokens, self._words.months
        month_at = next((place for place in range(at, at + 4) if self._low(place) in months), None)
        if month_at is None or (month_at > at and tokens[at].kind != "number"):
            return None
        if tokens[month_at].low in _WORDS_TOO and tokens[month_at].text[0].islower() and self._words.code == "en":
            return None
        if any(
            token.low not in {"of", "de", "st", "nd", "rd", "th", ".", "er", "the"}
            for token in tokens[at + 1 : month_at]
        ):
            return None
        if (
            month_at == at
            and tokens[at].text[0].islower()
            and (tokens[at].low in {"mars", "mai", "marzo"} or tokens[at].low in self._words.numbers)
            and not self._is_before_number(at)
        ):
            return None
        day, year, end = 0, 0, month_at
        if month_at > at and not (day := _day(tokens[at].text)):
            return None
        place = month_at + 1
        if not day and (day := _day(self._low(place))):
            end, place = place, place + 1
            if self._low(place) in {"st", "nd", "rd", "th"}:
                end, place = place, place + 1
        if self._low(place) in {",", "de", "del"}:
            place += 1
        if _YEAR.match(self._low(place)):
            year, end = int(tokens[place].text), place
        self._date(tokens[at].start, tokens[end].end, year, months[tokens[month_at].low], day)
        return end + 1

    def _is_before_number(self, at: int) -> bool:
        return self._low(at + 1)[:1].isdigit()

    def _low(self, at: int) -> str:
        """A token in lower case; empty beyond the last one."""
        return self._tokens[at].low if at < len(self._tokens) else ""


def _day(text: str) -> int:
    """The number of a day of a month; 0 for other texts."""
    return int(text) if text.isdecimal() and len(text) <= 2 and int(text) <= 31 else 0


_WORDS_TOO = frozenset({"may", "march"})
"""Months in English that are words, too."""
_AND_A_HALF = re.compile(r" (?:and a half|einhalb|et demie?|y medi[oa]|e mezz[oa]|en een half)\b")
_FILLERS = frozenset(
    "further more additional other weitere weiteren weiterer zusätzliche autres supplémentaires más otros altri ulteriori extra".split()
)
"""Words between a number and its unit that say nothing of it."""
_NO_UNITS = frozenset({"in", "to", "al", "o", "p", "a", "on", "an", "at", "des", "e", "im", "de", "som", "non", "per"})
"""Symbols and short names that are words, too."""


def _split(text: str) -> list[_Token]:
    if _RAISED.search(text) is not None:
        text = _SUPERSCRIPT.sub(
            lambda match: match[0] if match[0] in "²³" and text[match.start() - 1].isalpha() else " " * len(match[0]),
            text,
        )
    tokens: list[_Token] = []
    # To look for addresses everywhere takes as long again.
    pattern = _TOKEN_OR_ADDRESS if any(sign in text for sign in _ADDRESS_SIGNS) else _TOKEN
    for match in pattern.finditer(text):
        kind, token = match.lastgroup or "", match[0]
        start, end = match.span()
        low = token.casefold() if kind == "word" else token
        if low == "cannot":
            tokens += _Token("word", "can", "can", start, end), _Token("word", "not", "not", start, end)
        elif low in _CLITICS and text[start - 1 : start] in _APOSTROPHES:
            if low == "t" and tokens and tokens[-1].low[-1] == "n":
                before = tokens[-1]
                verb = _CONTRACTED.get(before.low, before.low[:-1] or before.low)
                tokens[-1] = before._replace(text=verb, low=verb)
                tokens.append(_Token("word", "not", "not", start - 1, end))
            elif low == "t":
                tokens.append(_Token(kind, token, low, start, end))
            elif low == "ll":
                tokens.append(_Token(kind, "will", "will", start, end))
        else:
            tokens.append(_Token(kind, token, low, start, end))
    return tokens


_APOSTROPHES = frozenset("'’")
_CLITICS = frozenset({"t", "s", "ll", "re", "ve"})
_CONTRACTED = {"can": "can", "won": "will", "shan": "shall"}


def _value(raw: str) -> tuple[float, ...]:
    """The readings of a number in digits: ``1.200`` has two."""
    plain = re.sub(r"[\u00a0\u202f\u2009 ]", "", raw)
    top, _, bottom = plain.replace("⁄", "/").partition("/")
    try:
        value = float(number(top)) / (float(number(bottom or "1")) or 1.0)
    except ValueError:
        return (float(re.sub(r"\D", "", plain) or 0),)
    if re.fullmatch(r"[1-9]\d{0,2}\.\d{3}", plain):
        return value, float(plain.replace(".", ""))
    return (value,)


def _rounded(value: float) -> float:
    return float(f"{value:.12g}")


def _seconds(raw: str) -> float:
    """The seconds from midnight to a time."""
    hour, minute = (int(part) for part in [*re.findall(r"\d+", raw), "0"][:2])
    half = re.search(r"([ap])\.?\s?m", raw, re.IGNORECASE)
    if half:
        hour = hour % 12 + (12 if half[1].lower() == "p" else 0)
    return 3600.0 * hour + 60.0 * minute
