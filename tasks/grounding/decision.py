"""Decides a claim by its words: a place that accounts for it, one that differs in a fact, or neither."""

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from schemas.claim_error import ClaimError, ErrorKind
from schemas.grounding import Evidence, Verdict
from schemas.job import SHOWN_METADATA
from tasks.grounding.accounting import ANY_ROLE, LEAST_FACTS, Account, account, excludes
from tasks.text.evidence import SourceSearch
from tasks.text.fact_words import AMOUNTS
from tasks.text.facts import Fact, FactText, Kind, read_facts
from tasks.text.sentences import Span, words
from tasks.text.statements import QUESTION_MARKS, has_verb
from tasks.text.tables import row_name, row_sentences
from tasks.text.wording import stems_of

MOST_PLACES = 3
"""Sentences a claim is compared with: those with most of its weight in words."""
LEAST_WORDS = 5
"""Words below which a claim without a verb states nothing; of longer ones the verb may be unknown."""
LEAST_SHARE = 0.8
"""Share of the facts of a claim in a sentence from which another number or name there contradicts one that is in no source."""
LEAST_ALIKE = 0.5
"""Share of the words of a quotation in another one, or of the words around it, from which the other stands in its place."""
ROUGHLY = 0.06
"""Relative distance within which a number may be a rounded one."""
FACTORS = (7.0, 12.0, 52.0, 60.0, 100.0)
"""Numbers of which a derived one may be a multiple without a word: months of a year."""
_MOST_NUMBERS = 40
_TO = re.compile(r"[\s%€$£.]*(?:[-–]|a|à|al|au|bis|hasta|t/m|through|to|tot|until)\s*[€$£]?", re.IGNORECASE)  # noqa: RUF001 - a dash between the ends of a range
"""What stands between the ends of a range."""
_AND = re.compile(r"[\s%€$£.]*(?:and|e|en|et|und|y)\s*[€$£]?", re.IGNORECASE)
"""The same, between figures and behind "between"; else it stands between members of a list."""
_BETWEEN = re.compile(r"\b(?:between|entre|fra|tra|tussen|zwischen)\W*$", re.IGNORECASE)
_QUOTED = re.compile(r"(?:(?<![\w.,;:!?])\"|[“„«»])\s?([^\"“”„«»]{3,400}?)\s?[\"”“»«]")


class Decision(NamedTuple):
    """The decision of words on a claim: a verdict, its place, the fact that differs, and the words that are not accounted for."""

    verdict: Verdict
    place: Evidence | None = None
    error: ClaimError | None = None
    unaccounted: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """The reason against the claim, in words; empty for a supported one."""
        if self.error is not None:
            claim_words, source_words = self.error.claim_words, self.error.source_words
            return f"the source says {source_words!r}, not {claim_words!r} ({self.error.kind.label})"
        if self.verdict is Verdict.SUPPORTED:
            return ""
        if self.unaccounted:
            return f"words can't decide: no place of the sources accounts for {', '.join(self.unaccounted)}"
        return "words can't decide: all its words are in the sources, but no passage states just this"


class _Place(NamedTuple):
    source: int
    span: Span
    facts: FactText


