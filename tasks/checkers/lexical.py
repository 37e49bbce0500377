"""Check by words: a fitted model turns what is measured of a claim into the probability that the sources support it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schemas.grounding import Evidence, Verdict
from tasks.checkers.answer import CheckedClaim, CheckInput, ClaimFinding
from tasks.checkers.attribution import Attribution, attribution
from tasks.checkers.conflicts import number_conflict
from tasks.checkers.features import Found, Said, look, read_claim
from tasks.checkers.model import LexicalModel, shipped
from tasks.text.evidence import SourceSearch
from tasks.text.sentences import words

_SHOWN_WORDS = 6
_LOW_RECALL = 0.75
"""Recall below which the missing words are named among the reasons."""


class Lexical:
    """Measures each claim in the sources it cites; if those don't support it, or it cites none, in all of them.

    Args:
        model: the shipped one unless given, perhaps with someone's own calibration.
    """

    name = "lexical"

    def __init__(self, model: LexicalModel | None = None) -> None:
        self._model = model or shipped()
        self.version = self._model.version
        self.dependence = self._model.dependence
        """How alike the claims of an answer fare: see ``together``."""

    def check(self, answer: CheckInput) -> list[ClaimFinding]:
        """One finding per claim, in order. The sources are read once for all claims."""
        asked = frozenset(words(answer.request.query))
        return [self._finding(judged, asked) for judged in self._judge(answer)]

    def log_odds(self, answer: CheckInput) -> list[float]:
        """The model's score of each claim before calibration: what a calibration is made from."""
        return [self._model.log_odds(judged.found.features) for judged in self._judge(answer)]

    def _judge(self, answer: CheckInput) -> Iterator["_Judged"]:
        said = [read_claim(claim.text) for claim in answer.claims]
        search = SourceSearch(answer.request.context, frozenset[str]().union(*(one.content for one in said)))
        for claim, one in zip(answer.claims, said, strict=True):
            yield self._judged(search, claim, one)

    def _judged(self, search: SourceSearch, claim: CheckedClaim, said: Said) -> "_Judged":
        cited = frozenset(citation.source_index for citation in claim.citations)
        found = look(search, said, cited or None)
        score = self._model.probability(found.features)
        by_cited = score >= self._model.supported_at
        miscited = False
        if cited and not by_cited:
            everywhere = look(search, said)
            elsewhere = self._model.probability(everywhere.features)
            miscited = elsewhere >= self._model.supported_at
            if miscited or not found.used:
                found, score = everywhere, max(score, elsewhere)
        judged = attribution(
            cited,
            supported=by_cited,
            entails=lambda scope: (
                self._model.probability(look(search, said, scope).features) >= self._model.supported_at
            ),
        )
        return _Judged(search, said, found, score, score >= self._model.supported_at, miscited, judged)

    def _finding(self, judged: "_Judged", asked: frozenset[str]) -> ClaimFinding:
        return ClaimFinding(
            verdict=Verdict.SUPPORTED if judged.supported else Verdict.UNSUPPORTED,
            score=round(judged.score, 4),
            evidence=_evidence(judged),
            miscited=judged.miscited,
            reason="; ".join(_reasons(judged, asked)),
            attribution=judged.attribution,
        )


@dataclass(frozen=True, slots=True)
class _Judged:
    """A claim with what was found for it, and where."""

    search: SourceSearch
    said: Said
    found: Found
    score: float
    supported: bool
    miscited: bool
    attribution: Attribution


def _evidence(judged: _Judged) -> tuple[Evidence, ...]:
    evidence = []
    for match in judged.found.used:
        start, end = judged.search.span(match, judged.said.content)
        evidence.append(Evidence(source_index=match.source_index, start=start, end=end, score=round(match.score, 4)))
    return tuple(evidence)


def _reasons(judged: _Judged, asked: frozenset[str]) -> list[str]:
    """What speaks against a claim, in words, what weighs most first; of a supported one only what to look at."""
    search, said, found = judged.search, judged.said, judged.found
    reasons = []
    if judged.miscited:
        reasons.append("supported by a source that it does not cite")
    if found.numbers_absent:
        reasons.append(_absent("number", found.numbers_absent, asked))
        reasons.extend(number_conflict(search, said, found))
    if found.names_absent:
        reasons.append(_absent("name", found.names_absent, frozenset()))
    if judged.supported:
        return reasons
    if found.denies:
        reasons.append("it denies something, and the best place in the sources does not")
    if not found.used:
        reasons.append("none of its words stand in the sources")
    elif found.features.recall < _LOW_RECALL or not reasons:
        held = set[str]().union(*(search.matched_words(match, said.content) for match in found.used))
        absent = sorted(said.content - held, key=lambda stem: (-search.weights[stem], stem))[:_SHOWN_WORDS]
        missing = f"; missing there: {', '.join(said.written(stem) for stem in absent)}" if absent else ""
        reasons.append(f"the best place in the sources holds {found.features.recall:.0%} of what it says{missing}")
    return reasons


def _absent(kind: str, missing: Sequence[str], asked: frozenset[str]) -> str:
    named = ", ".join(missing)
    told = f"the {kind} {named} is in no source" if len(missing) == 1 else f"the {kind}s {named} are in no source"
    return told + " (only in the question)" if all(word in asked for word in missing) else told
