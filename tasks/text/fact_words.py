"""Reads the words of each language that carry a fact: numbers, units, dates, and words that turn or bound a statement."""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tasks.text.language import language_tables

FOLDER = Path(__file__).parent / "lexicons"
UNITS = Path(__file__).parent / "units.json"

Side = tuple[str, int]
"""A group of words that exclude one another, and the side of it that a word is on."""
NOT: Side = ("not", 0)
AMOUNTS = frozenset({"limit", "direction 3", "direction 4", "direction 5"})
"""Groups that bound a number: at most, more than."""
BINDING = frozenset({"not", "if", "except", "only", "respectively"})
"""Groups that say whether and when a statement holds: it is another one without them."""


@dataclass(frozen=True, slots=True)
class FactWords:
    """The words of one language that carry a fact, all in lower case; ``has_lists`` is false for a language without lists."""

    code: str
    has_lists: bool
    numbers: Mapping[str, float]
    articles_of_one: frozenset[str]
    halves: frozenset[str]
    units: Mapping[str, tuple[tuple[str, float], ...]]
    scales: Mapping[str, float]
    months: Mapping[str, int]
    weekdays: Mapping[str, int]
    signs: Mapping[str, tuple[tuple[tuple[str, ...], frozenset[Side]], ...]]
    """Words and phrases that turn or bound a statement, by their first word, longest first: the words behind it, and the sides."""
    opposites: Mapping[str, frozenset[Side]]
    """Words of content with an opposite."""
    neutral: frozenset[str]
    """Function words that carry no fact."""
    roles: Mapping[str, str]
    """Function words that tell the role of the words after them, with its name: to, from, by."""
    joins: frozenset[str]
    """Conjunctions between the parts of a sentence: and, but."""
    relatives: frozenset[str]
    """Words that begin a clause about the noun before them: who, which."""
    cases: Mapping[str, str]
    """Articles that tell the case of their noun, where no preposition does: den Hund."""
    endings: tuple[str, ...]
    """Endings of inflected forms, longest first."""
    nouns_in_capitals: bool
    spaced: bool

    def unit(self, name: str) -> tuple[tuple[str, float], ...]:
        """The dimensions and factors of a unit by its name or symbol; empty for an unknown one."""
        return self.units.get(name) or self.units.get(name.casefold()) or ()


@cache
def fact_words(code: str | None) -> FactWords:
    """The words of a language by its ISO 639-1 code, none for a language without lists; for None those of English, as a guess."""
    path = FOLDER / f"{code or 'en'}.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    signs = _signs(table)
    endings = tuple(sorted(table.get("inflections", "").split(), key=len, reverse=True))
    opposites: dict[str, set[Side]] = {}
    for group, entry in enumerate(table.get("exclusive", {}).get("opposites", ())):
        for side, member in _members(entry):
            for noun in (False, True):
                opposites.setdefault(root_of(member, endings, code or "en", noun=noun), set()).add(
                    (f"opposite {group}", side)
                )
    dates = table.get("dates", {})
    carried = {
        *table.get("carried", "").split(),
        *(word for word, listed in signs.items() if any(not behind for behind, _ in listed)),
    }
    roles = table.get("roles", {})
    return FactWords(
        code=code or "en",
        has_lists=code is not None and bool(table),
        numbers={word: float(value) for word, value in table.get("numbers", {}).items()},
        articles_of_one=frozenset(f"{table.get('one', '')} {table.get('articles', '')}".split()),
        halves=frozenset(table.get("halves", "").split()),
        units=_table("units", code),
        scales=_table("scales", code),
        months=_numbered(dates.get("months", ())),
        weekdays=_numbered(dates.get("weekdays", ())),
        signs=signs,
        opposites={word: frozenset(sides) for word, sides in opposites.items()},
        neutral=frozenset(
            f"{table.get('neutral', '')} {table.get('light', '')} {language_tables().get(code or 'en', {}).get('stopwords', '')}".split()
        )
        - carried,
        roles={word: word for word in roles.get("prepositions", "").split()} | roles.get("forms", {}),
        joins=frozenset(table.get("joins", "").split()),
        relatives=frozenset(table.get("relatives", "").split()),
        cases={word: case for case, listed in table.get("cases_of_articles", {}).items() for word in listed.split()},
        endings=endings,
        nouns_in_capitals=bool(table.get("nouns_in_capitals", False)),
        spaced=bool(table.get("spaced", True)),
    )


