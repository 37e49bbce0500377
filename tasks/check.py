"""Checks the answer of a job and decides its outcome: postprocess, checkers, policy, final write."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
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
from tasks.answers.postprocess import Processed, postprocess
from tasks.errors import LedgerError, ServiceUnavailable, Unstorable, failure_of
from tasks.grounding import Layers, conclude, look, question_of
from tasks.grounding.judge import NO_JUDGE, JudgeReply, JudgeRequest
from tasks.grounding.judge.call import Judge
from tasks.policy.outcome import (
    NO_ANSWER,
    CheckedAnswer,
    Decision,
    another_round,
    decide_outcome,
    first_answer_reason,
    refusal_message,
    regression_reason,
)
from tasks.policy.redact import amend, with_appendix, with_warnings, without_details
from tasks.policy.scores import assess, reasoning
from tasks.poll import job_ids as read_ids
from tasks.ports import MAX_RESCUES, Advance, FinalJob, Journal, Leased, LeaseKey, Ledger, wired
from tasks.prompting.correction import give_up
from tasks.results import Findings, completed, failed, fallback_text, total_ms
from tasks.scheduling.batching import CpuBatcher
from tasks.scheduling.rescue import worker_lost
from tasks.text.evidence import shared_indexes
from tasks.text.time_limit import TimeLimit, within

log = logging.getLogger(__name__)

CHECK_BUNDLE = 10
"""Jobs checked in one hop to the CPU thread: some 10-30 ms, so finals are committed while the next bundle runs."""

LOCAL_BUNDLE = 1
"""The same where the local model runs: it takes longer than a hop for each of them."""


@dataclass(frozen=True, slots=True)
class Again:
    """The policy asks for another round of generation."""

    correction: Correction


@dataclass(frozen=True, slots=True)
class Back:
    """The second round made nothing better: the first answer is to be finished, and says why."""

    why: str


@dataclass(frozen=True, slots=True)
class ToJudge:
    """An answer that a judge is to be asked about before anything is decided."""

    job: Leased
    processed: Processed
    layers: Layers
    question: JudgeRequest
    clock: "Clock"


Result = FinalJob | Again | Back


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
        before["limiter_wait"] = before.get("limiter_wait", 0.0) + job.limited_ms
        measured = TimingMs(**before, postprocess=round(self.postprocess, 3), check=round(self.check, 3))
        return total_ms(job, monotonic() - self.leased_at, measured)


def examine(job: Leased, leased_at: float) -> Result:
    """Check an answer where no judge can be asked: what would be left to it stays unchecked."""
    first = read_and_look(job, leased_at)
    return judged(first, NO_JUDGE) if isinstance(first, ToJudge) else first


def read_and_look(job: Leased, leased_at: float, *, decides: bool = False) -> Result | ToJudge:
    """Turn a stored completion (or a given answer) into the job's next write, or into a question to the judge.

    Pure but for the clock it measures with.

    Args:
        job: leased for one of the steps that check.
        leased_at: when, by the monotonic clock.
        decides: the judge that would be asked gives probabilities.
    """
    clock = Clock(leased_at)
    completion = job.stored.completion if job.stored else None
    if completion is not None and completion.finish_reason in NO_ANSWER:
        why = refusal_message(completion)
        return Back(f"the second call was refused: {why}") if job.round else _refused(job, completion, why, clock)
    started = perf_counter()
    processed = postprocess(job.request, job.stored.prompt if job.stored else None, completion)
    clock.postprocess = (perf_counter() - started) * 1000
    started = perf_counter()
    grounding = None
    if not processed.abstained:
        layers = look(job.request, processed)
        question = question_of(layers, decides=decides)
        if question is not None:
            clock.check = (perf_counter() - started) * 1000
            return ToJudge(job, processed, layers, question, clock)
        grounding = conclude(layers, None, NO_JUDGE)
    clock.check = (perf_counter() - started) * 1000
    return decide(CheckedAnswer(job, completion, processed, grounding), clock)


def judged(asking: ToJudge, heard: JudgeReply) -> Result:
    """The job's next write, with what the judge said of its answer."""
    started = perf_counter()
    job = asking.job
    grounding = conclude(asking.layers, asking.question, heard)
    asking.clock.check += (perf_counter() - started) * 1000
    completion = job.stored.completion if job.stored else None
    return decide(CheckedAnswer(job, completion, asking.processed, grounding), asking.clock)


def decide(answer: CheckedAnswer, clock: Clock) -> Result:
    """What follows for a checked answer: another round, the one before, or the end."""
    if why := regression_reason(answer):
        return Back(why)
    if correction := another_round(answer):
        return Again(correction.model_copy(update={"age_ms": round(clock.age_ms(answer.job), 3)}))
    started = perf_counter()
    kept, told = amend(answer)
    clock.check += (perf_counter() - started) * 1000
    ruling = decide_outcome(answer, kept.processed, told)
    if ruling.failure is not None and answer.job.round:
        return Back(f"with the second answer the job would fail: {ruling.failure.message}")
    return _final(answer, kept, ruling, clock)


