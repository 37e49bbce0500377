"""Finds a condition that a claim makes of an exception of its sources: "even if it is reserved", and "unless it is reserved"."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from schemas.claim_error import ErrorKind
from tasks.grounding.alignment import Alignment, Difference, Fit, Place, Window
from tasks.text.fact_text import FactText
from tasks.text.lexicon import Lexicon
from tasks.text.wording import NEGATION

_LEAST = 0.6
"""Share of the words of the claim's condition, by weight, in the clause that excepts it."""
_LEAST_MAIN = 0.4
"""Share of the claim's other words in the sentence around that clause: it may be the exception of another rule."""


class _Clause(NamedTuple):
    """A condition, or an exception: its first token, the one after its last, and its words of content.

    A denied condition is an exception: "if nobody has reserved it".
    """

    start: int
    end: int
    stems: frozenset[str]
    excepts: bool
    denied: bool


class Conditions:
    """The conditions and exceptions of a claim beside those of the same cases in the windows.

    ``agreed`` where a window has a condition of the claim as the exception of the denied rule, or the reverse: "not
    renewed if it is reserved", and "renewed unless it is reserved". Then the denial is right.
    """

    def __init__(self, pair: Alignment, words: Lexicon) -> None:
        self._pair, self._words = pair, words
        self.agreed = False
        self._turned: list[tuple[_Clause, Place]] = []
        if stated := _clauses(pair.claim, words):
            listed = [(window, clause) for window in pair.windows for clause in _clauses(window.facts, words)]
            for clause in stated:
                self._compare(clause, listed)

    def differences(self) -> Iterator[Difference]:
        """The conditions that the windows have as exceptions of the same rule only, and the exceptions that are conditions there."""
        for clause, place in self._turned:
            yield self._pair.difference(ErrorKind.DIRECTION, clause.start, clause.end - 1, Fit(1.0, place))

    def _compare(self, clause: _Clause, listed: list[tuple[Window, _Clause]]) -> None:
        same = [(window, other) for window, other in listed if self._pair.share(clause.stems, other.stems) >= _LEAST]
        turned = []
        for window, other in same:
            denied = _denies_rule(self._pair, clause, window.facts, other, self._words)
            if other.excepts == clause.excepts:
                # "If nobody has reserved it" denies nothing of "unless it is reserved".
                self.agreed |= clause.denied != other.denied and denied is False
                return
            if denied is not None:
                self.agreed |= denied
                turned += [] if denied else [Place(window, other.start, other.end - 1)]
        if turned and not self.agreed:
            self._turned.append((clause, turned[0]))


def _clauses(facts: FactText, words: Lexicon) -> list[_Clause]:
    """The conditions and exceptions of a text, each up to the next one or to a punctuation mark."""
    lows = facts.lows
    begins = words.conditional | words.exceptions
    # "Except if", "sauf si": the first word tells which it is.
    starts = [at for at, low in enumerate(lows) if low in begins and not (at and lows[at - 1] in begins)]
    clauses = []
    for at, following in pairwise([*starts, len(lows)]):
        end = next((stop for stop in range(at, following) if stop in facts.breaks), following)
        stems = frozenset(facts.stems[at + 1 : end]) - {"", NEGATION}
        if stems:
            denied = _denies(facts, range(at, end), words)
            clauses.append(_Clause(at, end, stems, (lows[at] in words.exceptions) != denied, denied))
    return clauses


def _denies_rule(pair: Alignment, clause: _Clause, facts: FactText, other: _Clause, words: Lexicon) -> bool | None:
    """Tells whether the claim denies the rule of a window around their clauses; None where these are of two rules."""
    claim = pair.claim
    main = [at for at in range(len(claim.lows)) if not clause.start <= at < clause.end]
    main_there = [at for at in range(*facts.sentence(other.start)) if not other.start <= at < other.end]
    stems = frozenset(claim.stems[at] for at in main) - {"", NEGATION}
    if pair.share(stems, {facts.stems[at] for at in main_there}) < _LEAST_MAIN:
        return None
    return _denies(claim, main, words) != _denies(facts, main_there, words)


def _denies(facts: FactText, tokens: Sequence[int], words: Lexicon) -> bool:
    """Tells whether some tokens deny something or imply a denial; an exception, or "only if", denies no rule."""
    starts = [*(first for first, _ in facts.cues), *facts.implied]
    return any(at in tokens and facts.lows[at] not in words.exceptions | words.restrictive for at in starts)
