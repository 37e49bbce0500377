"""Checks the answer of one job: parsed answer, verdicts, decision, result."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from time import monotonic, perf_counter
from typing import Any, Literal

from schemas.failure import Failure, FailureKind
from schemas.generation import CheckerName
from schemas.model_call import Completion
from schemas.record import Quality, TimingMs
from schemas.states import Outcome, Step
from tasks.answers.postprocess import Processed, postprocess
from tasks.answers.texts import fallback
from tasks.errors import LedgerError, ServiceUnavailable, Unstorable, failure_of
from tasks.grounding import LayerFindings, check_claims, denies_falsely, fuse_layers, judge_request
from tasks.grounding.judge.call import Judge
from tasks.grounding.judge.request import JudgeRequest
from tasks.grounding.judge.verdicts import NO_JUDGE, JudgeReply
from tasks.policy.asks import (
    AnotherRound,
    EarlierAnswer,
    advance,
    after_refusal,
    asks_of,
    asks_of_refusal,
    next_round,
    settle,
)
from tasks.policy.outcome import (
    NO_ANSWER,
    CheckedAnswer,
    Decision,
    amend,
    another_round,
    decide_outcome,
    earlier_answer_reason,
    refusal_message,
    with_appendix,
    with_warnings,
    without_details,
)
from tasks.policy.scores import quality_of
from tasks.ports import (
    Answered,
    FinalJob,
    Journal,
    Leased,
    LeaseKey,
    Queue,
)
from tasks.results import Findings, completed, failed, total_ms
from tasks.scheduling.cpu_pieces import CpuBatcher, LoopPieces
from tasks.scheduling.defaults import CHECK_TIMEOUT_S, MAX_RESCUES
from tasks.scheduling.rescue import worker_lost
from tasks.text.source_index import shared_indexes
from tasks.text.time_limit import TimeLimit, within

log = logging.getLogger(__name__)

CHECK_BUNDLE = 10
"""Jobs checked in one hop to the CPU thread: some 10-30 ms, so finals are committed while the next bundle runs."""

LOCAL_BUNDLE = 1
"""The same where the local model runs: it takes longer than a hop for each of them."""

DIRECT_REQUEST_BYTES = 64_000
"""A bigger request is not checked on the event loop: no call would go on for longer than some ten milliseconds."""

DIRECT_ANSWER_BYTES = 16_000
"""The same of an answer as it came."""

DIRECT_WAITING = 10
"""Answers that may wait for their turn of the loop before others are left to the workers of the check."""

CHECK_BEHIND = 100
"""Answers that wait for a worker of the check, some half a second of its work, before no more are left to it."""


@dataclass(frozen=True, slots=True)
class ToJudge:
    """An answer with open claims: a judge is asked about them before the decision."""

    job: Leased
    processed: Processed
    layers: LayerFindings
    request: JudgeRequest
    clock: "Clock"


Result = FinalJob | AnotherRound | EarlierAnswer


@dataclass(slots=True)
class Clock:
    """The times of a check in milliseconds; ``leased_at`` is by the monotonic clock."""

    leased_at: float
    postprocess: float = 0.0
    check: float = 0.0

    @contextmanager
    def measure(self, part: Literal["postprocess", "check"]) -> Iterator[None]:
        """Adds the time of a block to a part."""
        started = perf_counter()
        yield
        setattr(self, part, getattr(self, part) + (perf_counter() - started) * 1000)

    def age_ms(self, job: Leased) -> float:
        """The job's age now."""
        return job.age_ms + (monotonic() - self.leased_at) * 1000

    def timing(self, job: Leased) -> TimingMs:
        """The timings of a job that ends now; the time of a round whose answer is not taken counts as waiting."""
        before = dict(job.stored.timing_ms) if job.stored else {}
        if (correction := job.correction) is not None:
            came_back = correction.given_up is not None
            other_round = job.age_ms - job.waited_ms - sum(before.values()) if came_back else correction.age_ms
            before["retry_wait"] = round(before.get("retry_wait", 0.0) + max(0.0, other_round), 3)
        if job.judged is not None and (judge_wait := job.judged.timing_ms.get("provider_batch_wait")):
            before["provider_batch_wait"] = round(before.get("provider_batch_wait", 0.0) + judge_wait, 3)
        before["queue"] = before.get("queue", 0.0) + job.waited_ms
        before["limiter_wait"] = before.get("limiter_wait", 0.0) + job.limited_ms
        measured = {**before, "postprocess": round(self.postprocess, 3), "check": round(self.check, 3)}
        return total_ms(job, monotonic() - self.leased_at, measured)


