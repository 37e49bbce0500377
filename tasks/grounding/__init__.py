"""Gives each claim of an answer a verdict with its evidence: runs the checkers, and fuses their findings.

checkers       the common form of a checker; the form of citations (they exist, their quotes are real, every claim has one),
               and a claim's words against the sources: ``decision`` supports or contradicts by ``accounting``, ``model``
               measures and turns that into a probability
denials        looks up what an answer denies
local          reads the claims that the lexical check leaves open with a model of the operator's own
judge          asks a model about the claims that all these leave open; the check step makes the call
values         locates the values of an object in the quoted evidence; ``object_sentences`` checks those of a ready-made one
weights        weigh a local model against the lexical score
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from schemas.claim_error import ErrorKind
from schemas.generation import CheckerName
from schemas.grounding import Claim, Grounding, Value, Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import Processed
from tasks.grounding.checkers import (
    NO_FINDING,
    Attribution,
    CheckedClaim,
    Checker,
    CheckInput,
    ClaimFinding,
    Lexical,
    Structure,
    checkable_claims,
    citation_scores,
)
from tasks.grounding.denials import false_denials
from tasks.grounding.judge.request import JudgeRequest, plan_request
from tasks.grounding.judge.verdicts import NO_JUDGE, JudgeReply, verdicts
from tasks.grounding.local import Local, claims_to_judge, without_judge
from tasks.grounding.model import Calibration, shipped
from tasks.grounding.own_checkers import OwnFindings, run_own
from tasks.grounding.values import check_values
from tasks.grounding.weights import RightShares
from tasks.masking import words_of
from tasks.ports.provider import ClaimScorer
from tasks.text.sentences import Span
from tasks.text.statements import Reading
from tasks.text.time_limit import OutOfTime, ensure_time

logger = logging.getLogger(__name__)

CHECKERS: dict[CheckerName, Checker] = {CheckerName.STRUCTURE: Structure(), CheckerName.LEXICAL: Lexical()}
"""The layers that exist; ``use_local_model`` adds one."""

MISSING = {
    CheckerName.LOCAL: "no worker had a local model: set NIGHTDESK_LOCAL_MODEL and run workers of the queue 'local',"
    " then recheck, or leave 'local' out of the job's checkers"
}
"""Remedy for a layer that a process lacks."""

MOST_CLAIMS = 500
"""Claims checked of one answer; those beyond stay unchecked. Far more than an answer has: it bounds the work of one job."""


def use_calibration(calibration: Calibration | None) -> None:
    """Makes the layers of this process use an operator's calibration; None: the shipped one.

    Called once, when a process is wired. Raises ``ConfigurationError`` if it was made for another model.
    """
    model = shipped()
    CHECKERS[CheckerName.LEXICAL] = Lexical(model.calibrated(calibration) if calibration else model)


def use_local_model(scorer: ClaimScorer | None, calibration: Calibration | None = None) -> None:
    """Makes this process check with a local model; None: without one.

    Called once, when a process is wired, after ``use_calibration``. Raises ``ConfigurationError`` if the calibration's
    part for local models was made for another one.
    """
    CHECKERS.pop(CheckerName.LOCAL, None)
    if scorer is not None:
        model = shipped()
        CHECKERS[CheckerName.LOCAL] = Local(
            scorer, model.calibrated(calibration) if calibration else model, calibration
        )


@dataclass(frozen=True, slots=True)
class LayerFindings:
    """Findings of the layers without a call.

    ``claims`` are the checkable ones, ``readings`` those of all statements; ``denials`` are the findings on denials of what a
    source says, by their place among the statements.
    """

    request: JobRequest
    processed: Processed
    claims: tuple[CheckedClaim, ...]
    readings: tuple[Reading, ...]
    denials: Mapping[int, ClaimFinding]
    findings: dict[CheckerName, Sequence[ClaimFinding]]
    failed: dict[str, str]
    versions: dict[str, str]
    skipped: dict[str, str] = field(default_factory=dict)
    own: Mapping[str, Sequence[ClaimFinding]] = field(default_factory=dict)
    """Findings of the installation's own checkers."""


