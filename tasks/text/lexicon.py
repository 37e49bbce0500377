"""Reads the words of each language that carry a fact: numbers, units, dates, negations and words that exclude one another."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "lexicons"
DEFAULT = "en"

Pole = tuple[int, int]
"""A group of words that exclude one another, and the side of it that a word is on."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """Several words that mean one thing: ``words`` after the first one, and the meaning."""

    words: tuple[str, ...]
    negation: bool = False
    poles: tuple[Pole, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparative:
    """Words that say which of two things has less, or more, of a kind: money, time, or any."""

    words: tuple[str, ...]
    kind: str
    less: bool


LEAST, MOST = 0, 1
"""Sides of a limit."""


@dataclass(frozen=True, slots=True)
class LimitPhrase:
    """Words that set the least or the most.

    ``timed`` where they say when: later than, at the latest. ``fixed`` where no negation turns them: "if it is not
    cancelled at least a month before".
    """

    side: int
    timed: bool
    fixed: bool


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The words of one language that carry a fact, all in lower case.

    ``poles`` gives the sides a word is on; ``phrases`` are by their first word, longest first.
    """

    code: str
    numbers: Mapping[str, float]
    count_words: frozenset[str]
    articles: frozenset[str]
    """Articles that may mean "one" before a unit: a month."""
    multiples: Mapping[str, float]
    units: Mapping[str, str]
    points: frozenset[str]
    """Words for percentage points."""
    months: Mapping[str, int]
    weekdays: Mapping[str, int]
    about: frozenset[str]
    total: frozenset[str]
    negations: frozenset[str]
    comparisons: frozenset[str]
    """Negations that only prefer one thing to another."""
    doubts: frozenset[str]
    """Words beside a negation that make it one of the writer's knowledge, or of "not only"."""
    implied: frozenset[str]
    """Words that may imply a denial, and are none."""
    turns: frozenset[str]
    """Conjunctions at which the reach of a negation ends: not A but B."""
    poles: Mapping[str, tuple[Pole, ...]]
    phrases: Mapping[str, tuple[Phrase, ...]]
    titles: frozenset[str]
    name_leads: frozenset[str]
    """Words directly before a name, in a language that capitalises nouns; empty where capitals mark names."""
    dated: frozenset[str]
    """Months, days of the week, and words for one."""
    counting: frozenset[str]
    """The words that a quantity may begin with: those of numbers and dates."""
    turning: frozenset[str]
    """The words that a phrase, a negation or a word with an opposite may begin with."""
    bounds: frozenset[int]
    """Groups of words with an opposite that bound a number: at least, more than."""
    limits: frozenset[str]
    """Other words that may bound a number: exceed, limit."""
    leads: frozenset[str]
    """Words between a period and the event that it counts from."""
    moments: frozenset[str]
    """Words before the event that say nothing: the date of."""
    events: tuple[frozenset[str], ...]
    """Words for the same event."""
    limits_before: Mapping[tuple[str, ...], LimitPhrase]
    """Words directly before a number that set its side: at least, older than."""
    limits_behind: Mapping[tuple[str, ...], LimitPhrase]
    """Words behind a number that set its side: or more."""
    longest_limit: int
    limit_words: frozenset[str]
    """All words of these."""
    ahead: frozenset[str]
    """Words after a period that count it back from its event: before, in advance."""
    between: frozenset[str]
    """Words before the two limits of a range."""
    joins: frozenset[str]
    """Conjunctions between two numbers with words of their own."""
    references: frozenset[str]
    """Words that stand for something said before: it, these."""
    steps: frozenset[str]
    """Words before the ends of a change, and its size: from, to, by."""
    per: frozenset[str]
    """Words before the unit of a rate: per, each."""
    vague_per: frozenset[str]
    """Those of them that lead a rate before a unit of time only: im Monat, al mes."""
    persons: frozenset[str]
    """Words for one person."""
    rates: Mapping[str, str]
    """Words that give a rate by themselves: monthly, total."""
    conditions: frozenset[str]
    """Words that begin a condition: if, unless."""
    than: frozenset[str]
    comparatives: Mapping[str, tuple["Comparative", ...]]
    """Comparatives by their first word, longest first."""
    conditional: frozenset[str]
    """Words that begin the case in which a rule holds: if, when."""
    exceptions: frozenset[str]
    """Words that begin the case in which it does not: unless, except."""
    restrictive: frozenset[str]
    """Words that restrict a rule to a case: only."""
    prepositions: frozenset[str]
    """Words that tell the role of the noun after them; empty where the order of words tells no roles."""
    determiners: frozenset[str]
    """Words that may stand between a preposition and its noun."""
    passives: frozenset[str]
    """Words that make a verb passive, or lead a clause about the noun before them."""
    coordinators: frozenset[str]
    """Words between two things of one role: and, or."""
    duty: frozenset[int]
    """Groups of words with an opposite, for a right and a duty, that both forbid when denied: may not, must not."""
    nouns_in_capitals: bool
    spaced: bool