class Decider:
    """Decides a claim within the sources of a search.

    Args:
        text: the claim without markers.
        content: its words of content, as stems; the vocabulary of the search holds them.
        search: over the sources to look at.
        code: language of the answer; None: unknown.
    """

    def __init__(self, text: str, content: frozenset[str], search: SourceSearch, code: str | None) -> None:
        self._search, self._code = search, code
        self._claim = read_facts(text, code)
        self._places = [
            _Place(source, span, facts)
            for source, span in search.places(content, MOST_PLACES)
            for facts in self._read(search.content(source), span)
        ]

    def _read(self, content: str, span: Span) -> Iterator[FactText]:
        """The facts of a passage; those of a row of a table by column, too, whose heads stand elsewhere."""
        passage = content[span.start : span.end]
        if passage.rstrip("\"'”»)*_ ")[-1:] in QUESTION_MARKS:
            # It says nothing.
            return
        yield read_facts(passage, self._code)
        if "|" not in passage or "|" in self._claim.text:
            return
        row = read_facts(row_name(content, span.start), self._code).facts
        if row and not any(self._is_stated(fact) for fact in row):
            # Its cells may belong to another row as well.
            return
        for sentence in row_sentences(content, span.start):
            read = read_facts(sentence, self._code)
            yield read._replace(facts=tuple(fact._replace(role=ANY_ROLE) for fact in read.facts))

    def decision(self) -> Decision:
        """The decision: support by any place goes before a difference from another one."""
        if self._quotes and (forged := self._forged()) is not None:
            return forged
        best: tuple[tuple[bool, int], Account, _Place] | None = None
        for place in self._places:
            result = account(self._claim, place.facts, self._named(place.source), self._is_elsewhere)
            if not self._claim.has_lists and len(place.facts.facts) != len(self._claim.facts):
                # Without lists of words, what is left out may deny all the rest.
                result = Account(supported=False, missing=result.missing)
            if result.supported:
                return Decision(
                    Verdict.UNDECIDED if is_fragment(self._claim.text) else Verdict.SUPPORTED, _evidence(place)
                )
            rank = (result.contradicted, -len(result.missing))
            if best is None or rank > best[0]:
                best = (rank, result, place)
        if best is None:
            return Decision(Verdict.UNDECIDED, unaccounted=self._surfaces(self._claim.facts))
        _, result, place = best
        if result.differs is not None and result.kind is not None:
            own, other = result.differs
            if own is None or not self._may_hold(own, other, place):
                return self._contradiction(place, own, other, result.kind)
        return self._rivalled() or Decision(
            Verdict.UNDECIDED, _evidence(place), unaccounted=self._surfaces(result.missing)
        )

    def _may_hold(self, own: Fact, other: Fact | None, place: _Place) -> bool:
        """Tells whether a fact of the claim may be right though a place has another one: it follows, a range has room for it, or another place says it."""
        is_derived = bool(own.amounts or "clock" in own.group) and own.kind is Kind.DATE and self._follows(own, ())
        if is_derived or self._is_in_range(own, place, other):
            return True
        least = self._share_of_held(self._claim.facts, place)
        having = (there for there in self._places if there is not place and self._share_of_held([own], there))
        return any(self._share_of_held(self._claim.facts, there) > least for there in having)

    def _named(self, source: int) -> frozenset[Hashable]:
        """The facts of the metadata of a source that the prompt shows."""
        metadata = self._search.metadata(source)
        values = [str(metadata[key]) for key in SHOWN_METADATA if metadata.get(key) is not None] if metadata else []
        return frozenset(key for text in values for fact in read_facts(text, self._code).facts for key in fact.covers)

    def _is_elsewhere(self, fact: Fact) -> bool:
        """Tells whether a word of the claim stands anywhere in the sources."""
        return all(self._matches(fact))

    def _matches(self, fact: Fact) -> list[bool]:
        """Tells of each word of a fact of the claim whether any source has it."""
        return [self._search.holds(stem) for stem in stems_of(words(self._claim.of(fact))) if stem]

    def _surfaces(self, facts: Iterable[Fact]) -> tuple[str, ...]:
        return tuple(map(self._claim.of, facts))

    def _contradiction(self, place: _Place, own: Fact | None, other: Fact | None, kind: ErrorKind) -> Decision:
        claim_words = self._claim.of(own) if own else self._claim.text.strip()
        source_words = place.facts.of(other) if other else place.facts.text.strip()
        return Decision(
            Verdict.CONTRADICTED,
            _evidence(place),
            ClaimError(kind=kind, claim_words=claim_words, source_words=source_words),
        )

    # ---- quotations -----------------------------------------------------------------------------------------------

    @cached_property
    def _quotes(self) -> list[Span]:
        """The places of what the claim quotes, of two words and more."""
        result = [Span(*match.span(1)) for match in _QUOTED.finditer(self._claim.text)] if self._claim.has_lists else []
        if self._claim.text.lstrip()[:1] in {"{", "["}:
            return []
        return [span for span in result if len(self._plain(span).split()) > 1]

    def _plain(self, span: Span) -> str:
        return " ".join(words(self._claim.text[span.start : span.end]))

    def _forged(self) -> Decision | None:
        """The decision on a claim that quotes what is in no source word for word; None for others.

        It contradicts a source that has another quotation in that place. Titles of works are no quotations; what has gaps, or the same words in another order, can't be compared.
        """
        sources = [" ".join(words(content)) for content in map(self._search.content, self._search.sources)]
        for span in self._quotes:
            quoted = self._claim.text[span.start : span.end]
            if any(f" {self._plain(span)} " in f" {source} " for source in sources) or _is_title(quoted):
                continue
            around = [fact for fact in self._claim.facts if not span.start <= fact.start < span.end]
            for place in self._places:
                plain = self._plain(span).split()
                alike, rival = max(
                    (
                        (len({*plain}.intersection(words(each[1]))), each[1])
                        for each in _QUOTED.finditer(place.facts.text)
                        if not _is_title(each[1])
                    ),
                    default=(0, ""),
                )
                if not rival or any(gap in quoted for gap in _GAPS) or sorted(plain) == sorted(words(rival)):
                    continue
                if max(alike / len({*plain}), self._share_of_held(around, place)) >= LEAST_ALIKE:
                    error = ClaimError(kind=ErrorKind.ABSENT, claim_words=quoted, source_words=rival)
                    return Decision(Verdict.CONTRADICTED, _evidence(place), error)
            return Decision(Verdict.UNDECIDED, unaccounted=(quoted,))
        return None

    # ---- numbers and names of no source -----------------------------------------------------------------------------

    def _rivalled(self) -> Decision | None:
        """The contradiction of a number or name that is in no source, where the nearest sentence has another one; None without one.

        A number that follows from others, or from a limit or a range, contradicts nothing.
        """
        near = frozenset[Hashable]().union(*(fact.covers for place in self._places for fact in place.facts.facts))
        absent = [fact for fact in self._claim.facts if fact.kind in _NAMING and fact.keys.isdisjoint(near)]
        if not absent:
            return None
        remaining = [fact for fact in self._claim.facts if fact not in absent]
        share, place = max(
            ((self._share_of_held(remaining, place), place) for place in self._places), key=lambda each: each[0]
        )
        is_as_long = share == 1 and len(place.facts.facts) == len(self._claim.facts)
        if share < LEAST_SHARE or (share * len(remaining) < LEAST_FACTS and not is_as_long):
            return None
        for fact in absent:
            rivals = [
                at
                for at, other in enumerate(place.facts.facts)
                if excludes(fact, other)
                and not self._is_stated(other)
                and (fact.kind is not Kind.NAME or self._is_in_its_place(fact, place, at))
            ]
            if not rivals or self._is_in_sources(fact):
                continue
            if fact.kind is Kind.NUMBER and (share < 1 or len(rivals) > 1):
                # It may follow from several, or be of another thing.
                continue
            if fact.kind is not Kind.NAME and (self._is_bounded(fact, place, rivals) or self._follows(fact)):
                continue
            return self._contradiction(place, fact, place.facts.facts[rivals[0]], ErrorKind(fact.kind.value))
        return None

    def _is_in_its_place(self, fact: Fact, place: _Place, at: int) -> bool:
        """Tells whether a name of a place stands where the claim has another one: behind the same word, or beside the same fact."""
        other = place.facts.facts[at]
        if len(self._claim.of(fact)) == 1:
            # An initial: U.S.
            return False
        if fact.role and fact.role == other.role:
            return True
        own = self._claim.facts.index(fact)
        return any(
            0 <= own + step < len(self._claim.facts)
            and 0 <= at + step < len(place.facts.facts)
            and not self._claim.facts[own + step].keys.isdisjoint(place.facts.facts[at + step].covers)
            for step in (-1, 1)
        )

    def _is_in_sources(self, fact: Fact) -> bool:
        """Tells whether a name stands anywhere in the sources, or a fact in their metadata."""
        if any(not fact.keys.isdisjoint(self._named(source)) for source in self._search.sources):
            return True
        matches = self._matches(fact)
        if fact.kind is not Kind.NAME:
            return fact.kind is Kind.DATE and all(matches)
        return not matches or any(matches)

    @cached_property
    def _numbers(self) -> list[Fact]:
        """The numbers and dates of the passages near the claim."""
        listed = [fact for place in self._places for fact in place.facts.facts]
        return [fact for fact in listed if fact.kind in {Kind.NUMBER, Kind.DATE}]

    def _share_of_held(self, facts: Sequence[Fact], place: _Place) -> float:
        covered = frozenset[Hashable]().union(*(fact.covers for fact in place.facts.facts), self._named(place.source))
        return sum(not fact.keys.isdisjoint(covered) for fact in facts) / (len(facts) or 1)

    def _is_stated(self, other: Fact) -> bool:
        """Tells whether the claim has a fact of a place."""
        return any(not other.covers.isdisjoint(fact.keys) for fact in self._claim.facts)

    def _is_bounded(self, fact: Fact, place: _Place, rivals: Sequence[int]) -> bool:
        """Tells whether a limit stands beside a number, here or there, or its rivals are the ends of a range."""
        facts = place.facts.facts
        if any(_is_beside_amount(facts, at) for at in rivals) or _is_beside_amount(
            self._claim.facts, self._claim.facts.index(fact)
        ):
            return True
        return any(self._is_in_range(fact, place, facts[at]) for at in rivals)

    def _is_in_range(self, own: Fact, place: _Place, other: Fact | None) -> bool:
        """Tells whether a number or date of a place is an end of a range, in which that of the claim may lie.

        A weekday, an hour or a date does not where it is an end of a range itself, or beyond both.
        """
        if other is None or (ends := _range_of(place.facts, other)) is None:
            return False
        return own.kind is not Kind.DATE or (_range_of(self._claim, own) is None and not _is_beyond(own, *ends))

    def _follows(self, fact: Fact, factors: Sequence[float] = FACTORS) -> bool:
        """Tells whether a number is the sum, difference, product or share of two other numbers, or nearly one of them."""
        targets, is_date = _values_of(fact), fact.kind is Kind.DATE
        listed = [value for other in self._numbers for value in _values_of(other) if value]
        if is_date:
            listed += [amount for other in self._numbers for amount in other.amounts if amount]
        values = [*list(dict.fromkeys(listed))[:_MOST_NUMBERS], *factors]
        if fact.kind is Kind.NUMBER and any(
            abs(value - target) <= ROUGHLY * abs(value) for value in values for target in targets
        ):
            return True
        return any(
            abs(result - target) <= 1e-6 * max(1.0, abs(target))
            for place, value in enumerate(values)
            for other in values[place:]
            for result in (
                value + other,
                value - other,
                other - value,
                value * other,
                value / other,
                other / value,
                value * other / 100,
            )
            for target in targets
        )


