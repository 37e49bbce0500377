"""What the lexical check measures of a claim against sources: a few numbers, each of which says something in words."""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tasks.text.evidence import NEGATION, Match, SourceSearch, content_words, stems_of
from tasks.text.numerals import readings
from tasks.text.sentences import words

_CAPITALISED = r"[A-ZÀ-ÖØ-Þ][\w'-]+"
_NAME = re.compile(rf"(?:(?<=[^\W\d_] )|(?<=[^\W\d_][,;] )){_CAPITALISED}|\b{_CAPITALISED}(?: {_CAPITALISED})+")
_YEARS = re.compile(r"\b(1\d|20)\d\d[–/-](\d\d)\b")  # noqa: RUF001 - a dash between years
"""2018-19: the second year is also 2019."""
_GERMAN = frozenset("der die das den dem des und ist ein eine einer wird nicht von mit auf für im zu".split())
_LEAST_GERMAN = 2
"""German function words in a claim from which it counts as German, where capitals mark nouns and not names."""
_TITLE_CASE = 0.6
"""Share of capitalised words from which capitals say nothing (a headline)."""
_DIGIT_END = "9"
_AROUND = " \t\n.,;:!?…"


class Features(NamedTuple):
    """The model's input for one claim and one scope of sources; the first four in the order of the model's weights."""

    recall: float
    """Share of its content words, by weight, in the best window of three passages; [0, 1]."""
    numbers_absent: float
    """log(1 + numbers, at most three, that stand in no source of the scope)."""
    numbers_held: float
    """log(1 + numbers, at most three, that stand in a source of the scope)."""
    names_absent: float
    """log(1 + words of names, at most three, that stand in no source of the scope)."""
    verbatim: bool = False
    """Its words stand in the best window one after the other, at least three of them words of content."""


WEIGHED = Features._fields[:-1]
"""What the model has a weight for; a claim that stands there word for word needs no weighing."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a claim says, read once."""

    text: str
    words: tuple[str, ...]
    content: frozenset[str]
    """Its content words, as compared."""
    numbers: tuple[tuple[str, frozenset[str]], ...]
    """Each number as compared, with all that it can be read as."""
    names: tuple[tuple[str, str], ...]
    """Words of names: as written, and as compared."""
    denies: bool

    def written(self, stem: str) -> str:
        """The word of the claim that is compared as ``stem``."""
        return next((word for word in self.words if stems_of([word]) == [stem]), stem)


def read_claim(text: str) -> Said:
    """Read a claim (without citation markers)."""
    found = words(text)
    stems = stems_of(found)
    content = content_words(found)
    short_years = {short: (century + short,) for century, short in _YEARS.findall(text)}
    numbers = {
        word: frozenset({*readings(word, following), *short_years.get(word, ())})
        for word, following in zip(found, [*found[1:], ""], strict=True)
        if word[0] <= _DIGIT_END
    }
    return Said(
        text=text.strip(_AROUND),
        words=tuple(found),
        content=content,
        numbers=tuple(numbers.items()),
        names=tuple(_names(text, found, content)),
        denies=NEGATION in stems,
    )


def _names(text: str, found: Sequence[str], content: frozenset[str]) -> list[tuple[str, str]]:
    """The words of names: capitalised inside of the sentence, or a run of capitalised words anywhere."""
    if sum(word in _GERMAN for word in found) >= _LEAST_GERMAN and "the" not in found:
        return []
    written = text.split()
    if len(written) > 3 and sum(word[:1].isupper() for word in written) > _TITLE_CASE * len(written):  # noqa: PLR2004
        return []
    names: dict[str, str] = {}
    for run in _NAME.finditer(text):
        for word in run.group().split():
            for stem in content_words(words(word)) & content:
                if stem[0] > _DIGIT_END:
                    names.setdefault(stem, word)
    return [(word, stem) for stem, word in names.items()]


@dataclass(frozen=True, slots=True)
class Found:
    """What was found for a claim in a scope of sources."""

    features: Features
    used: tuple[Match, ...]
    """The windows it relies on, best first; more than one only when several sources are needed together."""
    numbers_absent: tuple[str, ...]
    names_absent: tuple[str, ...]
    denies: bool
    """It denies and the window does not. A reason in words only: on labelled data it told nothing (see docs)."""


def look(search: SourceSearch, said: Said, scope: Collection[int] | None = None) -> Found:
    """Measure a claim against the sources of a scope (None: all). Pure.

    The recall of a scope with several sources is that of the best window, or of their best windows together if the
    scope is what the claim cites: who cites two sources says that it takes both.
    """
    recall, used = _recall(search, said, scope)
    absent = tuple(word for word, values in said.numbers if not search.holds_number(values, scope))
    nameless = tuple(word for word, stem in said.names if not search.holds(stem, scope))
    denies = said.denies and bool(used) and not any(search.denies(match) for match in used)
    features = Features(
        recall=recall,
        numbers_absent=_counted(absent),
        numbers_held=_counted(said.numbers[len(absent) :]),
        names_absent=_counted(nameless),
        verbatim=bool(used) and not absent and recall >= _WHOLE and _verbatim(search, said, used[0]),
    )
    return Found(features, used, absent, nameless, denies)


def _counted(found: Sequence[object]) -> float:
    return math.log1p(min(len(found), _MOST_COUNTED))


_MOST_COUNTED = 3
"""More numbers or names than these tell no more; without a bound, a claim full of numbers would be judged by them alone."""

_WHOLE = 1 - 1e-9
_LEAST_QUOTED = 3
"""Words of content below which words in a row are chance, or a piece of a list ("1.", "section 102(b)")."""


def _verbatim(search: SourceSearch, said: Said, match: Match) -> bool:
    """Whether a claim's words, case and punctuation aside, stand in a match's window in a row."""
    if len(said.content) < _LEAST_QUOTED:
        return False
    start, end = search.window_span(match)
    content = search.content(match.source_index)
    # Mostly the very same characters: then the window's words need not be read.
    found = content.find(said.text, start, end)
    after = found + len(said.text)
    if found >= 0 and not any(map(str.isalnum, content[max(0, found - 1) : found] + content[after : after + 1])):
        return True
    return f" {' '.join(said.words)} " in f" {' '.join(words(content[start:end]))} "


_ENOUGH = 0.7
"""Recall of one window above which no second source is looked at."""


def _recall(search: SourceSearch, said: Said, scope: Collection[int] | None) -> tuple[float, tuple[Match, ...]]:
    best = search.best_of_all(said.content, scope)
    if best is None:
        return 0.0, ()
    if scope is None or len(scope) == 1 or best.score >= _ENOUGH:
        return best.score, (best,)
    used = [best]
    held = search.matched_words(best, said.content)
    others = [match for source in sorted(scope) if (match := search.best(said.content, source)) is not None]
    for match in sorted(others, key=lambda match: -match.score):
        more = search.matched_words(match, said.content) - held
        if match.source_index != best.source_index and more:
            used.append(match)
            held |= more
    return min(1.0, search.weight(held) / search.weight(said.content)), tuple(used)
