"""Finds a claim that says what a clause of its sources denies: "the filter may be opened", and "never open the filter"."""

from collections.abc import Iterator
from operator import itemgetter

from schemas.claim_error import ErrorKind
from tasks.grounding.alignment import Alignment, Difference, Fit, Place
from tasks.text.fact_text import FactText
from tasks.text.lexicon import Lexicon
from tasks.text.limit_reader import read_limit
from tasks.text.wording import NEGATION

_LEAST = 0.7
"""Share of the claim's words, by weight, in a denied clause that contradicts it."""
_LEAD = 0.15
"""Its lead over clauses that deny nothing."""
_BESIDE = 3
"""Tokens after a negation among which a word of the claim must stand."""
_SHORTEST = 3
"""Letters of a stem that other forms of the word begin with: use, used."""
_CLAUSE_ENDS = frozenset(".!?;,:\n。！？；，：")  # noqa: RUF001 - marks of other scripts


def denied_clauses(pair: Alignment, words: Lexicon) -> Iterator[Difference]:
    """The clause of a window that denies what the claim says, where no other one says it."""
    claim = pair.claim
    if claim.cues or claim.implied or not any(window.facts.cues for window in pair.windows):
        return
    denials = []
    for window in pair.windows:
        facts = window.facts
        for cue in facts.cues:
            clause = next((clause for clause in _clauses(facts) if cue[0] in clause), range(0))
            word = _denied_word(claim, facts, cue, clause.stop)
            if word is not None and _is_plain(facts, cue, clause, words):
                denials.append((_share(pair, facts, clause), window, cue, word))
    if not denials:
        return
    share, window, cue, (position, at) = max(denials, key=itemgetter(0))
    if share < _LEAST:
        return
    starts = {id(window): [cue[0] for cue in window.facts.cues] for window in pair.windows}
    affirmed = max(
        (
            _share(pair, window.facts, clause)
            for window in pair.windows
            for clause in _clauses(window.facts)
            if not any(start in clause for start in starts[id(window)])
        ),
        default=0.0,
    )
    if share >= affirmed + _LEAD:
        yield pair.difference(ErrorKind.NEGATION, position, position, Fit(share, Place(window, cue[0], at)))


def _is_plain(facts: FactText, cue: tuple[int, int], clause: range, words: Lexicon) -> bool:
    """Tells whether a negation denies its clause: no condition, no doubt, no comparison, and no limit of a number."""
    if cue in facts.doubts or cue in facts.comparisons:
        return False
    if any(facts.lows[at] in words.conditions for at in clause):
        return False
    limits = (read_limit(facts, quantity, words) for quantity in facts.quantities if quantity.first in clause)
    return not any(limit is not None and limit.first <= cue[0] <= limit.last for limit in limits)


def _clauses(facts: FactText) -> Iterator[range]:
    start = 0
    for at in sorted(facts.breaks):
        if facts.lows[at][0] in _CLAUSE_ENDS:
            if at > start:
                yield range(start, at)
            start = at + 1
    if start < len(facts.lows):
        yield range(start, len(facts.lows))


def _denied_word(claim: FactText, facts: FactText, cue: tuple[int, int], end: int) -> tuple[int, int] | None:
    """The places of the first word after a negation in the claim and in the window; None where the claim lacks it."""
    after = (at for at in range(cue[1] + 1, min(cue[1] + 1 + _BESIDE, end)) if facts.stems[at])
    if (at := next(after, None)) is None:
        return None
    forms = (stem for stem in claim.positions if stem == facts.stems[at] or _is_form(stem, facts.stems[at]))
    stem = next(forms, None)
    return (claim.positions[stem][0], at) if stem is not None else None


def _share(pair: Alignment, facts: FactText, tokens: range) -> float:
    """The share of the claim's words among some tokens, by weight."""
    there = {facts.stems[at] for at in tokens}
    total = covered = 0.0
    for stem in pair.claim.positions:
        if stem == NEGATION:
            continue
        weight = pair.weight(stem)
        total += weight
        if stem in there or any(_is_form(stem, other) for other in there):
            covered += weight
    return covered / total if total else 0.0


def _is_form(stem: str, other: str) -> bool:
    return min(len(stem), len(other)) >= _SHORTEST and (stem.startswith(other) or other.startswith(stem))