@cache
def lexicon(code: str | None) -> Lexicon:
    """The lexicon of a language by its ISO 639-1 code; English for None, and one without words for other languages."""
    path = FOLDER / f"{code or DEFAULT}.toml"
    if not path.exists():
        return _compiled(code or DEFAULT, {})
    if code is None:
        return lexicon(DEFAULT)
    return _compiled(code, tomllib.loads(path.read_text(encoding="utf-8")))


def _compiled(code: str, table: Mapping[str, Any]) -> Lexicon:
    endings, dropped = table.get("endings", "").split(), tuple(table.get("dropped", "").split())
    poles: dict[str, list[Pole]] = {}
    phrases: dict[str, list[Phrase]] = {}
    entries = [*table.get("exclusive", {}).get("directions", ()), *table.get("exclusive", {}).get("opposites", ())]
    entries += [" | ".join(listed.split()) for listed in table.get("dates", {}).get("seasons", ())]
    for group, entry in enumerate(entries):
        for side, members in enumerate(entry.split("|")):
            for member in members.split(","):
                _add_member(member.strip(), (group, side), poles, phrases, (endings, dropped))
    for phrase in table.get("denials", ()):
        first, *rest = phrase.split()
        phrases.setdefault(first, []).append(Phrase(tuple(rest), negation=True))
    for phrase in table.get("not_negations", ()):
        first, *rest = phrase.split()
        same = [other for other in phrases.get(first, ()) if other.words == tuple(rest)]
        if not same:
            phrases.setdefault(first, []).append(Phrase(tuple(rest)))
    dates = table.get("dates", {})
    numbers = {word: float(value) for word, value in table.get("numbers", {}).items()}
    negations = frozenset(table.get("negations", "").split())
    dated = frozenset(
        {*_numbered(dates.get("months", ())), *_numbered(dates.get("weekdays", ()))}
        | {*table.get("one", "").split(), *table.get("articles", "").split()}
    )
    return Lexicon(
        code=code,
        numbers=numbers,
        count_words=frozenset(table.get("one", "").split()),
        articles=frozenset(table.get("articles", "").split()),
        multiples={word: float(value) for word, value in table.get("dozen", {}).items()},
        units={word: unit for unit, words in table.get("units", {}).items() for word in words.split()},
        points=frozenset(table.get("points", ())),
        months=_numbered(dates.get("months", ())),
        weekdays=_numbered(dates.get("weekdays", ())),
        about=frozenset(table.get("about", "").split()),
        total=frozenset(table.get("total", "").split()),
        negations=negations,
        comparisons=frozenset(table.get("comparisons", ())),
        doubts=frozenset(table.get("doubts", "").split()),
        implied=frozenset(table.get("implied", "").split()),
        turns=frozenset(table.get("turns", "").split()),
        poles={word: tuple(sides) for word, sides in poles.items()},
        phrases={
            first: tuple(sorted(listed, key=lambda phrase: -len(phrase.words))) for first, listed in phrases.items()
        },
        titles=frozenset(table.get("titles", "").split()),
        name_leads=frozenset(table.get("name_leads", "").split()),
        dated=dated,
        counting=dated | numbers.keys(),
        turning=negations | poles.keys() | phrases.keys(),
        **_measures(table, poles, phrases),
        **_limits(table.get("limits", {})),
        **_word_sets(table.get("roles", {}), "prepositions", "determiners", "passives", "coordinators"),
        **_word_sets(table.get("cases", {}), "conditional", "exceptions", "restrictive"),
        duty=frozenset(group for word in table.get("duty", "").split() for group, _ in poles[word]),
        nouns_in_capitals=bool(table.get("nouns_in_capitals", False)),
        spaced=bool(table.get("spaced", True)),
    )


