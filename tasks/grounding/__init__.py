"""Give each claim of an answer a verdict with its evidence: the door of the hallucination check.

answer       what a checker is given and gives back
structure    citations exist, quotes are real, claims carry citations
lexical      the words of a claim stand together in a source: ``features`` measures, ``model`` judges, ``conflicts``
             says what the source has instead
local        a model of the operator's own reads what the words leave open; ``blend`` weighs its word against theirs
calibration  what a model's score means as a probability
together     what the probabilities of claims say of the whole answer
attribution  how well citations carry a claim
judge        a model asked about the claims that the words leave open; the check step makes the call
fusion       one verdict of all layers, and the scores of the whole answer
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.generation import CheckerName
from schemas.grounding import Claim, Grounding, Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import Processed
from tasks.answers.rendered import strip_markers
from tasks.grounding.findings import CheckedClaim, Checker, CheckInput, ClaimFinding
from tasks.grounding.fusion import attributions, fuse, summed_up
from tasks.grounding.judge import NO_JUDGE, JudgeReply, JudgeRequest, JudgeWeights, plan_request, undecided, verdicts
from tasks.grounding.lexical import Lexical
from tasks.grounding.local import Local, without_judge
from tasks.grounding.model import Calibration, shipped
from tasks.grounding.structure import Structure
from tasks.ports.scorer import ClaimScorer
from tasks.text.sentences import Span
from tasks.text.statements import Statement, why_not_checkable
from tasks.text.time_limit import OutOfTime, ensure_time

__all__ = [
    "CheckInput",
    "CheckedClaim",
    "Checker",
    "ClaimFinding",
    "Layers",
    "conclude",
    "ground",
    "look",
    "question_of",
    "use_calibration",
    "use_local_model",
]

logger = logging.getLogger(__name__)

CHECKERS: dict[CheckerName, Checker] = {CheckerName.STRUCTURE: Structure(), CheckerName.LEXICAL: Lexical()}
"""The layers that exist; ``use_local_model`` adds one."""

MISSING = {
    CheckerName.LOCAL: "no worker had a local model: set NIGHTDESK_LOCAL_MODEL and run workers of the queue 'local',"
    " then recheck, or leave 'local' out of the job's checkers"
}
"""What to do about a layer that a process has not got."""

WEIGHTS: dict[str, JudgeWeights] = {}
"""Of the judges that were fitted on labels, by ``provider:model``."""

MOST_CLAIMS = 500
"""Claims checked of one answer; those beyond stay unchecked. Far more than an answer has: it bounds the work of one job."""


def use_calibration(calibration: Calibration | None) -> None:
    """Let this process's layers judge by someone's own calibration; None: by the shipped one.

    Called once, when a process is wired. Raises ``ConfigurationError`` if it was made for another model.
    """
    model = shipped()
    CHECKERS[CheckerName.LEXICAL] = Lexical(model.calibrated(calibration) if calibration else model)
    WEIGHTS.clear()
    WEIGHTS.update({weights.source: weights for weights in calibration.judges} if calibration else {})


def use_local_model(scorer: ClaimScorer | None, calibration: Calibration | None = None) -> None:
    """Let this process check by a model of the operator's own; None: it has none.

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
class Layers:
    """What the layers without a call found of an answer; ``claims`` are the checkable ones, ``reasons`` why others are not."""

    request: JobRequest
    processed: Processed
    claims: tuple[CheckedClaim, ...]
    reasons: tuple[str | None, ...]
    findings: dict[CheckerName, Sequence[ClaimFinding]]
    failed: dict[str, str]
    versions: dict[str, str]


def look(request: JobRequest, processed: Processed, checkers: Mapping[CheckerName, Checker] = CHECKERS) -> Layers:
    """Check an answer with the layers its config names, but for the judge.

    A layer that does not exist, or that raises, is named in ``failed_checkers`` with the reason and changes no
    verdict; a claim that no layer gave a verdict stays ``unchecked``, never supported.
    """
    bare = strip_markers(processed.response, processed.markers)
    reasons = [why_not_checkable(bare[statement.start : statement.end]) for statement in processed.statements]
    checkable = tuple(
        _checked_claim(statement, bare, processed)
        for statement, reason in zip(processed.statements, reasons, strict=True)
        if reason is None
    )[:MOST_CLAIMS]
    findings, failed = _run(request.config.checkers, checkers, CheckInput(request, checkable))
    versions = {name.value: checkers[name].version for name in findings}
    return Layers(request, processed, checkable, tuple(reasons), findings, failed, versions)


