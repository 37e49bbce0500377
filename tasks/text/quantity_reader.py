"""Reads the quantities of a text: numbers in digits and words with their scale and unit, ranges, and the parts of dates."""
# ruff: noqa: RUF001 - typographic characters are meant

import re

from tasks.text.fact_text import HAN_NUMBER, SIGNS, FactText
from tasks.text.lexicon import Lexicon
from tasks.text.quantities import DAY, MONTH, NUMBER, PERCENT, POINTS, WEEKDAY, YEAR, Quantity

_AMBIGUOUS = re.compile(r"\d{1,3}\.\d{3}\Z")
_ISO = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_POINTED = re.compile(r"(\d{1,2})[./](\d{1,2})[./](\d{4}|\d{2})\Z")
_FOUR_DIGITS = re.compile(r"\d{4}\Z")
_YEARS = re.compile(r"((?:1\d|20)\d\d)[–/-](\d\d)(?!\d|-\d)")
_YEAR = range(1000, 2200)
_LAST_DAY = 31
_LAST_MONTH = 12
_TWENTY = 20
_SCALE = 100
"""A number word from here on multiplies what stands before it."""


def read_quantities(facts: FactText, words: Lexicon) -> None:
    """Adds the quantities of a text to its facts."""
    counting, han = words.counting, "" if words.spaced else HAN_NUMBER
    last = -1
    for position in [
        at for at, low in enumerate(facts.lows) if low in counting or low[0].isdigit() or (han and low[0] in han)
    ]:
        if position <= last:
            continue
        low = facts.lows[position]
        if low[0].isdigit():
            last = _read_digits(facts, words, position)
        elif low in words.numbers or (han and low[0] in han):
            last = _read_words(facts, words, position)
        else:
            _read_other(facts, words, position)


def _read_other(facts: FactText, words: Lexicon, position: int) -> None:
    low = facts.lows[position]
    start = facts.spans[position][0]
    month = words.months.get(low)
    if month and (low not in {"may", "march", "mai", "mars", "marzo"} or _beside_digits(facts, position)):
        facts.quantities.append(Quantity(frozenset({float(month)}), "", MONTH, position, position))
    elif low in words.weekdays and (
        words.nouns_in_capitals or not words.spaced or facts.text[start].isupper() or words.code != "en"
    ):
        facts.quantities.append(Quantity(frozenset({float(words.weekdays[low])}), "", WEEKDAY, position, position))
    elif (low in words.count_words or low in words.articles) and position + 1 < len(facts.lows):
        unit = words.units.get(facts.lows[position + 1])
        if unit:
            article = low in words.articles
            facts.quantities.append(Quantity(frozenset({1.0}), unit, NUMBER, position, position + 1, article=article))


def _beside_digits(facts: FactText, position: int) -> bool:
    beside = facts.lows[max(0, position - 2) : position] + facts.lows[position + 1 : position + 3]
    if facts.lows[position] == "may":
        return _is_month_may(facts, position)
    return facts.text[facts.spans[position][0]].isupper() or any(low[0].isdigit() for low in beside)


def _read_digits(facts: FactText, words: Lexicon, position: int) -> int:
    start, end = facts.spans[position]
    if (last := _read_date(facts, position, facts.text[start:end])) is not None:
        return last
    try:
        value = float(facts.lows[position])
    except ValueError:
        return position
    raw = facts.text[start:end]
    values = {value}
    if _AMBIGUOUS.match(raw):
        values = {float(raw), float(raw.replace(".", ""))}
    last, factor = _scale(facts, words, position)
    if last == position:
        factor = _scale_of_range(facts, words, position)
    values = {reading * factor for reading in values}
    unit, last = _unit(facts, words, position, last)
    kind = NUMBER if unit else _kind(facts, words, position, value)
    if last == position + 1 and (part := _HAN_DATES.get(facts.lows[last])):
        unit, kind = "", part
    facts.quantities.append(Quantity(frozenset(values), unit, kind, position, last, _is_rough(facts, words, position)))
    return last


def _read_date(facts: FactText, position: int, raw: str) -> int | None:
    """Reads a date in digits; returns its last token, None if there is no date."""
    start = facts.spans[position][0]
    several = position + 2 < len(facts.lows)
    if several and (date := _ISO.match(facts.text, start)):
        return _add_date(facts, position, tuple(map(int, date.groups())), tokens=3)
    if date := _POINTED.match(raw):
        day, month, year = map(int, date.groups())
        return _add_date(facts, position, (year + (2000 if year < 100 else 0), month, day), tokens=1)  # noqa: PLR2004
    if several and (years := _YEARS.match(facts.text, start)):
        return _add_years(facts, position, years)
    return None


def _add_date(facts: FactText, position: int, date: tuple[int, ...], tokens: int) -> int:
    year, month, day = date
    if month > _LAST_MONTH >= day:
        month, day = day, month
    last = position + tokens - 1
    for kind, value in ((YEAR, year), (MONTH, month), (DAY, day)):
        facts.quantities.append(Quantity(frozenset({float(value)}), "", kind, position, last))
    return last


