"""Checks the answer of one job: parsed answer, verdicts, decision, result."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from time import monotonic, perf_counter
from typing import Any, Literal

from schemas.failure import Failure, FailureKind
from schemas.generation import CheckerName
from schemas.job import JobRequest
from schemas.model_call import Completion, total_usd
from schemas.record import Quality, TimingMs
from schemas.states import Outcome
from tasks.answers.postprocess import Processed, postprocess
from tasks.answers.texts import fallback
from tasks.defaults import CHECK_TIMEOUT_S, MAX_RESCUES
from tasks.errors import CheckEnded, LedgerError, ServiceUnavailable, Unreadable, Unstorable, failure_of
from tasks.grounding import LayerFindings, check_claims, denies_falsely, fuse_layers, judge_request
from tasks.grounding.judge.allowance import JudgeTerms
from tasks.grounding.judge.call import Judge
from tasks.grounding.judge.request import JudgeRequest
from tasks.grounding.judge.verdicts import NO_JUDGE, JudgeReply
from tasks.masking import words_of
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
    Ruling,
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
    Advance,
    CheckExecutor,
    FinalJob,
    Journal,
    Lease,
    Leased,
    LeaseKey,
    PackedFinal,
    Queue,
    UnreadableRow,
)
from tasks.results import Findings, completed, failed, total_ms, worker_lost
from tasks.text.source_index import shared_indexes
from tasks.text.time_limit import TimeLimit, within

log = logging.getLogger(__name__)

IN_TIME_SHARE = 0.8
"""Part of its time limit after which a check ends by itself, with the verdicts that it has: at the limit it is ended without."""


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
    job: Leased,
    leased_at: float,
    *,
    gives_probabilities: bool = False,
    by_default: bool = False,
    affordable: bool = True,
) -> Result | ToJudge:
    """Parses a stored completion (or a supplied answer) and checks its claims; decides, unless some are left to a judge.

    Pure but for the clock it measures with.

    Args:
        job: leased for one of the steps that check.
        leased_at: when, by the monotonic clock.
        gives_probabilities: the judge that would be asked gives probabilities.
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
            open_claims = judge_request(
                layers, gives_probabilities=gives_probabilities, by_default=by_default, affordable=affordable
            )
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


def _final(answer: CheckedAnswer, amended: CheckedAnswer, ruling: Ruling, clock: Clock) -> FinalJob:
    job, config = answer.job, answer.job.request.config
    processed = amended.processed
    if why := earlier_answer_reason(job):
        processed = replace(processed, warnings=(*processed.warnings, why))
    if config.require_grounding:
        processed = with_warnings(job.request, processed, amended.grounding)
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