def check_claims(
    request: JobRequest, processed: Processed, checkers: Mapping[CheckerName, Checker] = CHECKERS
) -> LayerFindings:
    """Checks an answer with the layers its config names, but for the judge.

    A layer that does not exist, or that raises, is named in ``failed_checkers`` with the reason and changes no
    verdict; a claim that no layer gave a verdict stays ``unchecked``, never supported.
    """
    claims, readings = checkable_claims(request, processed)
    claims = claims[:MOST_CLAIMS]
    layers = [name for name in request.config.checkers if isinstance(name, CheckerName)]
    findings, failed = _run(layers, checkers, CheckInput(request, claims))
    versions = {name.value: checkers[name].version for name in findings}
    own = OwnFindings()
    if len(layers) < len(request.config.checkers):
        names = [name for name in request.config.checkers if not isinstance(name, CheckerName)]
        own = run_own(names, CheckInput(request, claims, findings))
        versions, failed = {**versions, **own.versions}, {**failed, **own.failed}
    denies = CheckerName.LEXICAL in findings and any(reading.denied for reading in readings)
    denials = false_denials(request, readings, checkers) if denies else {}
    return LayerFindings(request, processed, claims, readings, denials, findings, failed, versions, own=own.findings)


def judge_request(
    layers: LayerFindings, *, gives_probabilities: bool = False, by_default: bool = False, affordable: bool = True
) -> JudgeRequest | None:
    """The request to the judge; None if there is no judge, no claim is open, or it can't be planned (``failed``).

    Args:
        layers: the findings of the other layers.
        gives_probabilities: the judge gives probabilities and no verdicts.
        by_default: there is a judge that the job does not ask for.
        affordable: False: its cheapest call would cost too much, and open claims are only counted.
    """
    request, claims = layers.request, layers.claims
    if not (by_default or CheckerName.JUDGE in request.config.checkers) or not request.context:
        # Without sources there is nothing to ask about.
        return None
    if by_default and without_judge(layers.findings) is None:
        return None
    try:
        positions = claims_to_judge(claims, layers.findings)
        if positions and not affordable:
            count = len(positions)
            why = f"{count} of {count} open claims were not asked about: the answer is too cheap for a call"
            layers.skipped[CheckerName.JUDGE.value] = why
            return None
        if not positions:
            return None
        return plan_request(
            request,
            _with_unaccounted(layers),
            positions,
            gives_probabilities=gives_probabilities,
            by_default=by_default,
        )
    except OutOfTime as error:
        problem = str(error)
    except Exception as error:
        logger.exception("no request to the judge could be planned")
        problem = words_of(error)
    (layers.skipped if by_default else layers.failed)[CheckerName.JUDGE.value] = problem
    return None


def _with_unaccounted(layers: LayerFindings) -> list[CheckedClaim]:
    """The claims with the words that the comparison of words does not account for."""
    by_words = layers.findings.get(CheckerName.LEXICAL)
    if by_words is None:
        return list(layers.claims)
    return [
        replace(claim, unaccounted=finding.unaccounted) for claim, finding in zip(layers.claims, by_words, strict=True)
    ]


def denies_falsely(request: JobRequest, processed: Processed) -> bool:
    """Tells whether an answer denies what a source says; such an answer is no abstention."""
    if CheckerName.LEXICAL not in request.config.checkers or not request.context:
        return False
    _, readings = checkable_claims(request, processed)
    return bool(false_denials(request, readings, CHECKERS))


def ground(request: JobRequest, processed: Processed, checkers: Mapping[CheckerName, Checker] = CHECKERS) -> Grounding:
    """Checks an answer without calls: the claims for a judge stay unchecked."""
    layers = check_claims(request, processed, checkers)
    return fuse_layers(layers, judge_request(layers), NO_JUDGE)


def fuse_layers(layers: LayerFindings, question: JudgeRequest | None, reply: JudgeReply) -> Grounding:
    """Fuses the findings of all layers, and the judge's reply if it was asked, into one verdict per claim."""
    processed, findings, failed, versions = layers.processed, layers.findings, layers.failed, layers.versions
    skipped = layers.skipped
    if question is not None:
        scored = without_judge(findings)
        try:
            judged, failure = verdicts(layers.request, layers.claims, scored, question, reply)
        except OutOfTime as error:
            reply = JudgeReply(reply.judge, failure=str(error))
            judged, failure = verdicts(layers.request, layers.claims, scored, question, reply)
        findings = {**findings, CheckerName.JUDGE: judged}
        if question.by_default:
            if (why := reply.skipped or failure) is not None:
                skipped = {CheckerName.JUDGE.value: why}
        elif failure is not None:
            failed = {**failed, CheckerName.JUDGE.value: failure}
        if reply.reply is not None or question.cached:
            prompt = question.prompt
            versions = {**versions, CheckerName.JUDGE.value: f"{reply.judge} by {prompt.name}@{prompt.version}"}
    claims: list[Claim] = []
    position = 0
    for place, (statement, reading) in enumerate(zip(processed.statements, layers.readings, strict=True)):
        span = Span(statement.start, statement.end)
        text = processed.response[span.start : span.end]
        if (denial := layers.denials.get(place)) is not None:
            claims.append(fuse(text, span, {CheckerName.LEXICAL: denial}))
            continue
        if reading.reason is not None:
            verdict, reason = Verdict.NOT_CHECKABLE, reading.reason
            claims.append(Claim(text=text, start_pos=span.start, end_pos=span.end, verdict=verdict, reason=reason))
            continue
        by_layer = (
            {} if position >= len(layers.claims) else {name: of_layer[position] for name, of_layer in findings.items()}
        )
        own = {name: of_checker[position] for name, of_checker in layers.own.items()} if by_layer or layers.own else {}
        claims.append(fuse(text, span, by_layer, own))
        position += 1
    by_words = findings.get(CheckerName.LEXICAL, ())
    attributions = [finding.attribution for finding in by_words if finding.attribution is not None]
    grounding = summed_up(claims, versions, failed, attributions, _right_shares(), skipped=skipped)
    return _with_values(layers.request, processed, grounding)


