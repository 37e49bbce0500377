"""Accounts for each fact of a claim by one place of the sources: all are there, all but one that differs there, or not.

A place is a sentence, or a part of one, with the metadata of its source. It accounts for a claim where each fact of the claim has a
fact of its own there that says the same, in an order that keeps who does what to whom, and where nothing is left out that turns
the sentence: a negation, a condition, a limit. Language plays no part here.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from schemas.claim_error import ErrorKind
from tasks.text.fact_words import BINDING
from tasks.text.facts import OF, RELATIVE, Fact, FactText, Kind

LEAST_FACTS = 2
"""Facts of a claim below which it states nothing: a heading, a name."""
LEAST_NEAR = 4
"""Facts that a claim shares with a place of which one noun differs, behind the same preposition."""
MOST_LEFT_OUT = 3
"""Facts of a part of a sentence that a claim may leave out."""


ANY_ROLE = "any"
"""The role of a fact of a table, which no word leads."""


class Account(NamedTuple):
    """The account of a claim by a place; ``missing`` are the claim's facts that it lacks.

    ``differs`` is the claim's fact and the one in its place, where all else is accounted for.
    """

    supported: bool
    missing: tuple[Fact, ...] = ()
    differs: tuple[Fact | None, Fact | None] | None = None
    kind: ErrorKind | None = None

    @property
    def contradicted(self) -> bool:
        """All of the claim is accounted for but a fact that differs."""
        return self.differs is not None


def account(
    claim: FactText,
    place: FactText,
    named: Collection[Hashable] = (),
    elsewhere: Callable[[Fact], bool] = lambda _: False,
) -> Account:
    """Accounts for a claim by a sentence, its parts, and what these leave out.

    Args:
        claim: the claim.
        place: the sentence.
        named: the words of the metadata of its source.
        elsewhere: tells whether a word of the claim stands anywhere in the sources.
    """
    if len(claim.facts) < LEAST_FACTS:
        return Account(supported=False)
    accounts = (
        _Account(claim.facts, facts, named, elsewhere).result() for facts in _readings(claim.facts, place.facts)
    )
    return max(accounts, key=lambda each: (each.supported, each.contradicted, -len(each.missing)))


# ---- the readings of a sentence ---------------------------------------------------------------------------------------


def _readings(claim: Sequence[Fact], facts: Sequence[Fact]) -> Iterator[Sequence[Fact]]:
    """A sentence, and its parts with what they share with the one before: "A was filed in 1 and granted in 2", "A is open, B is not"."""
    yield facts
    if any("respectively" in fact.group for fact in facts):
        # What belongs to what is told by the order of two lists.
        return
    parts: list[list[Fact]] = []
    for fact in facts:
        if parts and parts[-1][-1].clause == fact.clause:
            parts[-1].append(fact)
        else:
            parts.append([fact])
    stated = {key for fact in claim for key in fact.keys}
    full, *rest = parts or [[]]
    for part in rest:
        if part[0].role == RELATIVE:
            # What it says is of its noun, not of the subject.
            continue
        shared = next((at for at, fact in enumerate(full) if fact.covers.isdisjoint(stated)), len(full))
        is_denied = shared < len(full) and full[shared].denies
        if (
            0 < shared < len(full)
            # No pool, gym or sauna.
            and not is_denied
            and not part[0].covers.isdisjoint(stated)
        ):
            yield [*(fact._replace(clause=part[0].clause) for fact in full[:shared]), *part]
        for filled in _filled(full, part):
            yield [fact._replace(clause=part[0].clause) for fact in filled]


def _filled(full: Sequence[Fact], part: Sequence[Fact]) -> Iterator[Sequence[Fact]]:
    """A short part of a sentence with the predicate of the full one before it."""
    own = {key for fact in part for key in fact.keys}
    same = max((at for at, fact in enumerate(full) if not fact.keys.isdisjoint(own)), default=None)
    if part[-1].denies and len(part) > 1:
        yield [*part, *full[(len(part) - 2 if same is None else same) + 1 :]]
        return
    if part[0].denies and len(part) > 1:
        end = next((at for at, fact in enumerate(full) if fact.role and fact.role == part[1].role), None)
        if end is not None:
            yield [*full[:end], *part]
        return
    for at, fact in enumerate(part):
        if fact.kind not in {Kind.NUMBER, Kind.DATE}:
            continue
        slot = next(
            (place for place, other in enumerate(full) if other.kind is fact.kind and excludes(fact, other)), None
        )
        if slot is not None:
            yield [*part[:at], *full[min(at if same is None else same + 1, slot) : slot], *part[at:]]
        return


# ---- one reading ------------------------------------------------------------------------------------------------------


@dataclass
class _Account:
    claim: Sequence[Fact]
    place: Sequence[Fact]
    named: Collection[Hashable]
    elsewhere: Callable[[Fact], bool]
    pairs: dict[int, int] = field(init=False)
    """The place's fact of each fact of the claim."""

    def __post_init__(self) -> None:
        self.pairs = _aligned(self.claim, self.place)
        self._move()

    def result(self) -> Account:  # noqa: PLR0911 - one for each case
        missing = [at for at, fact in enumerate(self.claim) if at not in self.pairs and not self._is_named(fact)]
        absent = tuple(self.claim[at] for at in missing)
        if not self.pairs or len(missing) > 1 or not self._keeps_roles():
            return Account(supported=False, missing=absent)
        paired = set(self.pairs.values())
        left_out = [at for at in range(len(self.place)) if at not in paired]
        turned = [at for at in left_out if self._turns(at)]
        if not missing:
            if not turned:
                return Account(supported=self._leaves_nothing_out(left_out))
            remaining = [at for at in left_out if at != turned[0]]
            if len(turned) == 1 and self._denies_stated(turned[0]) and self._is_whole(remaining):
                return Account(False, (), (None, self.place[turned[0]]), ErrorKind.NEGATION)
            return Account(supported=False)
        fact = self.claim[missing[0]]
        rival = self._rival(missing[0], left_out)
        remaining = [at for at in left_out if at != rival]
        turns = [at for at in turned if at != rival]
        if fact.kind is Kind.SIGN and len(turns) == 1 and self.place[turns[0]].denies:
            # May, and must not: the other side of a duty, denied.
            remaining.remove(turns.pop())
        if rival is not None and not turns and self._is_whole(remaining):
            return Account(False, absent, (fact, self.place[rival]), _KINDS[fact.kind])
        if not turned and fact.denies and self._is_whole(left_out):
            return Account(False, absent, (fact, None), ErrorKind.NEGATION)
        return Account(supported=False, missing=absent)

    def _is_named(self, fact: Fact) -> bool:
        return fact.kind in {Kind.WORD, Kind.NAME, Kind.DATE} and any(key in self.named for key in fact.keys)

    def _move(self) -> None:
        """Adds phrases that stand elsewhere in the place, led by the same word: "during probation".

        A word that leads several phrases there tells none of them from the others: "in the south ... in the north".
        """
        roles = [fact.role for fact in self.place]
        leading = Counter(roles)
        paired = set(self.pairs.values())
        for at, fact in enumerate(self.claim):
            if at in self.pairs or not fact.role or leading[fact.role] != 1:
                continue
            for own, there in zip(range(at, len(self.claim)), range(roles.index(fact.role), len(roles)), strict=False):
                if (
                    own in self.pairs
                    or there in paired
                    or (own > at and self.claim[own].role)
                    or self.claim[own].keys.isdisjoint(self.place[there].covers)
                ):
                    break
                self.pairs[own] = there
                paired.add(there)

    def _keeps_roles(self) -> bool:
        return all(
            not (role := self.claim[own].role)
            or self.place[there].role in {role, ANY_ROLE}
            # A width of 6 m, and width: 6 m.
            or (role == OF and not self.place[there].role and self.claim[own].kind is Kind.NUMBER)
            for own, there in self.pairs.items()
        )

    def _turns(self, at: int) -> bool:
        """Tells whether a fact that the claim leaves out turns what it says."""
        fact = self.place[at]
        if fact.kind is not Kind.SIGN:
            return False
        clauses = {self.place[there].clause for there in self.pairs.values()}
        if fact.clause in clauses:
            return True
        if "not" in fact.group:
            return at == 0 or self.place[at - 1].clause != fact.clause
        return bool(fact.group & BINDING)

    def _denies_stated(self, at: int) -> bool:
        """Tells whether a fact is a negation, and of what the claim states: "five levels and no timer" has five levels."""
        following = at + 1
        is_last = following == len(self.place) or self.place[following].clause != self.place[at].clause
        return self.place[at].denies and (is_last or following in self.pairs.values())

    def _leaves_nothing_out(self, left_out: Sequence[int]) -> bool:
        """Tells whether a claim has all facts of its parts of the sentence, but for the title of a name.

        What else is left out there, or led by a preposition before them, may restrict the claim, deny it, or tell who says so.
        """
        paired = set(self.pairs.values())
        clauses = {self.place[there].clause for there in paired}
        first = min(paired)
        for at in left_out:
            fact = self.place[at]
            behind = self.place[at + 1] if at + 1 in paired else fact
            if fact.kind is Kind.WORD and behind.kind is Kind.NAME and behind.role in {"", ANY_ROLE}:
                continue
            if fact.clause in clauses or (at < first and (fact.role or fact.kind is Kind.SIGN)):
                return False
        return True

    def _is_whole(self, left_out: Sequence[int]) -> bool:
        """Tells whether the claim says what the place does without what it leaves out."""
        places = sorted(self.pairs.values())
        clauses = {self.place[there].clause for there in places}
        near = [at for at in left_out if self.place[at].clause in clauses]
        inside = [at for at in near if places[0] < at < places[-1]]
        signs = [self.claim[own] for own in self.pairs if self.claim[own].kind is Kind.SIGN]
        if len(near) > MOST_LEFT_OUT or (inside and (signs or len(clauses) > 1)):
            return False
        # Another number may be the one that the rest belongs to.
        return not any(self.place[at].kind in {Kind.NUMBER, Kind.DATE} for at in near)

    def _rival(self, at: int, left_out: Sequence[int]) -> int | None:
        """The place's fact that stands where the claim has another one of its group."""
        fact = self.claim[at]
        before = max((there for own, there in self.pairs.items() if own < at), default=-1)
        after = min(
            (there for own, there in self.pairs.items() if own > at and there > before), default=len(self.place)
        )
        between = [there for there in left_out if before < there < after]
        for there in between:
            if excludes(fact, self.place[there]):
                return there
        other = self.place[between[0]] if len(between) == 1 else None
        if other is None or not (fact.kind is other.kind is Kind.WORD) or fact.role != other.role:
            return None
        if _are_alike(fact, other):
            return None
        # A word of no source may be another one for the same thing, but hardly where a preposition leads both and all else is the same.
        is_near = bool(fact.role) and len(self.pairs) >= LEAST_NEAR
        return between[0] if is_near or self.elsewhere(fact) else None


