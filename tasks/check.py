"""Checks the answer of a job and decides its outcome: postprocess, checkers, policy, final write."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from time import monotonic, perf_counter
from typing import Any

from celery import shared_task

from schemas.completion import Completion, FinishReason
from schemas.failure import Failure, FailureKind
from schemas.generation import GenerationConfig, OnUngrounded
from schemas.grounding import Grounding, Verdict
from schemas.job import JobRequest
from schemas.record import Quality, TimingMs
from schemas.states import JobState, Outcome, Step
from tasks.checkers import ground
from tasks.errors import Unstorable
from tasks.finish import Findings, completed, failed, fallback_text, total_ms
from tasks.generate import failure_of
from tasks.poll import job_ids as read_ids
from tasks.ports import Advance, FinalJob, Journal, Leased, LeaseKey, Ledger, wired
from tasks.postprocess import Processed, postprocess, redact
from tasks.quality import assess, reasoning
from tasks.text.sentences import Span

log = logging.getLogger(__name__)

UNGROUNDED = frozenset({Verdict.UNSUPPORTED, Verdict.CONTRADICTED, Verdict.UNCHECKED})

MAX_ROUNDS = 2
"""Rounds of generation with ``on_ungrounded: retry``: the first answer and one more."""


@dataclass(frozen=True, slots=True)
class Again:
    """The policy asks for another round of generation."""


def examine(job: Leased, leased_at: float) -> FinalJob | Again:
    """Turn a stored completion (or a given answer) into the job's final write. Pure but for the clock it measures with.

    Args:
        job: leased for the step check.
        leased_at: when, by the monotonic clock.
    """
    completion = job.stored.completion if job.stored else None
    prompt = job.stored.prompt if job.stored else None
    if completion is not None and completion.finish_reason in {FinishReason.REFUSAL, FinishReason.CONTENT_FILTER}:
        return _refused(job, completion, leased_at)
    started = perf_counter()
    processed = postprocess(job.request, prompt, completion)
    postprocessed = perf_counter()
    grounding = None if processed.abstained else ground(job.request, processed)
    outcome, reasons = judge_outcome(job.request.config, completion, processed, grounding)
    if outcome is Outcome.PARTIAL and grounding is not None and _ungrounded(grounding):
        match job.request.config.on_ungrounded:
            case OnUngrounded.RETRY if not job.request.check_only and job.round + 1 < MAX_ROUNDS:
                return Again()
            case OnUngrounded.REDACT:
                processed, grounding = _redacted(job, processed, grounding)
                reasons = (*reasons, "sentences without support were removed")
                if not processed.response:
                    outcome = Outcome.ABSTAINED
    checked = perf_counter()
    timing = _timing(
        job, leased_at, postprocess_ms=(postprocessed - started) * 1000, check_ms=(checked - postprocessed) * 1000
    )
    findings = Findings(
        prompt=prompt,
        completion=completion,
        processed=processed,
        grounding=grounding,
        quality=_quality(job.request, outcome, processed, grounding, reasons),
        answer=_shown(job, outcome, processed),
    )
    return completed(job, outcome, findings, timing)


def judge_outcome(
    config: GenerationConfig, completion: Completion | None, processed: Processed, grounding: Grounding | None
) -> tuple[Outcome, tuple[str, ...]]:
    """The outcome of a paid (or given) answer, and why it is not plainly answered."""
    if processed.abstained:
        return Outcome.ABSTAINED, ("the model says that the sources do not answer",)
    reasons = []
    if completion is not None and completion.finish_reason is FinishReason.LENGTH:
        reasons.append(f"the answer was cut off at {config.max_tokens} tokens")
    elif completion is not None and completion.finish_reason is not FinishReason.STOP:
        reasons.append(f"the model stopped early: {completion.finish_reason.value}")
    if not processed.parsed:
        reasons.append("the answer was not in the form asked for")
    if processed.format_problem:
        reasons.append(processed.format_problem)
    # A given answer that cites nothing was not asked to.
    asked = config.include_citations and (completion is not None or bool(processed.markers))
    if asked and len(processed.citations) < config.min_citations:
        reasons.append(f"{len(processed.citations)} citations, at least {config.min_citations} are asked for")
    if grounding is not None:
        reasons.extend(f"the check '{name}' gave no verdict: {why}" for name, why in grounding.failed_checkers.items())
        if config.require_grounding and (count := len(_ungrounded(grounding))):
            checkable = sum(claim.verdict is not Verdict.NOT_CHECKABLE for claim in grounding.claims)
            reasons.append(f"{count} of {checkable} claims are not supported")
            if config.on_ungrounded is OnUngrounded.REJECT:
                return Outcome.REJECTED, tuple(reasons)
    return (Outcome.PARTIAL if reasons else Outcome.ANSWERED), tuple(reasons)


def _ungrounded(grounding: Grounding) -> list[int]:
    return [index for index, claim in enumerate(grounding.claims) if claim.verdict in UNGROUNDED]


def _redacted(job: Leased, processed: Processed, grounding: Grounding) -> tuple[Processed, Grounding]:
    """The answer without what is not supported, checked anew; what was removed is named in the warnings."""
    gone = [grounding.claims[index] for index in _ungrounded(grounding)]
    shorter = redact(job.request, processed, [Span(claim.start_pos, claim.end_pos) for claim in gone])
    told = (*shorter.warnings, *(f"removed, without support: {claim.text}" for claim in gone))
    return replace(shorter, warnings=told), ground(job.request, shorter)


def _shown(job: Leased, outcome: Outcome, processed: Processed) -> str:
    """What the producer reads: the answer; instead of an abstention a text of ours, but a given answer stays as it is."""
    kept = job.request.check_only and processed.response
    return fallback_text(job, "abstained") if outcome is Outcome.ABSTAINED and not kept else processed.response


def _quality(
    request: JobRequest, outcome: Outcome, processed: Processed, grounding: Grounding | None, reasons: Sequence[str]
) -> Quality:
    assessment = assess(request, processed, grounding)
    return Quality(
        answer_quality=assessment.answer_quality,
        sufficient_context=assessment.sufficient,
        reasoning=reasoning(reasons, grounding, assessment),
        abstain_reason="; ".join(reasons) if outcome is Outcome.ABSTAINED else None,
        warnings=processed.warnings,
    )


def _refused(job: Leased, completion: Completion, leased_at: float) -> FinalJob:
    message = completion.refusal or f"the provider gave no answer: {completion.finish_reason.value}"
    findings = Findings(
        prompt=job.stored.prompt if job.stored else None,
        completion=completion,
        answer=fallback_text(job, "refused"),
        failure=Failure(kind=FailureKind.REFUSED, message=message),
        quality=Quality(reasoning=message),
    )
    return completed(job, Outcome.REFUSED, findings, _timing(job, leased_at, postprocess_ms=0, check_ms=0))


def _timing(job: Leased, leased_at: float, *, postprocess_ms: float, check_ms: float) -> TimingMs:
    before = dict(job.stored.timing_ms) if job.stored else {}
    before["queue"] = before.get("queue", 0.0) + job.waited_ms
    measured = TimingMs(**before, postprocess=round(postprocess_ms, 3), check=round(check_ms, 3))
    return total_ms(job, monotonic() - leased_at, measured)


@dataclass(slots=True)
class Check:
    """The check step: the thinking on one CPU thread, chunk by chunk, so that the loop stays free for I/O."""

    ledger: Ledger
    journal: Journal
    cpu: Executor
    final: Callable[[Leased, FinalJob], None]
    """Told of each job that became final: its result can be published."""

    async def run(self, jobs: Sequence[Leased]) -> None:
        """Check leased jobs and write their finals. Every failure ends in the ledger."""
        leased_at = monotonic()
        loop = asyncio.get_running_loop()
        results = await loop.run_in_executor(self.cpu, _examine_all, jobs, leased_at)
        await asyncio.gather(*(self._settle(job, result) for job, result in zip(jobs, results, strict=True)))

    async def _settle(self, job: Leased, result: FinalJob | Again) -> None:
        if isinstance(result, Again):
            advance = Advance(JobState.SCHEDULED, Step.GENERATE, job.round + 1, event="regenerate")
            await self.ledger.defer(LeaseKey(job.job_id, job.token), advance)
            return
        try:
            written = await self.journal.finish(result)
        except Unstorable as error:
            result = failed(job, failure_of(error), result.record.timing_ms)
            written = await self.journal.finish(result)
        if written:
            self.final(job, result)


def _examine_all(jobs: Sequence[Leased], leased_at: float) -> list[FinalJob | Again]:
    return [_examine_safely(job, leased_at) for job in jobs]


def _examine_safely(job: Leased, leased_at: float) -> FinalJob | Again:
    """One broken job fails alone, with its paid answer kept in the ledger; the others of its chunk go on."""
    try:
        return examine(job, leased_at)
    except Exception as error:
        log.exception("job %s broke in check", job.job_id)
        stored = job.stored
        findings = Findings(prompt=stored.prompt, completion=stored.completion) if stored else None
        return failed(job, failure_of(error), _timing(job, leased_at, postprocess_ms=0, check_ms=0), findings)


@shared_task(name="nightdesk.check", ignore_result=True, acks_late=False)
def check_task(job_ids: Sequence[Any], urgent: bool = False) -> None:  # noqa: FBT001, FBT002 - a JSON argument
    """Admit the jobs of a hint whose answers are to be checked."""
    wired().admit(Step.CHECK, read_ids(job_ids), urgent=urgent)