@dataclass(frozen=True, slots=True)
class CheckDesk:
    """The part of a check that computes: in another process, which reads the job and packs what becomes of it.

    Sent to another process, a desk is that process's own (``use_desk``).
    """

    limit: TimeLimit = field(default_factory=lambda: TimeLimit(CHECK_TIMEOUT_S))
    """The time limit of each part of a check."""
    judge: JudgeTerms | None = None
    """None: there is no judge in this installation."""
    pack: Callable[[FinalJob], FinalJob | PackedFinal] = lambda final: final
    """Makes of a final write what the event loop passes on."""

    def __reduce__(self) -> tuple[Any, ...]:
        return own_desk, ()

    def begin(self, lease: Lease, leased_at: float) -> "NextStep":
        """Reads a leased job and checks its answer, as far as that goes without a judge.

        Args:
            lease: leased for one of the steps that check.
            leased_at: when, by the monotonic clock.
        """
        job = lease.read()
        terms = self._judge_terms(job)
        return self._do(job, leased_at, self._soft_limit, partial(run_checkers, job, leased_at, **terms))

    def end(self, case: ToJudge, reply: JudgeReply) -> "NextStep":
        """Adds the judge's verdicts."""
        return self._do(case.job, case.clock.leased_at, self._soft_limit, partial(add_verdicts, case, reply))

    def keep_unchecked(self, lease: Lease, leased_at: float, reason: str) -> "NextStep":
        """Ends a job with its answer, of which nothing is checked."""
        job = lease.read()
        if _follows_another(job):
            return advance(job, EarlierAnswer(f"its answer was not checked: {reason}"), Clock(leased_at).age_ms(job))
        return self._do(job, leased_at, TimeLimit(0, reason), partial(run_checkers, job, leased_at))

    def keep_unread(self, lease: Lease, leased_at: float, reason: str) -> "NextStep":
        """Ends a job with the text of its answer as it came: even to read it took too long."""
        job = lease.read()
        completion = job.stored.completion if job.stored else None
        text = (completion.text if completion else job.request.response) or ""
        quality = Quality(reasoning=f"The answer was not checked: {reason}.", warnings=(f"not checked: {reason}",))
        findings = _findings(job, answer=text, quality=quality)
        return self.pack(completed(job, Outcome.PARTIAL, findings, Clock(leased_at).timing(job)))

    def fail(self, lease: Lease, leased_at: float, failure: Failure) -> "NextStep":
        """Ends a job whose record can't be stored; of a later round only the round."""
        job = lease.read()
        if _follows_another(job):
            return settle(job, f"the record of its answer can't be stored: {failure.message}")
        return self.pack(failed(job, failure, Clock(leased_at).timing(job)))

    def _judge_terms(self, job: Leased) -> dict[str, bool]:
        """The arguments of ``run_checkers`` about the judge."""
        if self.judge is None:
            return {}
        paid_for = job.stored is not None and job.stored.paid_for
        default = self.judge.by_default(job) if paid_for else None
        asks_judge = default is not None or CheckerName.JUDGE in job.request.config.checkers
        return {
            "gives_probabilities": asks_judge and self.judge.gives_probabilities(job),
            "by_default": default is not None,
            "affordable": default is None or default.affords_a_call,
        }

    @property
    def _soft_limit(self) -> TimeLimit:
        return TimeLimit(self.limit.seconds * IN_TIME_SHARE, self.limit.message)

    def _do(self, job: Leased, leased_at: float, limit: TimeLimit, work: Callable[[], Result | ToJudge]) -> "NextStep":
        """Lets a broken job fail, with its paid answer kept in the ledger."""
        try:
            with within(limit), shared_indexes():
                result = work()
        except Exception as error:
            log.exception("job %s broke in check", job.job_id)
            if _follows_another(job):
                result = EarlierAnswer(f"the check of its answer broke: {words_of(error)}")
            else:
                result = failed(job, failure_of(error), Clock(leased_at).timing(job), _findings(job))
        if isinstance(result, ToJudge):
            return result
        if isinstance(result, FinalJob):
            return self.pack(result)
        return advance(job, result, Clock(leased_at).age_ms(job))


NextStep = FinalJob | PackedFinal | Advance | ToJudge
"""The next step after a part of a check."""


def _follows_another(job: Leased) -> bool:
    """True if an earlier round has an answer that is finished where this one can't be."""
    return job.round > 0 and job.given_up is None and job.recheck is None


_OWN: list[CheckDesk] = []


def use_desk(desk: CheckDesk) -> None:
    """Makes this process check at a desk. Called once, when a process is wired."""
    _OWN[:] = [desk]


def own_desk() -> CheckDesk:
    """The desk of this process."""
    return _OWN[0]


def warm_up() -> None:
    """Checks an answer, so that the tables and patterns of the first check are there: they take a tenth of a second."""
    text = "The desk opens at 9 a.m. It does not close before 17 March 2024, says the editor."
    request = JobRequest(query="When?", context=({"content": text},), response=f"{text} It costs 5 euros [1].")
    fuse_layers(check_claims(request, postprocess(request, None, None)), None, NO_JUDGE)