def with_values(grounding: Grounding, values: tuple[Value, ...]) -> Grounding:
    """The grounding with the verdicts on the values of the object, which count as much as claims."""
    if not values:
        return grounding
    supported = sum(value.verdict is Verdict.SUPPORTED for value in values)
    claims = len(grounding.claims) - grounding.counts.get(Verdict.NOT_CHECKABLE, 0)
    score = (grounding.counts.get(Verdict.SUPPORTED, 0) + supported) / (claims + len(values))
    return grounding.model_copy(update={"values": values, "grounding_score": score})


def _with_values(request: JobRequest, processed: Processed, grounding: Grounding) -> Grounding:
    """The grounding with the verdicts on the values of the answer's object."""
    if processed.structured is None:
        return grounding
    try:
        return with_values(grounding, check_values(request, processed, grounding.claims))
    except Exception as error:
        # As for a layer that breaks: the record says so, and the answer is kept.
        logger.exception("the values of an object were not checked")
        failed = {**grounding.failed_checkers, "values": words_of(error)}
        return grounding.model_copy(update={"failed_checkers": failed})


def _right_shares() -> RightShares:
    """Shares of right verdicts of the words, by the calibration in use."""
    lexical = CHECKERS[CheckerName.LEXICAL]
    return lexical.right if isinstance(lexical, Lexical) else shipped().right


_LAYERS = tuple(name for name in CheckerName if name is not CheckerName.JUDGE)


def _run(
    selected: Sequence[CheckerName], checkers: Mapping[CheckerName, Checker], answer: CheckInput
) -> tuple[dict[CheckerName, Sequence[ClaimFinding]], dict[str, str]]:
    findings: dict[CheckerName, Sequence[ClaimFinding]] = {}
    failed: dict[str, str] = {}
    # In the order of the names, whatever the config's: the later layers read the findings of the earlier ones.
    for name in _LAYERS:
        if name not in selected:
            continue
        checker = checkers.get(name)
        if checker is None:
            failed[name.value] = MISSING.get(name, "not available in this version")
            continue
        try:
            ensure_time()
            of_layer = checker.check(replace(answer, earlier=findings))
            if len(of_layer) != len(answer.claims):
                raise ValueError(f"{len(of_layer)} findings for {len(answer.claims)} claims")  # noqa: TRY301 - one policy
        except OutOfTime as error:
            failed[name.value] = str(error)
            continue
        except Exception as error:
            # The policy: a paid answer is not thrown away because its check broke; the record says which layer did.
            logger.exception("checker %s failed", name.value)
            failed[name.value] = words_of(error)
            continue
        findings[name] = of_layer
    return findings, failed


# ---- fusion ----------------------------------------------------------------------------------------------------------

DECIDING = (CheckerName.JUDGE, CheckerName.LOCAL, CheckerName.LEXICAL, CheckerName.STRUCTURE)
"""Layers by precedence: judge and local model, whose verdicts include the lexical score, then the lexical layer, then the
layer that reads only the form of citations."""


