"""Combines the verdicts of a judge with the scores of the other layers into one finding per claim."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from schemas.grounding import Evidence, JudgeVerdict, Verdict
from schemas.job import JobRequest
from tasks.grounding.checkers import CheckedClaim, ClaimFinding
from tasks.grounding.judge.reply import OFF_THE_SCALE, UNREADABLE, read_probabilities, read_verdicts
from tasks.grounding.judge.request import ClaimPair, JudgeRequest
from tasks.grounding.local import SURELY_SUPPORTED
from tasks.grounding.weights import DEFAULT, JudgeWeights, weigh

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


def verdicts(
    request: JobRequest,
    claims: Sequence[CheckedClaim],
    scored: Sequence[ClaimFinding] | None,
    question: JudgeRequest,
    reply: JudgeReply,
    *,
    weights: Mapping[str, JudgeWeights],
) -> tuple[list[ClaimFinding], str | None]:
    """One finding per claim, and the reason why the judge gave no verdict at all, if so.

    An open claim without a verdict of the judge is ``unchecked``, whatever its score: it is open because the score
    decides nothing. A claim that is not open has an empty finding here, and so has one without a verdict of a judge by
    default: it keeps the verdict of the other layers.

    Args:
        request: the job's request.
        claims: the checkable ones of the answer.
        scored: the findings of the layers that give a calibrated score; None: none ran.
        question: the request to the judge.
        reply: its result.
        weights: by judge; a judge that is not in there has the defaults.
    """
    parsed = _parse(request, question, reply)
    replies = {
        question.pairs[position].sha256: finding
        for position, finding in zip(question.selection.claims, parsed, strict=True)
    }
    judge_weights = weights.get(reply.judge, DEFAULT)
    findings = [ClaimFinding() for _ in claims]
    for position in question.open:
        pair = question.pairs[position]
        judged = question.cached.get(position) or replies.get(pair.sha256)
        judged = judged or ClaimFinding(reason=reply.failure or NOT_ASKED)
        if judged.verdict is None and question.by_default:
            # A remark where its reply did not count; one about every claim that was not asked about would say nothing.
            asked_about = reply.reply is not None and pair.sha256 in replies
            findings[position] = ClaimFinding(reason=judged.reason if asked_about else "")
            continue
        lexical = scored[position] if scored else None
        findings[position] = _combine(claims[position], lexical, judged, judge_weights, _grounds(question, pair))
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


def _combine(
    claim: CheckedClaim,
    lexical: ClaimFinding | None,
    judged: ClaimFinding,
    weights: JudgeWeights,
    sources: frozenset[int],
) -> ClaimFinding:
    if judged.verdict is None:
        return ClaimFinding(Verdict.UNCHECKED, reason=judged.reason)
    before = lexical.score if lexical else None
    # Words that are sure see no other number and no "not": of a near copy they say no more than at the edge of triage.
    limited = None if before is None else min(before, SURELY_SUPPORTED)
    probability = weigh(limited, judged.verdict, weights, probability=judged.score)
    assert probability is not None
    supported = probability >= weights.supported_at
    agrees = supported == (judged.verdict is Verdict.SUPPORTED)
    evidence = lexical.evidence if lexical else ()
    reason = judged.reason
    if agrees:
        # The judge's quote decided and comes first; otherwise only the other layers' evidence counts.
        places = {_place(quote) for quote in judged.evidence}
        evidence = (*judged.evidence, *(window for window in evidence if _place(window) not in places))
    else:
        opinion = f"says {judged.verdict.value}"
        if judged.score is not None:
            opinion = f"gives it a probability of {judged.score:.2f}"
        reason = f"the judge {opinion}; weighed with what the words show it is {'' if supported else 'not '}supported"
    verdict = Verdict.SUPPORTED
    if not supported:
        contradicts = Verdict.CONTRADICTED in {judged.verdict, lexical.verdict if lexical else None}
        verdict = Verdict.CONTRADICTED if contradicts else Verdict.UNSUPPORTED
    cited = {citation.source_index for citation in claim.citations}
    grounds = sources if judged.score is not None else {place.source_index for place in judged.evidence}
    return ClaimFinding(
        verdict,
        round(probability, 4),
        evidence,
        miscited=supported and agrees and bool(cited) and not cited & grounds,
        reason=reason,
        judge=JudgeVerdict(verdict=judged.verdict, probability=judged.score, before=before),
        reused_from=judged.reused_from,
    )


def _place(evidence: Evidence) -> tuple[int, int, int]:
    return evidence.source_index, evidence.start, evidence.end