def is_fragment(text: str) -> bool:
    """Tells whether a text is a name or the like, which only its question makes a statement."""
    bare = text.strip(" .!")
    return bare.count(" ") + 1 < LEAST_WORDS and ":" not in bare and not has_verb(bare, nouns=True)


def _values_of(fact: Fact) -> list[float]:
    """The values of a number in the units of its dimension, the year of a date, or the seconds of a time."""
    measured = [key for key in fact.keys if isinstance(key, tuple) and (key[1] or key[0] != "date")]
    return [float(key[1]) for key in measured if key[0] != "weekday" and isinstance(key[1], int | float)]


def _range_of(text: FactText, end: Fact) -> tuple[Fact, Fact] | None:
    """The ends of the range of which a fact is one; None for other facts."""
    facts = [fact for fact in text.facts if fact.kind in {Kind.NUMBER, Kind.DATE}]
    for first, last in pairwise(facts):
        between = text.text[first.end : last.start]
        if end not in {first, last}:
            continue
        has_figures = text.text[first.end - 1].isdigit() and text.text[last.start].isdigit()
        if _TO.fullmatch(between) or (
            _AND.fullmatch(between) and (has_figures or _BETWEEN.search(text.text, 0, first.start))
        ):
            return first, last
    return None


def _is_beyond(own: Fact, first: Fact, last: Fact) -> bool:
    """Tells whether a weekday, an hour or a date lies before a range of the same, or behind it."""
    places = [key for fact in (first, own, last) for key in fact.keys if isinstance(key, tuple)]
    if len(places) != 3 or len({place[0] for place in places}) > 1:  # noqa: PLR2004 - one for each fact
        return False
    # What one of them lacks, such as the year, tells nothing.
    parts = [parts for parts in zip(*(place[1:] for place in places), strict=True) if all(parts)]
    start, inside, end = zip(*parts, strict=True) if parts else ((), (), ())
    return not start <= inside <= end if start <= end else end < inside < start


_NAMING = frozenset({Kind.NUMBER, Kind.DATE, Kind.NAME})


_GAPS = ("[", "…", "...")


def _is_title(quoted: str) -> bool:
    """Tells whether most words of a quoted text begin with a capital."""
    letters = [word[0] for word in quoted.split() if word[0].isalpha()]
    return sum(map(str.isupper, letters)) * 2 > len(letters)


def _is_beside_amount(facts: Sequence[Fact], at: int) -> bool:
    beside = [*facts[max(0, at - 1) : at], *facts[at + 1 : at + 2]]
    return any(fact.kind is Kind.SIGN and not fact.group.isdisjoint(AMOUNTS) for fact in beside)


def _evidence(place: _Place) -> Evidence:
    return Evidence(source_index=place.source, start=place.span.start, end=place.span.end)