def _add_years(facts: FactText, position: int, years: re.Match[str]) -> int:
    """2018-19: the second year is 2019."""
    first, short = years.groups()
    tokens = 1 + (facts.lows[position + 1] in facts.text[years.start() + 4 : years.start() + 5])
    for value in (int(first), int(first[:2] + short)):
        facts.quantities.append(Quantity(frozenset({float(value)}), "", YEAR, position, position + tokens))
    return position + tokens


def _scale(facts: FactText, words: Lexicon, position: int) -> tuple[int, float]:
    """A number word after digits: 3 million, 2 dozen."""
    factor, last = 1.0, position
    while last + 1 < len(facts.lows):
        following = facts.lows[last + 1]
        power = words.numbers.get(following, 0.0)
        if power >= _SCALE or following in {"dozen", "m", "mn", "bn", "k", "mio", "mrd"}:
            factor *= {"dozen": 12.0, "k": 1e3, "m": 1e6, "mn": 1e6, "mio": 1e6, "bn": 1e9, "mrd": 1e9}.get(
                following, power
            )
            last += 1
        else:
            break
    return last, factor


def _scale_of_range(facts: FactText, words: Lexicon, position: int) -> float:
    """The scale of the range that a number begins: 1.32 to 1.36 billion, but not 40 of "40 and 2 million"."""
    lows = facts.lows
    end = position + 1
    if end >= len(lows) or (lows[end] not in _TO and not _is_hyphen(facts, position)):
        return 1.0
    end += lows[end] in _TO
    end += end < len(lows) and (lows[end] in SIGNS or bool(_code(facts, end)))
    if end >= len(lows) or not lows[end][0].isdigit():
        return 1.0
    _, factor = _scale(facts, words, end)
    # A range rises: "from 40 to 2 million" begins with 40.
    return factor if _value(facts, position) < _value(facts, end) else 1.0


def _value(facts: FactText, position: int) -> float:
    try:
        return float(facts.lows[position])
    except ValueError:
        return 0.0


def _is_hyphen(facts: FactText, last: int) -> bool:
    """Tells whether a hyphen, which is no token, joins a number to the next one."""
    if last + 1 >= len(facts.lows) or not facts.lows[last + 1][0].isdigit():
        return False
    return facts.text[facts.spans[last][1] : facts.spans[last + 1][0]].strip() == "-"


def _unit_of_measures(facts: FactText, words: Lexicon, last: int) -> str:
    """The unit behind all measures of a thing: 845 x 598 x 590 mm."""
    lows = facts.lows
    at = last
    while at + 1 < len(lows):
        # The sign for "times" is no token.
        by = facts.text[facts.spans[at][1] : facts.spans[at + 1][0]].strip() == "×"
        following = at + (1 if by else 2)
        if not (by or lows[at + 1] == "x") or following >= len(lows) or not lows[following][0].isdigit():
            break
        at = following
    return words.units.get(lows[at + 1], "") if last < at < len(lows) - 1 else ""


_CODES = {"eur": "€", "usd": "$", "gbp": "£", "jpy": "¥", "chf": "chf", "sfr": "chf"}
"""Codes of money, which stand before a number, too: EUR 85."""


def _code(facts: FactText, position: int) -> str:
    """The money that a code in capitals stands for; empty for other words."""
    money = _CODES.get(facts.lows[position], "")
    return money if money and facts.text[slice(*facts.spans[position])].isupper() else ""


_TO = frozenset("to bis à a – —".split())
_RANGE = frozenset("to and or bis und oder à et ou a y o e – —".split())
_PER = frozenset("per pro por pour".split())
_CENT = frozenset("cent ciento cento".split())


def _unit(facts: FactText, words: Lexicon, first: int, last: int) -> tuple[str, int]:
    """The unit before or after a number, and the last token with it."""
    lows = facts.lows
    if first and (money := SIGNS.get(lows[first - 1]) or _code(facts, first - 1)):
        return money, last
    following, second, third, fourth = (*lows[last + 1 : last + 5], "", "", "", "")[:4]
    if share := _share(words, following, second):
        return share[0], last + share[1]
    if following in SIGNS or following in words.units:
        return SIGNS.get(following) or words.units[following], last + 1
    # "three calendar months", "fünf volle Jahre", but not "the 2019 academic year"
    is_year = _FOUR_DIGITS.match(lows[first])
    if not is_year and second in words.units and last + 1 not in facts.breaks and facts.stems[last + 1].isalpha():
        return words.units[second], last + 2
    # A range shares its unit: 3 to 5 days, 3-5 days.
    if _is_hyphen(facts, last):
        following, second, third, fourth = "to", following, second, third
    unit = ""
    if following in _RANGE and (second[:1].isdigit() or second in words.numbers):
        share = _share(words, third, fourth)
        unit = share[0] if share else words.units.get(third) or SIGNS.get(third, "")
    elif first and lows[first - 1] in _TO:
        unit = _money_of_range(facts, first)
    elif following == "x" or following[:1].isdigit():
        unit = _unit_of_measures(facts, words, last)
    return unit, last


