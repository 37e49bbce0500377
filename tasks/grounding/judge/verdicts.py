"""Make findings of a judge's word: its verdict weighed against the words' own, and no verdict where it gave none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from schemas.grounding import Evidence, JudgeVerdict, Verdict
from schemas.job import JobRequest
from schemas.prompt import SourcePart
from tasks.grounding.findings import CheckedClaim, ClaimFinding
from tasks.grounding.judge.judge_weights import DEFAULT, JudgeWeights, weigh
from tasks.grounding.judge.reply import OFF_THE_SCALE, UNREADABLE, read_probabilities, read_verdicts
from tasks.grounding.judge.request import JudgeRequest

NOT_ASKED = "more claims were open than a judge is asked about in one answer"


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """What came of asking: a reply, or the reason why there is none.

    ``judge`` is ``provider:model``, ``attempt_id`` the call. Neither reply nor failure: nothing was left to be asked.
    """

    judge: str = ""
    reply: str | None = None
    failure: str | None = None
    attempt_id: UUID | None = None


NO_JUDGE = JudgeReply(failure="no judge is configured: set NIGHTDESK_JUDGE, or 'judge' in the job's config")


def verdicts(
    request: JobRequest,
    claims: Sequence[CheckedClaim],
    lexical: Sequence[ClaimFinding] | None,
    question: JudgeRequest,
    heard: JudgeReply,
    *,
    weights: Mapping[str, JudgeWeights],
) -> tuple[list[ClaimFinding], str | None]:
    """One finding per claim, and why the judge gave no verdict at all, if so.

    A claim that was open and got no word of the judge is ``unchecked``, whatever the words made of it: it was open
    because they decide nothing. Claims that were not open have no finding here (verdict None).
    """
    read = _read(request, question, heard)
    told = {question.pairs[at].sha256: word for at, word in zip(question.selection.claims, read, strict=True)}
    worth = weights.get(heard.judge, DEFAULT)
    findings = [ClaimFinding() for _ in claims]
    for position in question.open:
        word = question.cached.get(position) or told.get(question.pairs[position].sha256)
        word = word or ClaimFinding(reason=heard.failure or NOT_ASKED)
        by_words = lexical[position] if lexical else None
        shown = question.pairs[position].parts
        findings[position] = _weighed(claims[position], by_words, word, worth, shown)
    failure = heard.failure
    whys = {word.reason for word in told.values()}
    if failure is None and len(whys) == 1 and whys <= {UNREADABLE, OFF_THE_SCALE}:
        (failure,) = whys
    return findings, failure


def _read(request: JobRequest, question: JudgeRequest, heard: JudgeReply) -> list[ClaimFinding]:
    if heard.reply is None:
        return [ClaimFinding(reason=f"the judge gave no verdict: {heard.failure}") for _ in question.selection.claims]
    read = read_probabilities if question.decided else read_verdicts
    return read(heard.reply, request, question.selection)


def _weighed(
    claim: CheckedClaim,
    by_words: ClaimFinding | None,
    word: ClaimFinding,
    weights: JudgeWeights,
    shown: Sequence[SourcePart],
) -> ClaimFinding:
    if word.verdict is None:
        return ClaimFinding(Verdict.UNCHECKED, reason=word.reason)
    before = by_words.score if by_words else None
    chance = weigh(before, word.verdict, weights, probability=word.score)
    assert chance is not None
    supported = chance >= weights.supported_at
    agrees = supported == (word.verdict is Verdict.SUPPORTED)
    evidence = _together(word.evidence, by_words.evidence if by_words else (), first=agrees)
    verdict = Verdict.SUPPORTED
    if not supported:
        verdict = Verdict.CONTRADICTED if word.verdict is Verdict.CONTRADICTED else Verdict.UNSUPPORTED
    reason = word.reason
    if not agrees:
        says = f"says {word.verdict.value}" if word.score is None else f"gives it a probability of {word.score:.2f}"
        reason = f"the judge {says}; weighed with what the words show it is {'' if supported else 'not '}supported"
    cited = {citation.source_index for citation in claim.citations}
    # A probability comes without its place: it may rest on any passage that was shown.
    relied_on = {one.source_index for one in (word.evidence if word.score is None else shown)}
    miscited = supported and agrees and bool(cited) and not cited & relied_on
    heard = JudgeVerdict(verdict=word.verdict, probability=word.score, before=before)
    return ClaimFinding(
        verdict, round(chance, 4), evidence, miscited, reason, heard=heard, reused_from=word.reused_from
    )


def _together(judged: Sequence[Evidence], by_words: Sequence[Evidence], *, first: bool) -> tuple[Evidence, ...]:
    """The judge's quote first where its word decided; otherwise only what the words show."""
    if not first:
        return tuple(by_words)
    places = {(one.source_index, one.start, one.end) for one in judged}
    return (*judged, *(one for one in by_words if (one.source_index, one.start, one.end) not in places))