def _final(answer: CheckedAnswer, kept: CheckedAnswer, ruling: Decision, clock: Clock) -> FinalJob:
    job, config = answer.job, answer.job.request.config
    processed = kept.processed
    if why := first_answer_reason(job):
        processed = replace(processed, warnings=(*processed.warnings, why))
    if config.require_grounding:
        processed = with_warnings(processed, kept.grounding)
    text = with_appendix(job.request, processed, kept.grounding)
    quality = _quality(job.request, ruling.outcome, processed, kept.grounding, ruling.reasons)
    # A given answer stays as it is: its producer has it.
    if ruling.outcome in {Outcome.ABSTAINED, Outcome.REJECTED} and not (job.request.check_only and text):
        text = fallback_text(job, ruling.outcome.value)
        if not processed.abstained:
            processed = without_details(processed)
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
    """The steps that check: the thinking on one CPU thread, in bundles, so that the loop stays free for I/O.

    Each job goes its own way, so that one that waits for its judge holds up nobody but its slot.
    """

    ledger: Ledger
    journal: Journal
    cpu: Executor
    final: Callable[[Leased, FinalJob], None]
    """Told of each job that became final: its result can be published."""
    judge: Judge | None = None
    """None: there is no judge in this process, as if none was configured."""
    bundle: int = CHECK_BUNDLE
    """Jobs that are thought about in one hop at most."""
    limit: TimeLimit = field(default_factory=TimeLimit)
    """Of each part of a check on the CPU thread."""
    max_rescues: int = MAX_RESCUES
    """Lost workers after which an answer is not checked any more."""
    _thinking: CpuBatcher = field(init=False)

    def __post_init__(self) -> None:
        self._thinking = CpuBatcher(self.cpu, self.bundle)

    async def run(self, job: Leased) -> None:
        """Check a leased job and write its final. Every failure ends in the ledger."""
        leased_at = monotonic()
        decides = self.judge is not None and self.judge.decides(job)
        think = partial(read_and_look, job, leased_at, decides=decides)
        limit = self._limit_of(job)
        first = await self._thinking.do(partial(_safely, job, leased_at, think, limit))
        if not isinstance(first, ToJudge):
            await self._settle(job, first)
            return
        started = monotonic()
        heard = NO_JUDGE
        cost: Decimal | None = Decimal(0)
        if self.judge is not None:
            asked = await self._asked(self.judge, job, first.question)
            if asked is None:
                return
            question, heard, cost = asked
            first = replace(first, question=question)
        first.clock.check += (monotonic() - started) * 1000
        result = await self._thinking.do(partial(_safely, job, leased_at, partial(judged, first, heard), limit))
        assert not isinstance(result, ToJudge)
        total = None if job.cost_usd is None or cost is None else job.cost_usd + cost
        await self._settle(replace(job, cost_usd=total), result)

    def _limit_of(self, job: Leased) -> TimeLimit:
        """The time for a job's check: none for one that ends its workers, so that its answer is kept."""
        return TimeLimit(0, worker_lost(job).message) if job.rescues > self.max_rescues else self.limit

    async def _asked(
        self, judge: Judge, job: Leased, question: JudgeRequest
    ) -> tuple[JudgeRequest, JudgeReply, Decimal | None] | None:
        try:
            return await judge.ask(job, question, self._thinking)
        except (ServiceUnavailable, LedgerError):
            # Its lease runs out, and the rescue hands the job on with all that is stored.
            raise
        except Exception as error:
            # The policy: a paid answer is not thrown away because its judge broke; the record says that it did.
            log.exception("the judge of job %s broke", job.job_id)
            return question, JudgeReply(failure=f"{type(error).__name__}: {error}"), Decimal(0)

    async def _settle(self, job: Leased, result: Result) -> None:
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
        return give_up(job, result.why)
    event = result.correction.purpose
    return Advance(JobState.SCHEDULED, Step.GENERATE, job.round + 1, event=event, correction=result.correction)


def _safely(job: Leased, leased_at: float, think: Callable[[], Result | ToJudge], limit: TimeLimit) -> Result | ToJudge:
    """One broken job fails alone, with its paid answer kept in the ledger; the others of its bundle go on."""
    if job.round and not limit.seconds:
        return Back(f"the second answer was not checked: {limit.message}")
    try:
        with within(limit), shared_indexes():
            return think()
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


@shared_task(name="nightdesk.local", ignore_result=True, acks_late=False)
def local_task(job_ids: Sequence[Any], urgent: bool = False) -> None:  # noqa: FBT001, FBT002 - a JSON argument
    """Admit the jobs of a hint whose answers the local model is to read, too."""
    wired().admit(Step.LOCAL, read_ids(job_ids), urgent=urgent)