def _share(words: Lexicon, following: str, second: str) -> tuple[str, int] | None:
    """Percentage points, or per cent in two words, after a number, and the count of its tokens."""
    if f"{following} {second}" in words.points:
        return POINTS, 2
    if following in words.points:
        return POINTS, 1
    return (PERCENT, 2) if following in _PER and second in _CENT else None


def _money_of_range(facts: FactText, first: int) -> str:
    """The money before the range that a number ends: EUR 1.32 to 1.36 billion."""
    if not facts.quantities:
        return ""
    low = facts.quantities[-1]
    if low.last != first - _TO_TOKENS or not low.first:
        return ""
    before = low.first - 1
    return low.unit if facts.lows[before] in SIGNS or _code(facts, before) else ""


_TO_TOKENS = 2


def _kind(facts: FactText, words: Lexicon, position: int, value: float) -> str:
    """The kind of a number without a unit: a year, the day of a month, or a number."""
    start, end = facts.spans[position]
    if value == int(value) and int(value) in _YEAR and end - start == _YEAR_DIGITS and facts.text[start].isdigit():
        return YEAR
    if value == int(value) and 1 <= value <= _LAST_DAY and _beside_month(facts, words, position):
        return DAY
    return NUMBER


_YEAR_DIGITS = 4
_BEFORE_MONTH = frozenset({"st", "nd", "rd", "th", "er", "of", "de", "di", "."})


def _beside_month(facts: FactText, words: Lexicon, position: int) -> bool:
    if position and _is_month(facts, words, position - 1):
        return True
    for at in range(position + 1, min(position + 4, len(facts.lows))):
        if _is_month(facts, words, at):
            return True
        if facts.lows[at] not in _BEFORE_MONTH:
            return False
    return False


def _is_month(facts: FactText, words: Lexicon, position: int) -> bool:
    """Tells whether a word is a month: "children under two may" has none."""
    low = facts.lows[position]
    return low in words.months and (low != "may" or _is_month_may(facts, position))


def _is_month_may(facts: FactText, position: int) -> bool:
    """Tells whether "may" is the month: in capitals, or in a date (10th of may 1848)."""
    if facts.text[facts.spans[position][0]].isupper():
        return True
    before, after = facts.lows[max(0, position - 1) : position], facts.lows[position + 1 : position + 2]
    return any(low in _BEFORE_MONTH or low[0].isdigit() for low in before) or any(low[0].isdigit() for low in after)


def _is_rough(facts: FactText, words: Lexicon, position: int) -> bool:
    return any(low in words.about for low in facts.lows[max(0, position - 2) : position])


def _read_words(facts: FactText, words: Lexicon, position: int) -> int:
    """Number words: four, twenty-one, two hundred thousand, 八百."""
    if words.spaced:
        value, last = _words_value(facts, words, position)
    else:
        value, last = float(_han_value(facts.lows[position])), position
    last, factor = _scale(facts, words, last)
    value *= factor
    unit, last = _unit(facts, words, position, last)
    rough = _is_rough(facts, words, position)
    kind = NUMBER if unit else _kind(facts, words, position, value)
    facts.quantities.append(Quantity(frozenset({value}), unit, kind, position, last, rough))
    return last


def _words_value(facts: FactText, words: Lexicon, position: int) -> tuple[float, int]:
    total, current, last = 0.0, 0.0, position
    at = position
    while at < len(facts.lows):
        low = facts.lows[at]
        value = words.numbers.get(low)
        if value is None and low in words.count_words and current >= _TWENTY and not current % 10:
            value = 1.0
        if value is None:
            if (
                low == "and"
                and current >= _SCALE
                and facts.lows[at + 1 : at + 2]
                and facts.lows[at + 1] in words.numbers
            ):
                at += 1
                continue
            break
        if value == _SCALE:
            current = max(1.0, current) * value
        elif value > _SCALE:
            total, current = total + max(1.0, current) * value, 0.0
        elif current and (current % 10 or value >= 10):  # noqa: PLR2004 - "five, six" are two numbers
            break
        else:
            current += value
        last = at
        at += 1
    return total + current, last


_HAN_DATES = {"年": YEAR, "月": MONTH, "日": DAY, "号": DAY}
"""Parts of a date; a span of time has another word between: 3个月."""
_HAN_DIGITS = {digit: value for value, digit in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "兩": 2}
_HAN_SCALES = {"十": 10, "百": 100, "千": 1000}
_HAN_LARGE = {"万": 10_000, "萬": 10_000, "亿": 100_000_000, "億": 100_000_000}


def _han_value(text: str) -> int:
    total = section = digit = 0
    for character in text:
        if character in _HAN_DIGITS:
            digit = _HAN_DIGITS[character]
        elif character in _HAN_SCALES:
            section += (digit or 1) * _HAN_SCALES[character]
            digit = 0
        else:
            total += (section + digit or 1) * _HAN_LARGE[character]
            section = digit = 0
    return total + section + digit
