"""Finds the words of a claim that are denied on one side only: in the claim, or in the places of the sources near to it."""

from collections.abc import Iterator

from schemas.claim_error import ErrorKind
from tasks.grounding.alignment import NO_FIT, Alignment, Difference, Fit, Place
from tasks.text.fact_text import FactText
from tasks.text.wording import NEGATION

# The least fit of a rival, and its least lead over a place that agrees with the claim.
_DENIAL = (0.25, 0.1)
_DENIED_SUBJECT = 0.35
_COMPARED = 0.5
"""Least fit against a claim that only prefers one thing to another: rather than, instead of."""
_LOST_DENIAL = (0.5, 0.1)
_NEAR_COPY = 0.6
"""Score of the best window from which a denial by the source, which the claim lacks, counts."""
_COPY = 0.75
"""Fit from which a source says the same in the same words, so that it does not deny it in others."""
_BESIDE = 2
"""Tokens between a negation and the word that it denies."""
_NEGATING = ("un", "in", "im", "ir", "il", "non", "dis")
"""Beginnings of a word that deny the rest of it."""
_STEM = 5
_SENTENCE = 8.0
"""Distance within a sentence; the end of one is as far."""


def negations(pair: Alignment) -> Iterator[Difference]:
    """Words that are denied on one side only."""
    claim = pair.claim
    near_copy = pair.windows[0].score >= _NEAR_COPY
    denying = any(window.facts.cues for window in pair.windows)
    if not claim.cues and not (near_copy and denying):
        return
    for stem, positions in claim.positions.items():
        if stem == NEGATION or stem[0].isdigit():
            continue
        for position in positions:
            denied = position in claim.negated or position in claim.subjects
            if denied and _distance(claim, position) > _BESIDE:
                continue
            if denied or near_copy:
                yield from _negation(pair, stem, position, denied=denied)
    if claim.cues and not denying:
        yield from _only_claimed(pair)


def _negation(pair: Alignment, stem: str, position: int, *, denied: bool) -> Iterator[Difference]:
    agree, differ = _denied_places(pair, stem, denied=denied)
    if not differ:
        return
    least, lead = _DENIAL if denied else _LOST_DENIAL
    if denied and position not in pair.claim.negated:
        # "The line does not operate" may say what "the line is closed" does.
        if not _holds_denied_word(pair, position):
            return
        least = _DENIED_SUBJECT
    if denied and _cue(pair.claim, position) in pair.claim.comparisons:
        least = _COMPARED
    context = pair.context(position, position)
    if denied and not context[0] and not agree and not any(window.facts.implied for window in pair.windows):
        # "There is no warranty": no other word says where to look, so any place that has one counts.
        first, last = _with_cue(pair.claim, position)
        yield pair.difference(ErrorKind.NEGATION, first, last, Fit(0.0, differ[0]))
        return
    rival = pair.fit(context, differ)
    if rival.place is None or rival.score < least:
        return
    if agree and rival.score < pair.fit(context, agree).score + lead:
        return
    implied = rival.score < _COPY and _implies_denial(rival.place)
    if denied and (implied or _agrees_beside(pair, position) >= rival.score):
        return
    yield _denial(pair, position, rival.score, rival.place, denied=denied)


def _denied_places(pair: Alignment, stem: str, *, denied: bool) -> tuple[list[Place], list[Place]]:
    """The places of a word that are denied as in the claim, and those that are not."""
    agree: list[Place] = []
    differ: list[Place] = []
    for window in pair.windows:
        facts = window.facts
        for at in facts.positions.get(stem, ()):
            if (at in facts.negated or (denied and at in facts.subjects)) == denied:
                agree.append(Place(window, at, at))
            elif denied or _distance(facts, at) <= _BESIDE:
                differ.append(Place(window, at, at))
    return agree, differ


def _implies_denial(place: Place) -> bool:
    """Tells whether the sentence of a place may deny it in other words: "only members" for "not those who are no members"."""
    facts = place.window.facts
    return any(abs(facts.places[at] - facts.places[place.first]) < _SENTENCE for at in facts.implied)


