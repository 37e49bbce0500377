"""Combines the verdicts of a judge with the scores of the other layers into one finding per claim."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from schemas.grounding import Evidence, JudgeVerdict, Verdict
from schemas.job import JobRequest
from schemas.prompt import SourcePart
from tasks.grounding.checkers import CheckedClaim, ClaimFinding
from tasks.grounding.judge.reply import OFF_THE_SCALE, UNREADABLE, read_probabilities, read_verdicts
from tasks.grounding.judge.request import JudgeRequest
from tasks.grounding.weights import DEFAULT, JudgeWeights, weigh

NOT_ASKED = "more claims were open than a judge is asked about in one answer"


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """The result of a call to a judge: its reply, or the reason for a missing one.

    ``judge`` is ``provider:model``, ``attempt_id`` the call. Without reply and failure nothing had to be asked.
    """

    judge: str = ""
    reply: str | None = None
    failure: str | None = None
    attempt_id: UUID | None = None


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
    decides nothing. A claim that is not open has an empty finding here.

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
        lexical = scored[position] if scored else None
        findings[position] = _combine(claims[position], lexical, judged, judge_weights, pair.parts)
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


def _combine(
    claim: CheckedClaim,
    lexical: ClaimFinding | None,
    judged: ClaimFinding,
    weights: JudgeWeights,
    windows: Sequence[SourcePart],
) -> ClaimFinding:
    if judged.verdict is None:
        return ClaimFinding(Verdict.UNCHECKED, reason=judged.reason)
    before = lexical.score if lexical else None
    probability = weigh(before, judged.verdict, weights, probability=judged.score)
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
        verdict = Verdict.CONTRADICTED if judged.verdict is Verdict.CONTRADICTED else Verdict.UNSUPPORTED
    cited = {citation.source_index for citation in claim.citations}
    # A probability comes without its place: it may rest on any passage that the judge read.
    grounds = {place.source_index for place in (judged.evidence if judged.score is None else windows)}
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
