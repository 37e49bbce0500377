"""Asks the judge about one answer: attempt, call, completion; whatever goes wrong there, the answer keeps its check."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from time import monotonic
from uuid import UUID

from schemas.completion import Completion, FinishReason
from schemas.failure import Failure, FailureKind
from schemas.generation import GenerationConfig, Lane
from schemas.job import JobRequest
from schemas.states import HeldReason, JobState
from tasks.calls.attempts import MAX_UNKNOWN, OVERTIME_S, UNPRICED, failure_of, new_attempt, opened
from tasks.calls.cancelling import answer_within, finish_first
from tasks.calls.closing import advance_of, closed, cost_of, cut_off, outcome_of
from tasks.calls.retry import REFUSED_LANE, Hold, RetryPolicy, Snooze, decide
from tasks.errors import ConfigurationError, ProviderError, Unstorable
from tasks.grounding.findings import ClaimFinding
from tasks.grounding.judge import NO_JUDGE, JudgeReply, JudgeRequest, as_stored
from tasks.grounding.judge.verdict_cache import VerdictCache
from tasks.ports import (
    Advance,
    Answered,
    Call,
    Denied,
    DenyReason,
    Journal,
    Leased,
    LeaseKey,
    Ledger,
    Limits,
    NewAttempt,
    Opened,
    Permit,
    Provider,
    Providers,
    Purpose,
    StoredAnswer,
    StoredCompletion,
    Turn,
    Unlimited,
)
from tasks.scheduling.batching import CpuBatcher

log = logging.getLogger(__name__)

FORGOTTEN = ClaimFinding(reason="what the judge had said of it for another answer is erased")
"""Of a claim that was not asked about because it was known."""

NO_REPLY = frozenset({FinishReason.REFUSAL, FinishReason.CONTENT_FILTER})


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """Who judges for jobs that name nobody, and the bounds of a call."""

    judge: str | None = None
    max_tokens: int = 8_192
    timeout_s: float = 60.0


@dataclass(slots=True)
class Judging:
    """The call of the check step, on the event loop."""

    ledger: Ledger
    journal: Journal
    providers: Providers
    policy: RetryPolicy
    jitter: Callable[[], float]
    options: JudgeOptions = field(default_factory=JudgeOptions)
    limits: Limits = field(default_factory=Unlimited)
    """Asked before each call."""
    _verdict_cache: VerdictCache = field(init=False)

    def __post_init__(self) -> None:
        self._verdict_cache = VerdictCache(self.journal)

    def decides(self, job: Leased) -> bool:
        """Whether the job's judge gives probabilities, so that it is to be asked in that form.

        That of a stored answer is the one it was asked in. False where there is no judge: ``ask`` says why.
        """
        if job.judged is not None:
            return bool(job.judged.prompt.snapshot.questions)
        named = job.request.config.judge or self.options.judge
        return named is not None and self.providers.decides(Turn.parse(named).provider)

    async def ask(
        self, job: Leased, question: JudgeRequest, thinking: CpuBatcher
    ) -> tuple[JudgeRequest, JudgeReply, Decimal | None] | None:
        """What the judge says, to what was left to be asked, and what that cost now; None: the job waits, or is lost.

        A word that was heard in the batch before is taken, and so is an answer that is stored for this run and round:
        nothing is called for it again.
        """
        if job.judged is not None:
            question, heard = await self._asked_already(job, job.judged, question, thinking)
            return question, heard, Decimal(0)
        planned = self._planned(job, question)
        if isinstance(planned, JudgeReply):
            return question, planned, Decimal(0)
        judge = _name(planned[1])
        async with self._verdict_cache.turn(job, question, judge):
            left = await self._verdict_cache.recall(job, question, judge, thinking)
            # Mostly nothing was heard before, and the call is planned already.
            answered = await self._ask_for(job, left, planned if left is question else None)
            if answered is None:
                return None
            # Whatever became of the call, what was known is that judge's word.
            heard, cost = replace(answered[0], judge=judge), answered[1]
            await self._verdict_cache.tell(job, left, heard, thinking)
        return left, heard, cost

    async def _asked_already(
        self, job: Leased, judged: StoredCompletion, question: JudgeRequest, thinking: CpuBatcher
    ) -> tuple[JudgeRequest, JudgeReply]:
        """The stored answer with the question that it answers, and what was known beside it."""
        snapshot = judged.completion.snapshot
        judge = f"{snapshot.provider}:{snapshot.model_asked}"
        put = await thinking.do(partial(as_stored, question, judged.prompt))
        if put is None:
            return question, JudgeReply(failure="its stored answer is to a question that this version puts otherwise")
        heard = _heard(judge, judged.completion, judged.attempt_id)
        await self._verdict_cache.tell(job, put, heard, thinking)
        known = (await self._verdict_cache.recall(job, question, judge, thinking)).known
        asked = {question.pairs[position].sha256 for position in put.asked.claims}
        beside = {
            at: known.get(at, FORGOTTEN)
            for at in question.open
            if question.pairs[at].sha256 not in asked and (at in known or at in question.asked.claims)
        }
        return replace(put, known=beside), heard

    async def _ask_for(
        self, job: Leased, question: JudgeRequest, planned: tuple[Provider, Call] | None
    ) -> tuple[JudgeReply, Decimal | None] | None:
        """Ask about what is left, if anything is."""
        if not question.asked.claims:
            return JudgeReply(), Decimal(0)
        call = planned or self._planned(job, question)
        if isinstance(call, JudgeReply):
            return call, Decimal(0)
        if (gone := _used_up(job)) is not None:
            return JudgeReply(failure=gone), Decimal(0)
        return await self._ask_now(job, *call)

    async def _ask_now(self, job: Leased, provider: Provider, call: Call) -> tuple[JudgeReply, Decimal | None] | None:
        permit = await self.limits.permit(job, call)
        if isinstance(permit, Denied):
            return await self._not_now(job, permit)
        attempt = new_attempt(job, call, Purpose.JUDGE, job.attempts + 1)
        status = await opened(self.journal, self.limits, permit, job, attempt)
        if status is not Opened.OPENED:
            await self._not_opened(job, status)
            return None
        return await self._call(job, provider, call, attempt, permit)

    def _planned(self, job: Leased, question: JudgeRequest) -> tuple[Provider, Call] | JudgeReply:
        """The call to make, or why none can be made."""
        named = job.request.config.judge or self.options.judge
        if named is None:
            return NO_JUDGE
        turn = Turn.parse(named)
        try:
            provider = self.providers.get(turn.provider)
            call = provider.plan(self._request(job.request, turn, question), question.prompt)
        except (ConfigurationError, ProviderError) as error:
            return JudgeReply(failure=str(error))
        if call.reserve_usd is None and job.max_cost_usd is not None:
            return JudgeReply(failure=UNPRICED.format(call.model, call.provider))
        return provider, call

    def _request(self, request: JobRequest, turn: Turn, question: JudgeRequest) -> JobRequest:
        """The request as a judge's provider is to plan it: nothing of how the answer was to be written."""
        # A probability is a token at most; nothing else is written.
        written = len(question.prompt.snapshot.questions) or self.options.max_tokens
        config = GenerationConfig(
            provider=turn.provider,
            model=turn.model,
            lane=Lane.STANDARD,
            max_tokens=written,
            timeout_s=self.options.timeout_s,
            max_attempts=request.config.max_attempts,
        )
        return request.model_copy(update={"config": config})

    async def _not_now(self, job: Leased, told: Denied) -> tuple[JudgeReply, Decimal | None] | None:
        """Wait where the limits let no call through now; a lane without quota is not waited for."""
        if told.why is DenyReason.LANE_PAUSED:
            return JudgeReply(failure="no calls are made to its provider: the lane is paused"), Decimal(0)
        event = None if told.why is DenyReason.LIMIT else told.why.value
        then = Advance(JobState.SCHEDULED, job.step, job.round, told.delay, event=event, limited=True)
        await self.ledger.defer(LeaseKey(job.job_id, job.token), then)
        return None

    async def _not_opened(self, job: Leased, status: Opened) -> None:
        if status is Opened.ANSWERED:
            # An earlier call's answer came after all: the next lease brings it.
            await self.ledger.defer(LeaseKey(job.job_id, job.token), Advance(JobState.SCHEDULED, job.step, job.round))
        # LOST: someone else has the job now. HELD: it waits for money.

    async def _call(
        self, job: Leased, provider: Provider, call: Call, attempt: NewAttempt, permit: Permit
    ) -> tuple[JudgeReply, Decimal | None] | None:
        started = monotonic()
        try:
            answered = await answer_within(provider.call(call), call.timeout_s + OVERTIME_S)
        except asyncio.CancelledError:
            self.limits.failed(permit, Failure(kind=FailureKind.CANCELLED, message="cut off"))
            await asyncio.shield(self.journal.close_attempt(cut_off(job, attempt)))
            raise
        except Exception as error:
            failure = failure_of(error, attempt=attempt.number)
            if failure.kind is FailureKind.INTERNAL:
                log.exception("the judge's call of job %s to %s broke", job.job_id, call.provider)
            self.limits.failed(permit, failure)
            return await self._failed(job, attempt, failure, started)
        self.limits.answered(permit, answered.completion)
        cost = answered.completion.cost_usd
        if not await finish_first(self._close(job, call, attempt, answered, started)):
            return JudgeReply(failure="its answer can't be stored"), cost
        return _heard(_name(call), answered.completion, attempt.id), cost

    async def _failed(
        self, job: Leased, attempt: NewAttempt, failure: Failure, started: float
    ) -> tuple[JudgeReply, Decimal | None] | None:
        decision = decide(
            failure,
            spent=job.spent,
            snoozes=job.snoozes,
            max_attempts=job.request.config.max_attempts,
            more_providers=False,
            policy=self.policy,
            jitter=self.jitter(),
        )
        # A lane without quota would hold the answer: better a check without its judge, which can be repeated.
        waits = failure.kind not in REFUSED_LANE and (
            not isinstance(decision, Hold) or decision.reason is HeldReason.UNKNOWN_OUTCOME
        )
        then = advance_of(decision, job) if waits else None
        done = closed(
            job,
            attempt,
            outcome_of(failure),
            spent=not isinstance(decision, Snooze | Hold),
            failure=failure,
            cost_usd=cost_of(failure, attempt),
            timing_ms=_took(started),
            then=then,
        )
        await self.journal.close_attempt(done)
        if then is not None:
            return None
        cost = attempt.reserved_usd if done.outcome == "unknown" else done.cost_usd
        return JudgeReply(failure=f"its call failed: {failure.message}"), cost

    async def _close(self, job: Leased, call: Call, attempt: NewAttempt, answered: Answered, started: float) -> bool:
        """Store the answer, the job staying in its check; False if it can't be stored."""
        completion = answered.completion
        answer = StoredAnswer(answered.raw, completion, call.prompt)
        cost_usd = completion.cost_usd
        done = closed(job, attempt, "ok", answer=answer, cost_usd=cost_usd, timing_ms=_took(started))
        try:
            await self.journal.close_attempt(done)
        except Unstorable as error:
            failure = failure_of(error, attempt=attempt.number)
            bare = closed(job, attempt, outcome_of(failure), spent=True, failure=failure, cost_usd=cost_usd)
            await self.journal.close_attempt(bare)
            return False
        return True


def _took(started: float) -> dict[str, float]:
    return {"judge": round((monotonic() - started) * 1000, 3)}


def _name(call: Call) -> str:
    return f"{call.provider}:{call.model}"


def _used_up(job: Leased) -> str | None:
    """Why no further call is made; None: one may be."""
    if job.spent >= job.request.config.max_attempts or job.unknown >= MAX_UNKNOWN:
        return f"{job.spent} of its calls failed and {job.unknown} ended unknown; no more are allowed"
    return None


def _heard(judge: str, completion: Completion, attempt_id: UUID) -> JudgeReply:
    if completion.finish_reason in NO_REPLY:
        why = completion.refusal or completion.finish_reason.value
        return JudgeReply(judge, failure=f"the judge refused: {why}")
    return JudgeReply(judge, completion.text, attempt_id=attempt_id)