def _agrees_beside(pair: Alignment, position: int) -> float:
    """The best fit of another word of the same negation that a window denies, too."""
    claim = pair.claim
    _, last = _cue(claim, position)
    best = 0.0
    for at in range(last + 1, len(claim.lows)):
        if at not in claim.negated or at in claim.breaks:
            break
        if at != position and claim.stems[at]:
            agree, _ = _denied_places(pair, claim.stems[at], denied=True)
            agree = [place for place in agree if place.first in place.window.facts.negated]
            best = max(best, pair.fit(pair.context(at, at), agree).score if agree else 0.0)
    return best


def _denial(pair: Alignment, position: int, score: float, place: Place, *, denied: bool) -> Difference:
    """A difference that shows the negation on the side that has it."""
    first, last = _with_cue(pair.claim, position) if denied else (position, position)
    start, end = (place.first, place.last) if denied else _with_cue(place.window.facts, place.first)
    return pair.difference(ErrorKind.NEGATION, first, last, Fit(score, Place(place.window, start, end)))


def _holds_denied_word(pair: Alignment, position: int) -> bool:
    """Tells whether a window has the word of content after the negation that follows a position."""
    claim = pair.claim
    after = (claim.stems[at] for at in range(position + 1, len(claim.lows)) if at in claim.negated)
    denied = next(filter(None, after), None)
    return denied is not None and any(denied in window.facts.positions for window in pair.windows)


# ---- denials that no window has -------------------------------------------------------------------------------------


def _only_claimed(pair: Alignment) -> Iterator[Difference]:
    """The denials of words that stand in the windows, where no window denies anything."""
    claim = pair.claim
    if any(window.facts.implied for window in pair.windows):
        return
    for cue in claim.cues:
        if cue in claim.comparisons or cue in claim.doubts:
            continue
        reach = [at for at in range(cue[1] + 1, len(claim.lows)) if at in claim.negated and claim.stems[at]]
        if _is_said_otherwise(pair, reach):
            continue
        best, where = NO_FIT, 0
        for at in reach:
            places = [
                Place(window, there, there)
                for window in pair.windows
                for there in window.facts.positions.get(claim.stems[at], ())
            ]
            fit = pair.fit(pair.context(at, at), places)
            if fit.score > best.score:
                best, where = fit, at
        if best.place is not None:
            yield pair.difference(ErrorKind.NEGATION, cue[0], where, best, sure=2.0)


def _is_said_otherwise(pair: Alignment, reach: list[int]) -> bool:
    """Tells whether a window has the opposite of a denied word: forbidden for "not allowed", unsafe for "not safe"."""
    claim = pair.claim
    sides = {side for first, _, listed in claim.poles if first in reach for side in listed}
    opposites = {
        side
        for window in pair.windows
        for _, _, listed in window.facts.poles
        for side in listed
        if side not in sides and any(side[0] == group for group, _ in sides)
    }
    if opposites:
        return True
    roots = [claim.lows[at][:_STEM] for at in reach]
    return any(
        f"{prefix}{root}" in low
        for window in pair.windows
        for low in window.facts.lows
        if low.startswith(_NEGATING)
        for prefix in _NEGATING
        for root in roots
    )


# ---- the place of a negation ---------------------------------------------------------------------------------------


def _distance(facts: FactText, position: int) -> int:
    """Tokens from a position to the nearest negation of its sentence."""
    here = facts.places[position]
    return min(
        (
            min(abs(position - first), abs(position - last))
            for first, last in facts.cues
            if abs(facts.places[first] - here) < _SENTENCE
        ),
        default=len(facts.lows),
    )


def _cue(facts: FactText, position: int) -> tuple[int, int]:
    """The negation nearest to a word."""
    return min(facts.cues, key=lambda cue: min(abs(position - cue[0]), abs(position - cue[1])))


def _with_cue(facts: FactText, position: int) -> tuple[int, int]:
    """The tokens from a word to the negation that denies it."""
    first, last = _cue(facts, position)
    return min(first, position), max(last, position)