def _are_alike(fact: Fact, other: Fact) -> bool:
    """Tells whether two words may be forms of one, or one a kind of the other: incluida, incluyen; Käfersammlung, Sammlung."""
    return any(
        # A shorter beginning may turn the rest: unopened, Verkauf.
        own[:4] == there[:4] or own[4:].endswith(there) or there[4:].endswith(own)
        for own in fact.keys
        for there in other.keys
        if isinstance(own, str) and isinstance(there, str)
    )


_KINDS = {
    Kind.NUMBER: ErrorKind.NUMBER,
    Kind.DATE: ErrorKind.DATE,
    Kind.NAME: ErrorKind.NAME,
    Kind.SIGN: ErrorKind.DIRECTION,
    Kind.WORD: ErrorKind.DIRECTION,
}


def _aligned(claim: Sequence[Fact], place: Sequence[Fact]) -> dict[int, int]:
    """The longest pairing of equal facts in one order."""
    where: dict[Hashable, list[int]] = {}
    for at, fact in enumerate(place):
        for key in fact.covers:
            where.setdefault(key, []).append(at)
    # The pairing of each length that ends earliest: its last pair, and the pairing before that.
    ends: list[int] = []
    chains: list[tuple[int, int, Any]] = []
    for own, fact in enumerate(claim):
        matching = {at for key in fact.keys if key in where for at in where[key] if not _is_rescaled(fact, place[at])}
        for there in sorted(matching, reverse=True):
            length = bisect_left(ends, there)
            chain = (own, there, chains[length - 1] if length else None)
            if length == len(ends):
                ends.append(there)
                chains.append(chain)
            elif there < ends[length]:
                ends[length], chains[length] = there, chain
    pairs: dict[int, int] = {}
    last = chains[-1] if chains else None
    while last is not None:
        own, there, last = last
        pairs[own] = there
    return dict(reversed(pairs.items()))


def _is_rescaled(fact: Fact, other: Fact) -> bool:
    """Tells whether two numbers are the same digits with other units: 1.500 g is not 1.500 kg, however its point is read."""
    return len(fact.amounts) > 1 and fact.amounts == other.amounts and fact.keys != other.keys


def excludes(fact: Fact, other: Fact) -> bool:
    """Tells whether two facts are of one group, so that not both can stand in one place."""
    if Kind.NAME in {fact.kind, other.kind}:
        return fact.kind is other.kind
    shared = fact.group & other.group
    if "date" in shared:
        return any(_is_other_date(own, there) for own in fact.keys for there in other.keys)
    if fact.kind is other.kind is Kind.WORD and shared:
        return "unit" in shared
    groups = {side[0] if isinstance(side, tuple) else side for side in fact.group}
    return any((side[0] if isinstance(side, tuple) else side) in groups for side in other.group)


def _is_other_date(own: Hashable, there: Hashable) -> bool:
    """Tells whether two dates have a part that differs; 18 October and October 2018 have none."""
    return (
        isinstance(own, tuple)
        and isinstance(there, tuple)
        and own[0] == there[0] == "date"
        and any(part and other and part != other for part, other in zip(own[1:], there[1:], strict=True))
    )