def fuse(
    text: str, span: Span, findings: Mapping[CheckerName, ClaimFinding], own: Mapping[str, ClaimFinding] | None = None
) -> Claim:
    """Fuses the findings on one claim: verdict of the first layer in ``DECIDING`` that has one, remarks of all layers.

    A verdict of the installation's own checkers goes before all others.

    Args:
        text: the claim's words as they stand in the response.
        span: its place there.
        findings: by layer; empty: the claim was not checked.
        own: of the installation's own checkers.
    """
    # A layer's name is a string; only the type of a mapping's keys forbids to say so.
    of_layers = cast("Mapping[str, ClaimFinding]", findings)
    everything = {**own, **of_layers} if own else of_layers
    decider: str | None = None
    for name in (*own, *DECIDING) if own else DECIDING:
        if (finding := everything.get(name)) is not None and finding.verdict is not None:
            decider = name
            break
    decided = everything[decider] if decider else NO_FINDING
    judged = decider is CheckerName.JUDGE and decided.verdict is not Verdict.UNCHECKED
    remarks = [decided.reason] if decided.reason else []
    if decider is None:
        remarks.insert(0, "no checker gave a verdict")
    for name, finding in everything.items():
        # A word that the lexical layer misses is no remark where a judge has read the text.
        if finding.reason and name is not decider and not (judged and name is CheckerName.LEXICAL):
            remarks.append(finding.reason)
    error = decided.error
    if decided.verdict is not Verdict.SUPPORTED:
        error = next((finding.error for finding in findings.values() if finding.error is not None), None)
    return Claim(
        text=text,
        start_pos=span.start,
        end_pos=span.end,
        verdict=decided.verdict or Verdict.UNCHECKED,
        score=decided.score,
        miscited=decided.miscited,
        evidence=decided.evidence,
        checker=str(decider) if decider and decided.verdict is not Verdict.UNCHECKED else None,
        judge=findings[CheckerName.JUDGE].judge if CheckerName.JUDGE in findings else None,
        reason="; ".join(remarks),
        reused_from=decided.reused_from,
        error=error,
        unaccounted=decided.unaccounted,
    )


def summed_up(
    claims: Sequence[Claim],
    versions: dict[str, str],
    failed: dict[str, str],
    attributions: Sequence[Attribution],
    right: RightShares,
    *,
    skipped: dict[str, str],
) -> Grounding:
    """Computes the scores of the whole answer.

    Args:
        claims: all of them, in order.
        versions: of the checkers that ran.
        failed: reasons of the checkers that gave no verdict.
        attributions: of the claims that a layer attributed.
        right: shares of right verdicts of the words.
        skipped: reasons of the checkers by default that were not asked about some claims.
    """
    counts = Counter(claim.verdict for claim in claims)
    checkable = len(claims) - counts[Verdict.NOT_CHECKABLE]
    citation_recall, citation_precision = citation_scores(attributions)
    return Grounding(
        grounding_score=counts[Verdict.SUPPORTED] / checkable if checkable else None,
        confidence=_confidence(claims, right),
        decided=_decided_by(claims),
        weakest=_weakest(claims),
        citation_recall=citation_recall,
        citation_precision=citation_precision,
        claims=tuple(claims),
        checkers=versions,
        failed_checkers=failed,
        skipped_checkers=skipped,
        counts={verdict: counts[verdict] for verdict in Verdict if counts[verdict]},
        errors=_errors(claims),
    )


def _errors(claims: Sequence[Claim]) -> dict[ErrorKind, int]:
    """Counts the wrong claims by the kind of their error."""
    wrong = (claim for claim in claims if claim.verdict in {Verdict.UNSUPPORTED, Verdict.CONTRADICTED})
    return dict(Counter(claim.error.kind for claim in wrong if claim.error is not None))


def _weakest(claims: Sequence[Claim]) -> int | None:
    checkable = [index for index, claim in enumerate(claims) if claim.verdict is not Verdict.NOT_CHECKABLE]
    return min(
        checkable,
        key=lambda index: (
            claims[index].verdict.rank,
            1.0 if claims[index].score is None else claims[index].score,
        ),
        default=None,
    )


DECIDED = frozenset({Verdict.SUPPORTED, Verdict.CONTRADICTED, Verdict.UNSUPPORTED})
"""Verdicts that somebody gave."""


def _confidence(claims: Sequence[Claim], right: RightShares) -> float | None:
    """Share of right verdicts to expect among the decided claims; None without one whose layer has a known rate."""
    decided = [claim for claim in claims if claim.verdict in DECIDED]
    shares = [share for claim in decided if (share := _right_share(claim, right)) is not None]
    return round(sum(shares) / len(shares), 4) if shares else None


def _decided_by(claims: Sequence[Claim]) -> dict[str, int]:
    """The number of claims that each layer decided."""
    return dict(Counter(claim.checker or "" for claim in claims if claim.verdict in DECIDED))


def _right_share(claim: Claim, right: RightShares) -> float | None:
    """Probability that the verdict on a decided claim is right; None where the rate of its layer is unknown."""
    if claim.checker == CheckerName.LEXICAL:
        return right.supported if claim.verdict is Verdict.SUPPORTED else right.contradicted
    if claim.checker in {CheckerName.JUDGE, CheckerName.LOCAL} and claim.score is not None:
        return claim.score if claim.verdict is Verdict.SUPPORTED else 1 - claim.score
    return None