def run_checkers(
    job: Leased, leased_at: float, *, decides: bool = False, by_default: bool = False, affordable: bool = True
) -> Result | ToJudge:
    """Parses a stored completion (or a supplied answer) and checks its claims; decides, unless some are left to a judge.

    Pure but for the clock it measures with.

    Args:
        job: leased for one of the steps that check.
        leased_at: when, by the monotonic clock.
        decides: the judge that would be asked gives probabilities.
        by_default: there is a judge that the job does not ask for.
        affordable: the cost of the answer allows for a call of that judge.
    """
    clock = Clock(leased_at)
    completion = job.stored.completion if job.stored else None
    if completion is not None and completion.finish_reason in NO_ANSWER:
        why = refusal_message(completion)
        following = after_refusal(job, completion, why) if _may_ask_again(job) else None
        return _refused(job, completion, why, clock) if following is None else following
    with clock.measure("postprocess"):
        processed = postprocess(job.request, job.stored.prompt if job.stored else None, completion)
    grounding = None
    if processed.abstained and denies_falsely(job.request, processed):
        # It is no abstention: a source says what the answer denies.
        processed = replace(processed, abstained=False)
    if not processed.abstained:
        with clock.measure("check"):
            layers = check_claims(job.request, processed)
            open_claims = judge_request(layers, decides=decides, by_default=by_default, affordable=affordable)
        if open_claims is not None:
            return ToJudge(job, processed, layers, open_claims, clock)
        with clock.measure("check"):
            grounding = fuse_layers(layers, None, NO_JUDGE)
    return decide(CheckedAnswer(job, completion, processed, grounding), clock)


def add_verdicts(case: ToJudge, reply: JudgeReply) -> Result:
    """Adds the judge's verdicts to those of the checkers, and decides."""
    with case.clock.measure("check"):
        grounding = fuse_layers(case.layers, case.request, reply)
    completion = case.job.stored.completion if case.job.stored else None
    return decide(CheckedAnswer(case.job, completion, case.processed, grounding), case.clock)


def decide(answer: CheckedAnswer, clock: Clock) -> Result:
    """Decides on a checked answer: another round, the answer before, or the result."""
    correction = another_round(answer)
    if correction is not None or _may_ask_again(answer.job):
        following = next_round(answer, correction)
        if following is not None:
            return following
    with clock.measure("check"):
        amended, amendments = amend(answer)
    ruling = decide_outcome(answer, amended.processed, amendments)
    return _final(answer, amended, ruling, clock)


def _may_ask_again(job: Leased) -> bool:
    """Tells whether the rounds of a job have to be compared, or another may follow."""
    return job.given_up is None and (job.correction is not None or bool(job.request.config.escalate))


def _final(answer: CheckedAnswer, amended: CheckedAnswer, ruling: Decision, clock: Clock) -> FinalJob:
    job, config = answer.job, answer.job.request.config
    processed = amended.processed
    if why := earlier_answer_reason(job):
        processed = replace(processed, warnings=(*processed.warnings, why))
    if config.require_grounding:
        processed = with_warnings(processed, amended.grounding)
    text = with_appendix(job.request, processed, amended.grounding)
    quality = quality_of(job.request, ruling.outcome, processed, amended.grounding, ruling.reasons)
    # A supplied answer stays as it is: its producer has it.
    if ruling.outcome in {Outcome.ABSTAINED, Outcome.REJECTED} and not (job.request.check_only and text):
        text = fallback(job.request, ruling.outcome.value)
        if not processed.abstained:
            processed = without_details(processed)
    findings = _findings(
        job,
        processed=processed,
        grounding=amended.grounding,
        quality=quality,
        answer=text,
        asks=asks_of(answer) if job.correction else None,
    )
    if ruling.failure is not None:
        return failed(job, ruling.failure, clock.timing(job), findings)
    return completed(job, ruling.outcome, findings, clock.timing(job))