@dataclass(slots=True)
class Check:
    """The steps that check, on the event loop, which makes their calls and passes on what the desk computes elsewhere.

    A job that waits for its judge holds up no other.
    """

    queue: Queue
    journal: Journal
    executor: CheckExecutor
    judge: Judge | None = None
    """None: there is no judge in this process, as if none was configured."""
    max_rescues: int = MAX_RESCUES
    """Lost workers after which an answer is not checked any more."""
    desk: CheckDesk = field(init=False)

    def __post_init__(self) -> None:
        self.desk = CheckDesk(judge=self.judge.terms if self.judge is not None else None)

    async def run(self, lease: Lease) -> None:
        """Checks a leased job and writes its final. Every failure ends in the ledger."""
        leased_at = monotonic()
        try:
            step = await self._step(lease, leased_at)
        except Unreadable as error:
            await self.queue.fail_unreadable([UnreadableRow(lease.job_id, str(error))], [lease.token])
        else:
            await self._settle(lease, step, leased_at)

    async def _step(self, lease: Lease, leased_at: float) -> NextStep | None:
        """Checks a leased job as far as its next step; None: it waits for its judge, or is lost."""
        if lease.rescues > self.max_rescues:
            # It ends its workers: its answer is kept.
            return await self._leave_unchecked(lease, leased_at, worker_lost(lease).message)
        try:
            step = await self._compute(lease, partial(self.desk.begin, lease, leased_at))
            if not isinstance(step, ToJudge):
                return step
            case = await self._judged(step)
            return None if case is None else await self._compute(lease, partial(self.desk.end, *case))
        except CheckEnded as error:
            log.warning("job %s is left unchecked: %s", lease.job_id, error)
            return await self._leave_unchecked(lease, leased_at, str(error))

    async def _compute(self, lease: Lease, work: Callable[[], NextStep]) -> NextStep:
        return await self.executor.do(work, tenant=lease.tenant, urgent=lease.priority > 0)

    async def _leave_unchecked(self, lease: Lease, leased_at: float, reason: str) -> NextStep:
        """Ends a job without its check."""
        try:
            return await self._compute(lease, partial(self.desk.keep_unchecked, lease, leased_at, reason))
        except CheckEnded:
            return await self._compute(lease, partial(self.desk.keep_unread, lease, leased_at, reason))

    async def _judged(self, case: ToJudge) -> tuple[ToJudge, JudgeReply] | None:
        """The case with the judge's reply; None: the job waits, or is lost."""
        started = monotonic()
        paid_reply = await self._ask_judge(case.job, case.request)
        if paid_reply is None:
            return None
        request, reply, cost = paid_reply
        job = case.job
        job = replace(job, cost_usd=total_usd(job.cost_usd, cost))
        case.clock.check += (monotonic() - started) * 1000
        return replace(case, request=request, job=job), reply

    async def _ask_judge(
        self, job: Leased, request: JudgeRequest
    ) -> tuple[JudgeRequest, JudgeReply, Decimal | None] | None:
        if self.judge is None:
            return request, NO_JUDGE, Decimal(0)
        try:
            return await self.judge.ask(job, request, self.executor)
        except (ServiceUnavailable, LedgerError):
            # Its lease runs out, and the rescue hands the job on with all that is stored.
            raise
        except Exception as error:
            # The policy: a paid answer is not thrown away because its judge broke; the record says that it did.
            log.exception("the judge of job %s broke", job.job_id)
            return request, JudgeReply(failure=words_of(error)), Decimal(0)

    async def _settle(self, lease: Lease, step: NextStep | None, leased_at: float) -> None:
        try:
            await self._write(lease, step)
        except Unstorable as error:
            if isinstance(step, Advance):
                raise
            fail = partial(self.desk.fail, lease, leased_at, failure_of(error))
            await self._write(lease, await self._compute(lease, fail))

    async def _write(self, lease: Lease, step: NextStep | None) -> None:
        assert not isinstance(step, ToJudge)
        if isinstance(step, Advance):
            await self.queue.defer(LeaseKey(lease.job_id, lease.token), step)
        elif step is not None:
            await self.journal.finish(step)