def question_of(layers: Layers, *, decides: bool = False) -> JudgeRequest | None:
    """What is to be asked of the judge; None: no judge is wanted, nothing is left open, or it can't be put (``failed``).

    ``decides``: the judge gives probabilities and no verdicts.
    """
    # Without sources there is nothing to ask about.
    if CheckerName.JUDGE not in layers.request.config.checkers or not layers.request.context:
        return None
    try:
        open_positions = undecided(layers.claims, layers.findings)
        return plan_request(layers.request, layers.claims, open_positions, decides=decides) if open_positions else None
    except OutOfTime as error:
        layers.failed[CheckerName.JUDGE.value] = str(error)
        return None
    except Exception as error:
        logger.exception("no question could be put to the judge")
        layers.failed[CheckerName.JUDGE.value] = f"{type(error).__name__}: {error}"
        return None


def ground(request: JobRequest, processed: Processed, checkers: Mapping[CheckerName, Checker] = CHECKERS) -> Grounding:
    """Check an answer where nobody can be called: what would be left to a judge stays unchecked."""
    layers = look(request, processed, checkers)
    return conclude(layers, question_of(layers), NO_JUDGE)


def conclude(layers: Layers, question: JudgeRequest | None, reply: JudgeReply) -> Grounding:
    """One verdict per claim, of all layers and of what the judge said, if it was asked."""
    processed, findings, failed, versions = layers.processed, layers.findings, layers.failed, layers.versions
    if question is not None:
        lexical = without_judge(findings)
        try:
            judged, failure = verdicts(layers.request, layers.claims, lexical, question, reply, weights=WEIGHTS)
        except OutOfTime as error:
            reply = JudgeReply(reply.judge, failure=str(error))
            judged, failure = verdicts(layers.request, layers.claims, lexical, question, reply, weights=WEIGHTS)
        findings = {**findings, CheckerName.JUDGE: judged}
        if failure is not None:
            failed = {**failed, CheckerName.JUDGE.value: failure}
        if reply.reply is not None or question.cached:
            versions = {
                **versions,
                CheckerName.JUDGE.value: _judge_version(reply.judge, question),
            }
    claims: list[Claim] = []
    position = 0
    for statement, reason in zip(processed.statements, layers.reasons, strict=True):
        text = processed.response[statement.start : statement.end]
        if reason is not None:
            claims.append(_not_checkable(text, statement, reason))
            continue
        by_layer = {name: found[position] for name, found in findings.items()} if position < len(layers.claims) else {}
        claims.append(fuse(text, Span(statement.start, statement.end), by_layer))
        position += 1
    return summed_up(claims, versions, failed, attributions(findings), _dependence())


def _dependence() -> float:
    """How alike the claims of an answer fare, by the calibration in use."""
    lexical = CHECKERS[CheckerName.LEXICAL]
    return lexical.dependence if isinstance(lexical, Lexical) else shipped().dependence


def _judge_version(judge: str, question: JudgeRequest) -> str:
    """Who was asked, by which template, and a digest of its weights if they were fitted."""
    version = f"{judge} by {question.prompt.name}@{question.prompt.version}"
    if (fitted := WEIGHTS.get(judge)) is not None:
        version += f"+{hashlib.sha256(repr(fitted).encode()).hexdigest()[:8]}"
    return version


def _checked_claim(statement: Statement, bare: str, processed: Processed) -> CheckedClaim:
    return CheckedClaim(
        text=bare[statement.start : statement.end],
        span=Span(statement.start, statement.end),
        citations=tuple(processed.citations[position] for position in statement.citations),
        unknown=statement.unknown,
    )


def _run(
    selected: Sequence[CheckerName], checkers: Mapping[CheckerName, Checker], answer: CheckInput
) -> tuple[dict[CheckerName, Sequence[ClaimFinding]], dict[str, str]]:
    findings: dict[CheckerName, Sequence[ClaimFinding]] = {}
    failed: dict[str, str] = {}
    # In the order of the names, whatever the config's: the later layers read what the earlier ones found.
    for name in (name for name in CheckerName if name in selected):
        if name is CheckerName.JUDGE:
            continue
        checker = checkers.get(name)
        if checker is None:
            failed[name.value] = MISSING.get(name, "not available in this version")
            continue
        try:
            ensure_time()
            found = checker.check(replace(answer, found=findings))
            if len(found) != len(answer.claims):
                raise ValueError(f"{len(found)} findings for {len(answer.claims)} claims")  # noqa: TRY301 - one policy
        except OutOfTime as error:
            failed[name.value] = str(error)
            continue
        except Exception as error:
            # The policy: a paid answer is not thrown away because its check broke; the record says which layer did.
            logger.exception("checker %s failed", name.value)
            failed[name.value] = f"{type(error).__name__}: {error}"
            continue
        findings[name] = found
    return findings, failed


def _not_checkable(text: str, statement: Statement, reason: str) -> Claim:
    return Claim(
        text=text, start_pos=statement.start, end_pos=statement.end, verdict=Verdict.NOT_CHECKABLE, reason=reason
    )