def _refused(job: Leased, completion: Completion, message: str, clock: Clock) -> FinalJob:
    findings = _findings(
        job,
        answer=fallback(job.request, "refused"),
        failure=Failure(kind=FailureKind.REFUSED, message=message),
        quality=Quality(reasoning=message),
        asks=asks_of_refusal(job, completion, message) if job.correction else None,
    )
    return completed(job, Outcome.REFUSED, findings, clock.timing(job))


def _findings(job: Leased, **fields: Any) -> Findings:
    if job.stored is None:
        return Findings(**fields)
    return Findings(prompt=job.stored.prompt, completion=job.stored.completion, **fields)


@dataclass(slots=True)
class Check:
    """The steps that check: their CPU work on one thread, in bundles, so that the loop stays free for I/O.

    A job that waits for its judge holds up no other job.
    """

    queue: Queue
    journal: Journal
    cpu: Executor | LoopPieces
    final: Callable[[Leased, FinalJob], None]
    """Gets each job that became final: its result can be published."""
    judge: Judge | None = None
    """None: there is no judge in this process, as if none was configured."""
    bundle: int = CHECK_BUNDLE
    """Most jobs of one hop to the CPU thread."""
    limit: TimeLimit = field(default_factory=lambda: TimeLimit(CHECK_TIMEOUT_S))
    """The time limit of each part of a check on the CPU thread."""
    max_rescues: int = MAX_RESCUES
    """Lost workers after which an answer is not checked any more."""
    _cpu_batcher: CpuBatcher = field(init=False)

    def __post_init__(self) -> None:
        self._cpu_batcher = self.cpu if isinstance(self.cpu, LoopPieces) else CpuBatcher(self.cpu, self.bundle)

    async def run(self, job: Leased) -> None:
        """Checks a leased job and writes its final. Every failure ends in the ledger."""
        leased_at = monotonic()
        paid_for = job.stored is not None and job.stored.paid_for
        default = self.judge.by_default(job) if self.judge is not None and paid_for else None
        by_default, affordable = default is not None, default is None or default.affords_a_call
        asks_judge = by_default or CheckerName.JUDGE in job.request.config.checkers
        decides = asks_judge and self.judge is not None and self.judge.decides(job)
        limit = self._limit_of(job)
        work = partial(run_checkers, job, leased_at, decides=decides, by_default=by_default, affordable=affordable)
        result = await self._compute(job, leased_at, limit, work)
        if isinstance(result, ToJudge):
            started = monotonic()
            paid_reply = await self._ask_judge(job, result.request)
            if paid_reply is None:
                return
            request, reply, cost = paid_reply
            job = replace(job, cost_usd=None if job.cost_usd is None or cost is None else job.cost_usd + cost)
            # Like the job of the case, which was not charged for its judge.
            case = replace(result, request=request, job=job)
            case.clock.check += (monotonic() - started) * 1000
            result = await self._compute(job, leased_at, limit, partial(add_verdicts, case, reply))
            assert not isinstance(result, ToJudge)
        await self._settle(job, result, leased_at)

    def _limit_of(self, job: Leased) -> TimeLimit:
        """The time for a job's check: none for one that ends its workers, so that its answer is kept."""
        return TimeLimit(0, worker_lost(job).message) if job.rescues > self.max_rescues else self.limit

    async def _compute(
        self, job: Leased, leased_at: float, limit: TimeLimit, work: Callable[[], Result | ToJudge]
    ) -> Result | ToJudge:
        return await self._cpu_batcher.do(partial(_safely, job, leased_at, work, limit), urgent=job.priority > 0)

    async def _ask_judge(
        self, job: Leased, request: JudgeRequest
    ) -> tuple[JudgeRequest, JudgeReply, Decimal | None] | None:
        if self.judge is None:
            return request, NO_JUDGE, Decimal(0)
        try:
            return await self.judge.ask(job, request, self._cpu_batcher)
        except (ServiceUnavailable, LedgerError):
            # Its lease runs out, and the rescue hands the job on with all that is stored.
            raise
        except Exception as error:
            # The policy: a paid answer is not thrown away because its judge broke; the record says that it did.
            log.exception("the judge of job %s broke", job.job_id)
            return request, JudgeReply(failure=f"{type(error).__name__}: {error}"), Decimal(0)

    async def _settle(self, job: Leased, result: Result, leased_at: float) -> None:
        if not isinstance(result, FinalJob):
            then = advance(job, result, Clock(leased_at).age_ms(job))
            await self.queue.defer(LeaseKey(job.job_id, job.token), then)
            return
        try:
            finished = await self.journal.finish(result)
        except Unstorable as error:
            if job.round and job.given_up is None:
                why = f"the record of its answer can't be stored: {error}"
                await self.queue.defer(LeaseKey(job.job_id, job.token), settle(job, why))
                return
            result = failed(job, failure_of(error), result.record.timing_ms)
            finished = await self.journal.finish(result)
        if finished:
            self.final(job, result)


