"""Check by words: a claim is supported when one place in the sources holds most of what it says, numbers included."""

from collections.abc import Sequence

from schemas.grounding import Evidence, Verdict
from tasks.checkers.answer import CheckedClaim, CheckInput, ClaimFinding
from tasks.text.evidence import Match, SourceSearch, content_words
from tasks.text.sentences import words

SUPPORTED_AT = 0.475
"""Least share of a claim's words, by weight, that one window of a source must hold. Chosen once on labelled public
sets (WiCE, Q2, FaithDial, FactCheck-GPT), where anything from 0.35 to 0.5 is within a point."""

BLOCKED_SCORE = 0.3
"""Highest score of a claim with a number that stands in no source."""

_DIGIT_END = "9"


class Lexical:
    """Compares each claim with the best window of each source; cited sources first, then all."""

    name = "lexical"
    version = "1"

    def check(self, answer: CheckInput) -> list[ClaimFinding]:
        """One finding per claim, in order."""
        said = [words(claim.text) for claim in answer.claims]
        contents = [content_words(found) for found in said]
        search = SourceSearch(answer.request.context, frozenset[str]().union(*contents))
        asked = frozenset(words(answer.request.query))
        return [
            _finding(search, claim, content, [word for word in found if word[0] <= _DIGIT_END], asked)
            for claim, found, content in zip(answer.claims, said, contents, strict=True)
        ]


def _finding(
    search: SourceSearch, claim: CheckedClaim, content: frozenset[str], written: Sequence[str], asked: frozenset[str]
) -> ClaimFinding:
    cited = dict.fromkeys(citation.source_index for citation in claim.citations)
    score, used = _score(search, content, [match for index in cited if (match := search.best(content, index))])
    miscited = False
    if score < SUPPORTED_AT:
        elsewhere = search.best_of_all(content)
        if elsewhere is not None and elsewhere.score > score and (elsewhere.score >= SUPPORTED_AT or not used):
            score, used = elsewhere.score, [elsewhere]
            miscited = bool(cited) and score >= SUPPORTED_AT
    missing = [number for number in dict.fromkeys(written) if not search.holds_number(number)]
    if missing:
        return _blocked(search, content, min(score, BLOCKED_SCORE), used, missing=missing, asked=asked)
    supported = score >= SUPPORTED_AT
    return ClaimFinding(
        verdict=Verdict.SUPPORTED if supported else Verdict.UNSUPPORTED,
        score=round(score, 4),
        evidence=_evidence(search, content, used) if used else (),
        miscited=miscited,
        reason=_reason(search, content, used, score, supported=supported, miscited=miscited),
    )


def _score(search: SourceSearch, content: frozenset[str], matches: Sequence[Match]) -> tuple[float, list[Match]]:
    """The best cited window; when none is enough, the best windows of all cited sources together."""
    if not matches:
        return 0.0, []
    ranked = sorted(matches, key=lambda match: -match.score)
    if ranked[0].score >= SUPPORTED_AT or len(ranked) == 1:
        return ranked[0].score, ranked[:1]
    held = set[str]().union(*(search.held(match, content) for match in ranked))
    return min(1.0, search.weight(held) / search.weight(content)), ranked


def _evidence(search: SourceSearch, content: frozenset[str], used: Sequence[Match]) -> tuple[Evidence, ...]:
    evidence = []
    for match in used:
        start, end = search.span(match, content)
        evidence.append(Evidence(source_index=match.source_index, start=start, end=end, score=round(match.score, 4)))
    return tuple(evidence)


def _blocked(
    search: SourceSearch,
    content: frozenset[str],
    score: float,
    used: Sequence[Match],
    *,
    missing: Sequence[str],
    asked: frozenset[str],
) -> ClaimFinding:
    named = ", ".join(missing)
    reason = f"the number {named} is in no source" if len(missing) == 1 else f"the numbers {named} are in no source"
    if all(number in asked for number in missing):
        reason += " (only in the question)"
    return ClaimFinding(Verdict.UNSUPPORTED, round(score, 4), _evidence(search, content, used), reason=reason)


_SHOWN_WORDS = 6


def _reason(
    search: SourceSearch,
    content: frozenset[str],
    used: Sequence[Match],
    score: float,
    *,
    supported: bool,
    miscited: bool,
) -> str:
    if supported:
        return "supported by a source that it does not cite" if miscited else ""
    if not used:
        return "none of its words stand in the sources"
    held = set[str]().union(*(search.held(match, content) for match in used))
    absent = sorted(content - held, key=lambda word: (-search.weight([word]), word))[:_SHOWN_WORDS]
    return f"the best place in the sources holds {score:.0%} of what it says; missing there: {', '.join(absent)}"
