"""Compares two things that a claim compares by the quantities that its sources give for each: "Plan B is cheaper than Plan A"."""

from collections.abc import Iterator

from schemas.claim_error import ErrorKind
from tasks.grounding.alignment import Alignment, Difference, Fit, Place
from tasks.text.fact_text import SIGNS, FactText
from tasks.text.lexicon import Comparative, Lexicon
from tasks.text.quantities import NUMBER, Quantity, comparable, is_money, is_period

_BETWEEN = 4
"""Tokens from the comparative to the word before the other thing: "a lower fee than"."""
_SENTENCE_ENDS = frozenset(".!?;\n。！？；")  # noqa: RUF001 - marks of other scripts


def comparisons(pair: Alignment, words: Lexicon) -> Iterator[Difference]:
    """The comparison of two things that their quantities in the windows contradict."""
    claim = pair.claim
    if words.than.isdisjoint(claim.lows):
        return
    for than in [at for at, low in enumerate(claim.lows) if low in words.than]:
        match = _comparative(claim, than, words)
        if match is None:
            continue
        start, comparative = match
        begin = max((at for at in claim.breaks if at < start), default=-1) + 1
        end = min((at for at in claim.breaks if at > than), default=len(claim.lows))
        if any(start <= each.first < end for each in claim.quantities):
            continue
        subject, rival = _distinct(claim, range(begin, start), range(than + 1, end))
        if subject and rival and not claim.negated.intersection(range(begin, end)):
            yield from _compared(pair, (subject, rival), comparative, (start, than))


def _comparative(claim: FactText, than: int, words: Lexicon) -> tuple[int, Comparative] | None:
    """The comparative before "than", with its first token."""
    for start in range(max(0, than - _BETWEEN), than):
        for comparative in words.comparatives.get(claim.lows[start], ()):
            last = start + len(comparative.words)
            if last <= than and tuple(claim.lows[start:last]) == comparative.words:
                return start, comparative
    return None


def _distinct(claim: FactText, subject: range, rival: range) -> tuple[frozenset[str], frozenset[str]]:
    """The stems that tell the two things apart: those of names, where both have some."""
    sides = [frozenset(claim.stems[at] for at in side if claim.stems[at]) for side in (subject, rival)]
    names = [frozenset(claim.stems[at] for at in side if at in claim.names) for side in (subject, rival)]
    own = [names[0] - sides[1], names[1] - sides[0]]
    if all(own):
        return own[0], own[1]
    return sides[0] - sides[1], sides[1] - sides[0]


def _compared(
    pair: Alignment, things: tuple[frozenset[str], frozenset[str]], comparative: Comparative, at: tuple[int, int]
) -> Iterator[Difference]:
    listed = [_quantities(pair, thing, opponent, comparative) for thing, opponent in (things, things[::-1])]
    if any(len({(frozenset(each.values), each.unit) for each, _ in matches}) != 1 for matches in listed):
        # None, or several among which words cannot choose.
        return
    (quantity, place), (rival, _) = listed[0][0], listed[1][0]
    if quantity.unit != rival.unit or not comparable(quantity, rival) or quantity.values == rival.values:
        return
    if (max(quantity.values) < min(rival.values)) != comparative.less:
        yield pair.difference(ErrorKind.DIRECTION, at[0], at[1] - 1, Fit(1.0, place))


def _quantities(
    pair: Alignment, thing: frozenset[str], rival: frozenset[str], comparative: Comparative
) -> list[tuple[Quantity, Place]]:
    """The quantities of a thing: those of its sentences, and behind its name in a sentence that has its rival, too."""
    matches = []
    for window in pair.windows:
        facts = window.facts
        for first, last in _sentences(facts):
            named = [at for at in range(first, last) if facts.stems[at] in thing]
            rivals = [at for at in range(first, last) if facts.stems[at] in rival]
            if not thing <= {facts.stems[at] for at in named}:
                continue
            for quantity in facts.quantities:
                if not first <= quantity.first < last or not _measures(quantity, comparative):
                    continue
                before = [at for at in named if at < quantity.first]
                if rivals and (not before or any(at > before[-1] for at in rivals if at < quantity.first)):
                    continue
                start = quantity.first - (quantity.first > first and facts.lows[quantity.first - 1] in SIGNS)
                matches.append((quantity, Place(window, start, quantity.last)))
    return matches


def _measures(quantity: Quantity, comparative: Comparative) -> bool:
    """Tells whether a quantity is of the kind that a comparative compares."""
    if quantity.kind != NUMBER or quantity.article:
        return False
    if comparative.kind == "money":
        return is_money(quantity)
    return comparative.kind != "time" or is_period(quantity)


def _sentences(facts: FactText) -> Iterator[tuple[int, int]]:
    start = 0
    for at, low in enumerate(facts.lows):
        if at in facts.breaks and low[0] in _SENTENCE_ENDS:
            yield start, at
            start = at + 1
    yield start, len(facts.lows)