@dataclass(slots=True)
class DirectCheck:
    """Room for checks in the process that stored the answers, on what it has in memory: no hand-over, nothing read again.

    The loop checks one answer a turn, so these checks get the time that the calls leave. While a few wait, further answers
    are left to the workers of the check; while enough wait there, too, answers keep their slots of ``generate`` until there
    is room here, so that no more calls are made than answers can be checked.
    """

    check: Check
    pieces: LoopPieces
    slots: int
    """Most jobs in their check here at once, and as many urgent ones; some may wait for their judge."""
    count_backlog: Callable[[int], Awaitable[int]] | None = None
    """Counts the answers that wait for a worker of the check, up to a number. None: this process is such a worker."""
    behind: bool = False
    """Enough answers wait for the workers of the check."""
    _overflow: bool = False
    """An answer was left to them since the last look."""
    _free: asyncio.Semaphore = field(init=False)
    _free_urgent: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._free, self._free_urgent = asyncio.Semaphore(self.slots), asyncio.Semaphore(self.slots)

    def takes(self, job: Leased, answered: Answered) -> bool:
        """True if the answer about to be stored is to be checked here."""
        if (
            job.request.config.check_step is not Step.CHECK
            # What ended a worker, and what was judged before, goes the long way.
            or job.round
            or job.rescues
            or job.request_bytes > DIRECT_REQUEST_BYTES
            or len(answered.raw) > DIRECT_ANSWER_BYTES
        ):
            return False
        has_room = self.pieces.waiting < DIRECT_WAITING and not self._free.locked()
        if has_room or self.behind or self.count_backlog is None or job.priority > 0:
            return True
        self._overflow = True
        return False

    async def wait_for_room(self, job: Leased) -> float:
        """Waits until a job may begin its check, and ``run`` is to follow at once; returns the milliseconds."""
        room = self._room(job)
        if not room.locked():
            await room.acquire()
            return 0.0
        started = monotonic()
        await room.acquire()
        return (monotonic() - started) * 1000

    async def run(self, job: Leased) -> None:
        """Checks a job after ``wait_for_room``."""
        try:
            await self.check.run(job)
        finally:
            self._room(job).release()

    def _room(self, job: Leased) -> asyncio.Semaphore:
        # An urgent job waits for urgent ones alone: hundreds of others may stand here, each with milliseconds of work.
        return self._free_urgent if job.priority > 0 else self._free

    async def look(self) -> None:
        """Looks how many answers wait for the workers of the check, if any was left to them. Raises ``LedgerUnavailable``."""
        if self.count_backlog is not None and (self._overflow or self.behind):
            self._overflow = False
            self.behind = await self.count_backlog(CHECK_BEHIND) >= CHECK_BEHIND


def _safely(job: Leased, leased_at: float, work: Callable[[], Result | ToJudge], limit: TimeLimit) -> Result | ToJudge:
    """Lets a broken job fail alone, with its paid answer kept in the ledger; the others of its bundle go on."""
    later = job.round > 0 and job.given_up is None and job.recheck is None
    if later and not limit.seconds:
        return EarlierAnswer(f"its answer was not checked: {limit.message}")
    try:
        with within(limit), shared_indexes():
            return work()
    except Exception as error:
        log.exception("job %s broke in check", job.job_id)
        if later:
            return EarlierAnswer(f"the check of its answer broke: {type(error).__name__}: {error}")
        return failed(job, failure_of(error), Clock(leased_at).timing(job), _findings(job))
