"""Makes of a judge's reply one finding for each claim that the other layers left open."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from schemas.grounding import Evidence, JudgeVerdict, Verdict
from schemas.job import JobRequest
from tasks.grounding.checkers import CheckedClaim, ClaimFinding
from tasks.grounding.judge.reply import OFF_THE_SCALE, UNREADABLE, read_probabilities, read_verdicts
from tasks.grounding.judge.request import ClaimPair, JudgeRequest

NOT_ASKED = "more claims were open than a judge is asked about in one answer"


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """The result of a call to a judge: its reply, or the reason for a missing one.

    ``judge`` is ``provider:model``, ``attempt_id`` the call. Without reply and failure nothing had to be asked.
    ``skipped``: the reason that a judge by default was not asked about some claims, or all.
    """

    judge: str = ""
    reply: str | None = None
    failure: str | None = None
    attempt_id: UUID | None = None
    skipped: str | None = None


NO_JUDGE = JudgeReply(failure="no judge is configured: set NIGHTDESK_JUDGE, or 'judge' in the job's config")


RIGHT_IF_SUPPORTED, RIGHT_IF_NOT = 0.75, 0.24
"""Probability of a claim that a judge supports, and of one that it does not: GPT-4-class judges are right on 76 of 100
supported and 75 of 100 other claims (balanced accuracy 75-77 on LLM-AggreFact, Tang et al. 2024)."""
FLOOR, CEILING = 0.05, 0.95
"""Bounds of a probability that a judge gives: the certainty it claims says little about how often it is right."""


def verdicts(
    request: JobRequest,
    claims: Sequence[CheckedClaim],
    scored: Sequence[ClaimFinding] | None,
    question: JudgeRequest,
    reply: JudgeReply,
) -> tuple[list[ClaimFinding], str | None]:
    """One finding per claim, and the reason why the judge gave no verdict at all, if so.

    The judge decides what the other layers left open. An open claim without a verdict of its that counts is ``unchecked``;
    of a judge by default it has an empty finding here and keeps the verdict of the other layers.

    Args:
        request: the job's request.
        claims: the checkable ones of the answer.
        scored: the findings of the layers that give a calibrated score; None: none ran.
        question: the request to the judge.
        reply: its result.
    """
    parsed = _parse(request, question, reply)
    replies = {
        question.pairs[position].sha256: finding
        for position, finding in zip(question.selection.claims, parsed, strict=True)
    }
    findings = [ClaimFinding() for _ in claims]
    for position in question.open:
        pair = question.pairs[position]
        judged = question.cached.get(position) or replies.get(pair.sha256)
        judged = judged or ClaimFinding(reason=reply.failure or NOT_ASKED)
        if judged.verdict is None and not question.by_default:
            findings[position] = ClaimFinding(Verdict.UNCHECKED, reason=judged.reason)
            continue
        if judged.verdict is None:
            # A remark where its reply did not count; one about every claim that was not asked about would say nothing.
            asked_about = reply.reply is not None and pair.sha256 in replies
            findings[position] = ClaimFinding(reason=judged.reason if asked_about else "")
            continue
        by_words = scored[position] if scored else ClaimFinding()
        findings[position] = _decided(claims[position], by_words, judged, _grounds(question, pair))
    failure = reply.failure
    reasons = {finding.reason for finding in replies.values()}
    if failure is None and len(reasons) == 1 and reasons <= {UNREADABLE, OFF_THE_SCALE}:
        (failure,) = reasons
    return findings, failure


def _parse(request: JobRequest, question: JudgeRequest, reply: JudgeReply) -> list[ClaimFinding]:
    if reply.reply is None:
        return [ClaimFinding(reason=f"the judge gave no verdict: {reply.failure}") for _ in question.selection.claims]
    parse = read_probabilities if question.decided else read_verdicts
    return parse(reply.reply, request, question.selection)


def _grounds(question: JudgeRequest, pair: ClaimPair) -> frozenset[int]:
    """The sources on which a probability may rest: those of every passage that the judge read."""
    if question.by_default:
        return frozenset(passage.source_index for passage in question.selection.passages)
    return frozenset(part.source_index for part in pair.parts)


def _decided(
    claim: CheckedClaim, by_words: ClaimFinding, judged: ClaimFinding, sources: frozenset[int]
) -> ClaimFinding:
    supported = judged.verdict is Verdict.SUPPORTED
    probability = judged.score
    if probability is None:
        probability = RIGHT_IF_SUPPORTED if supported else RIGHT_IF_NOT
    # The judge's quote decided and comes first.
    places = {_place(quote) for quote in judged.evidence}
    cited = {citation.source_index for citation in claim.citations}
    grounds = sources if judged.score is not None else {place.source_index for place in judged.evidence}
    assert judged.verdict is not None
    return replace(
        judged,
        score=min(CEILING, max(FLOOR, probability)),
        evidence=(*judged.evidence, *(window for window in by_words.evidence if _place(window) not in places)),
        miscited=supported and bool(cited) and not cited & grounds,
        judge=JudgeVerdict(verdict=judged.verdict, probability=judged.score, before=by_words.score),
    )


def _place(evidence: Evidence) -> tuple[int, int, int]:
    return evidence.source_index, evidence.start, evidence.end
