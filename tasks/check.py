"""Checks the answer of a job and decides its outcome: postprocess, checkers, policy, final write."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from time import monotonic, perf_counter
from typing import Any

from celery import shared_task

from schemas.completion import Completion
from schemas.failure import Failure, FailureKind
from schemas.grounding import Grounding
from schemas.job import JobRequest
from schemas.prompt import Correction
from schemas.record import Quality, TimingMs
from schemas.states import JobState, Outcome, Step
from tasks.amend import amended, with_appendix, with_warnings, without_what_is_hidden
from tasks.attempts import failure_of
from tasks.checkers import ground
from tasks.correcting import given_up
from tasks.errors import Unstorable
from tasks.finish import Findings, completed, failed, fallback_text, total_ms
from tasks.policy import (
    NO_ANSWER,
    Examined,
    Ruling,
    another_round,
    rule,
    why_first_answer,
    why_no_answer,
    why_not_better,
)
from tasks.poll import job_ids as read_ids
from tasks.ports import Advance, FinalJob, Journal, Leased, LeaseKey, Ledger, wired
from tasks.postprocess import Processed, postprocess
from tasks.quality import assess, reasoning

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Again:
    """The policy asks for another round of generation."""

    correction: Correction


@dataclass(frozen=True, slots=True)
class Back:
    """The second round made nothing better: the first answer is to be finished, and says why."""

    why: str


@dataclass(slots=True)
class Clock:
    """What a check spends its time on, in milliseconds; ``leased_at`` is by the monotonic clock."""

    leased_at: float
    postprocess: float = 0.0
    check: float = 0.0

    def age_ms(self, job: Leased) -> float:
        """The job's age now."""
        return job.age_ms + (monotonic() - self.leased_at) * 1000

    def timing(self, job: Leased) -> TimingMs:
        """The timings of a job that ends now; what a round took that did not give the answer is waiting."""
        before = dict(job.stored.timing_ms) if job.stored else {}
        if (correction := job.correction) is not None:
            elsewhere = correction.age_ms if job.round else job.age_ms - job.waited_ms - sum(before.values())
            before["retry_wait"] = round(before.get("retry_wait", 0.0) + max(0.0, elsewhere), 3)
        before["queue"] = before.get("queue", 0.0) + job.waited_ms
        measured = TimingMs(**before, postprocess=round(self.postprocess, 3), check=round(self.check, 3))
        return total_ms(job, monotonic() - self.leased_at, measured)


def examine(job: Leased, leased_at: float) -> FinalJob | Again | Back:
    """Turn a stored completion (or a given answer) into the job's next write. Pure but for the clock it measures with.

    Args:
        job: leased for the step check.
        leased_at: when, by the monotonic clock.
    """
    clock = Clock(leased_at)
    completion = job.stored.completion if job.stored else None
    if completion is not None and completion.finish_reason in NO_ANSWER:
        why = why_no_answer(completion)
        return Back(f"the second call was refused: {why}") if job.round else _refused(job, completion, why, clock)
    started = perf_counter()
    processed = postprocess(job.request, job.stored.prompt if job.stored else None, completion)
    clock.postprocess = (perf_counter() - started) * 1000
    started = perf_counter()
    grounding = None if processed.abstained else ground(job.request, processed)
    clock.check = (perf_counter() - started) * 1000
    return decide(Examined(job, completion, processed, grounding), clock)


def decide(answer: Examined, clock: Clock) -> FinalJob | Again | Back:
    """What follows for a checked answer: another round, the one before, or the end."""
    if why := why_not_better(answer):
        return Back(why)
    if correction := another_round(answer):
        return Again(correction.model_copy(update={"age_ms": round(clock.age_ms(answer.job), 3)}))
    started = perf_counter()
    kept, told = amended(answer)
    clock.check += (perf_counter() - started) * 1000
    ruling = rule(answer, kept.processed, told)
    if ruling.failure is not None and answer.job.round:
        return Back(f"with the second answer the job would fail: {ruling.failure.message}")
    return _final(answer, kept, ruling, clock)


def _final(answer: Examined, kept: Examined, ruling: Ruling, clock: Clock) -> FinalJob:
    job, config = answer.job, answer.job.request.config
    processed = kept.processed
    if why := why_first_answer(job):
        processed = replace(processed, warnings=(*processed.warnings, why))
    if config.require_grounding:
        processed = with_warnings(processed, kept.grounding)
    text = with_appendix(job.request, processed, kept.grounding)
    quality = _quality(job.request, ruling.outcome, processed, kept.grounding, ruling.reasons)
    # A given answer stays as it is: its producer has it.
    if ruling.outcome in {Outcome.ABSTAINED, Outcome.REJECTED} and not (job.request.check_only and text):
        text = fallback_text(job, ruling.outcome.value)
        if not processed.abstained:
            processed = without_what_is_hidden(processed)
    findings = Findings(
        prompt=job.stored.prompt if job.stored else None,
        completion=answer.completion,
        processed=processed,
        grounding=kept.grounding,
        quality=quality,
        answer=text,
    )
    if ruling.failure is not None:
        return failed(job, ruling.failure, clock.timing(job), findings)
    return completed(job, ruling.outcome, findings, clock.timing(job))


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


def _refused(job: Leased, completion: Completion, message: str, clock: Clock) -> FinalJob:
    findings = Findings(
        prompt=job.stored.prompt if job.stored else None,
        completion=completion,
        answer=fallback_text(job, "refused"),
        failure=Failure(kind=FailureKind.REFUSED, message=message),
        quality=Quality(reasoning=message),
    )
    return completed(job, Outcome.REFUSED, findings, clock.timing(job))


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

    async def _settle(self, job: Leased, result: FinalJob | Again | Back) -> None:
        if not isinstance(result, FinalJob):
            await self.ledger.defer(LeaseKey(job.job_id, job.token), _advance(job, result))
            return
        try:
            written = await self.journal.finish(result)
        except Unstorable as error:
            if job.round:
                back = _advance(job, Back(f"the record of the second answer can't be stored: {error}"))
                await self.ledger.defer(LeaseKey(job.job_id, job.token), back)
                return
            result = failed(job, failure_of(error), result.record.timing_ms)
            written = await self.journal.finish(result)
        if written:
            self.final(job, result)


def _advance(job: Leased, result: Again | Back) -> Advance:
    if isinstance(result, Back):
        return given_up(job, result.why)
    event = result.correction.purpose
    return Advance(JobState.SCHEDULED, Step.GENERATE, job.round + 1, event=event, correction=result.correction)


def _examine_all(jobs: Sequence[Leased], leased_at: float) -> list[FinalJob | Again | Back]:
    return [_examine_safely(job, leased_at) for job in jobs]


def _examine_safely(job: Leased, leased_at: float) -> FinalJob | Again | Back:
    """One broken job fails alone, with its paid answer kept in the ledger; the others of its chunk go on."""
    try:
        return examine(job, leased_at)
    except Exception as error:
        log.exception("job %s broke in check", job.job_id)
        if job.round:
            return Back(f"the check of the second answer broke: {type(error).__name__}: {error}")
        stored = job.stored
        findings = Findings(prompt=stored.prompt, completion=stored.completion) if stored else None
        return failed(job, failure_of(error), Clock(leased_at).timing(job), findings)


@shared_task(name="nightdesk.check", ignore_result=True, acks_late=False)
def check_task(job_ids: Sequence[Any], urgent: bool = False) -> None:  # noqa: FBT001, FBT002 - a JSON argument
    """Admit the jobs of a hint whose answers are to be checked."""
    wired().admit(Step.CHECK, read_ids(job_ids), urgent=urgent)