def _measures(
    table: Mapping[str, Any], poles: Mapping[str, list[Pole]], phrases: Mapping[str, list[Phrase]]
) -> dict[str, Any]:
    """The tables of the words around a quantity, under ``measures``."""
    listed = table.get("measures", {})
    bounds: set[int] = set()
    for member in listed.get("bounds", ()):
        first, *rest = member.split()
        same = [phrase.poles for phrase in phrases.get(first, ()) if phrase.words == tuple(rest)]
        bounds.update(group for sides in (same if rest else [poles[member]]) for group, _ in sides)
    comparatives: dict[str, list[Comparative]] = {}
    for key in ("less", "more"):
        for kind, members in listed.get(key, {}).items():
            for member in members.split(", "):
                words = tuple(member.split())
                comparatives.setdefault(words[0], []).append(Comparative(words, kind, key == "less"))
    return {
        "bounds": frozenset(bounds),
        "limits": frozenset(listed.get("limits", "").split()),
        "leads": frozenset(listed.get("leads", "").split()),
        "moments": frozenset(listed.get("moments", "").split()),
        "events": tuple(frozenset(group.split()) for group in listed.get("events", ())),
        **{
            key: frozenset(listed.get(key, "").split())
            for key in ("joins", "references", "steps", "per", "vague_per", "persons", "conditions")
        },
        "rates": {word: unit for unit, members in listed.get("rates", {}).items() for word in members.split()},
        "than": frozenset(listed.get("than", "").split()),
        "comparatives": {
            first: tuple(sorted(each, key=lambda comparative: -len(comparative.words)))
            for first, each in comparatives.items()
        },
    }


def _word_sets(listed: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Tables that are sets of words, by their names."""
    return {key: frozenset(listed.get(key, "").split()) for key in keys}


def _limits(listed: Mapping[str, Any]) -> dict[str, Any]:
    """The tables of the words that set a limit, under ``limits``: those before a number, and those behind it."""
    tables: dict[str, Any] = {}
    fixed = frozenset(listed.get("fixed", "").split(", "))
    for place in ("before", "behind"):
        tables[f"limits_{place}"] = {
            tuple(phrase.split()): LimitPhrase(side, timed, phrase in fixed)
            for key, side, timed in (
                ("least", LEAST, False),
                ("most", MOST, False),
                ("earliest", LEAST, True),
                ("latest", MOST, True),
            )
            for phrase in listed.get(f"{key}_{place}", "").split(", ")
            if phrase
        }
    longest = max((len(phrase) for table in tables.values() for phrase in table), default=0)
    words = {key: frozenset(listed.get(key, "").split()) for key in ("ahead", "between")}
    limit_words = frozenset(word for table in tables.values() for phrase in table for word in phrase)
    return {**tables, **words, "longest_limit": longest, "limit_words": limit_words}


def _add_member(
    member: str,
    pole: Pole,
    poles: dict[str, list[Pole]],
    phrases: dict[str, list[Phrase]],
    inflection: tuple[list[str], tuple[str, ...]],
) -> None:
    if " " in member:
        first, *rest = member.split()
        listed = phrases.setdefault(first, [])
        same = next((phrase for phrase in listed if phrase.words == tuple(rest)), None)
        if same is not None:
            listed.remove(same)
        listed.append(Phrase(tuple(rest), poles=(*(same.poles if same else ()), pole)))
        return
    for form in _forms(member, *inflection):
        sides = poles.setdefault(form, [])
        # A form that inflection puts on two sides of one group says nothing.
        if all(side[0] != pole[0] for side in sides):
            sides.append(pole)


_SHORTEST = 4
"""Letters; a shorter word is listed with each of its forms."""


def _forms(word: str, endings: Iterable[str], dropped: tuple[str, ...]) -> Iterator[str]:
    yield word
    if len(word) < _SHORTEST:
        return
    for ending in endings:
        yield word + ending
        if word.endswith(dropped or ("\0",)):
            yield word[:-1] + ending
    if word.endswith("y") and "es" in endings:
        yield word[:-1] + "ies"


def _numbered(listed: Iterable[str]) -> dict[str, int]:
    return {word: number for number, words in enumerate(listed, start=1) for word in words.split()}