def _signs(table: Mapping[str, Any]) -> dict[str, tuple[tuple[tuple[str, ...], frozenset[Side]], ...]]:
    listed: dict[tuple[str, ...], set[Side]] = {}

    def add(members: Iterable[str], side: Side) -> None:
        for member in members:
            if member.strip():
                listed.setdefault(tuple(member.split()), set()).add(side)

    cases, limits = table.get("cases", {}), table.get("limits", {})
    for phrase in table.get("not_negations", ()):
        listed[tuple(phrase.split())] = {(phrase, 0)}
    for group, entry in enumerate(table.get("exclusive", {}).get("directions", ())):
        for side, member in _members(entry):
            add([member], (f"direction {group}", side))
    add([*table.get("negations", "").split(), *table.get("denials", ())], NOT)
    add(cases.get("conditional", "").split(), ("if", 0))
    add(cases.get("exceptions", "").split(), ("except", 0))
    add(cases.get("included", "").split(","), ("except", 1))
    add(cases.get("restrictive", "").split(), ("only", 0))
    add(cases.get("respective", "").split(), ("respectively", 0))
    for place in ("before", "behind"):
        add(limits.get(f"least_{place}", "").split(", "), ("limit", 0))
        add(limits.get(f"most_{place}", "").split(", "), ("limit", 1))
    add(limits.get("roughly", "").split(", "), ("roughly", 0))
    for word in table.get("modals", "").split():
        add([word], (word, 0))
    signs: dict[str, list[tuple[tuple[str, ...], frozenset[Side]]]] = {}
    for words, sides in listed.items():
        signs.setdefault(words[0], []).append((words[1:], frozenset(sides)))
    return {first: tuple(sorted(each, key=lambda sign: -len(sign[0]))) for first, each in signs.items()}


def _members(entry: str) -> Iterator[tuple[int, str]]:
    for side, members in enumerate(entry.split("|")):
        for member in members.split(","):
            yield side, member.strip()


@cache
def _units_file() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    tables: Mapping[str, Mapping[str, Mapping[str, Any]]] = json.loads(UNITS.read_text(encoding="utf-8"))
    return tables


def _table(kind: str, code: str | None) -> dict[str, Any]:
    """The units or scales of a language: those of all languages, and what it alone has."""
    tables = _units_file()[kind]
    joint = {**tables[""], **tables.get(code or "en", {})}
    if kind == "scales":
        return joint
    return {name: tuple(zip(meaning[::2], meaning[1::2], strict=True)) for name, meaning in joint.items()}


def _numbered(listed: Iterable[str]) -> dict[str, int]:
    return {word: number for number, words in enumerate(listed, start=1) for word in words.split()}


def root_of(low: str, endings: Sequence[str], code: str, *, noun: bool = False) -> str:
    """A word without the ending of its inflected form; in German a noun keeps the ``er`` of a person."""
    for ending in endings:
        if (
            low.endswith(ending)
            and len(low) - len(ending) >= _SHORTEST_ROOT
            and not (noun and code == "de" and ending not in _OF_NOUNS)
        ):
            low = low[: len(low) - len(ending)]
            break
    return low[:-1] + "i" if low.endswith("y") and code == "en" else low


_SHORTEST_ROOT = 3
_OF_NOUNS = frozenset({"n", "en", "s", "es", "e"})
