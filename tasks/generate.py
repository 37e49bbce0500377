"""Writes the answer of one job: prompt, attempt, provider call, completion; each paid call recorded before it is made."""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any

from celery import shared_task

from schemas.failure import Failure, FailureKind
from schemas.prompt import Prompt
from schemas.record import Quality, TimingMs
from schemas.states import JobState, Outcome, Step
from tasks.calls.attempts import MAX_UNKNOWN, OVERTIME_S, failure_of, new_attempt, opened
from tasks.calls.cancelling import answer_within, finish_first
from tasks.calls.closing import advance_of, closed, cost_of, cut_off, not_now, outcome_of, spent_of
from tasks.calls.fallback_chain import FallbackChain, Planned
from tasks.calls.response_cache import NOBODY, SharePolicy, look_again, wanted
from tasks.calls.retry import Fail, Fallback, Hold, RetryPolicy, Snooze, decide
from tasks.errors import ConfigurationError, InputError, LedgerError, ProviderError, ServiceUnavailable, Unstorable
from tasks.poll import job_ids as read_ids
from tasks.ports import (
    MAX_RESCUES,
    Advance,
    Answered,
    CacheStatus,
    Call,
    ClosedAttempt,
    Denied,
    DenyReason,
    FinalJob,
    Journal,
    Leased,
    LeaseKey,
    Ledger,
    Limits,
    Listener,
    NewAttempt,
    Opened,
    Permit,
    Providers,
    Purpose,
    ShareTerms,
    StoredAnswer,
    TokenSink,
    Unheard,
    Unlimited,
    wired,
)
from tasks.prompting.correction import active_correction, give_up
from tasks.prompting.experiments import Variants
from tasks.results import Findings, completed, failed, fallback_text, total_ms
from tasks.scheduling.rescue import worker_lost

log = logging.getLogger(__name__)

BIG_REQUEST_BYTES = 200_000
"""From here on a prompt is made off the event loop: of 4 MB of sources it takes 0.13 s and more, in which no call would go on."""

_WORD = re.compile(r"\w")


def ruled_out(job: Leased) -> tuple[Outcome, str] | None:
    """The outcome that needs no call, with its reason: no sources, too few, or too weak. None: go on."""
    config = job.request.config
    sources = [source for source in job.request.context if _WORD.search(source.content)]
    if not sources:
        empty = len(job.request.context)
        return Outcome.NO_EVIDENCE, f"none of {empty} sources holds a word" if empty else "no sources were given"
    if len(sources) < config.min_sources:
        return (
            Outcome.ABSTAINED,
            f"{len(sources)} source(s) with words given, at least {config.min_sources} are asked for",
        )
    scores = [source.relevance_score for source in sources if source.relevance_score is not None]
    if scores and (mean := sum(scores) / len(scores)) < config.min_relevance:
        return Outcome.ABSTAINED, f"the mean relevance of the sources is {mean:.2f}, below {config.min_relevance:.2f}"
    return None


@dataclass(slots=True)
class Stopwatch:
    """What a generation spent its time on, in milliseconds; ``since`` is the lease, by the monotonic clock."""

    since: float = field(default_factory=monotonic)
    prompt: float = 0.0
    llm: float = 0.0
    limiter_wait: float = 0.0

    def planned(self, ms: float) -> None:
        """Add what it took to render a prompt and to make a call of it."""
        self.prompt += ms

    def stored(self, job: Leased) -> dict[str, float]:
        """What the check step will need to complete the job's timings."""
        retry_wait = job.first_opened_ago_ms or 0.0
        return {
            "queue": round(job.waited_ms, 3),
            "prompt": round(self.prompt, 3),
            "llm": round(self.llm, 3),
            "retry_wait": round(retry_wait, 3),
            "limiter_wait": round(job.limited_ms + self.limiter_wait, 3),
        }

    def timing(self, job: Leased) -> TimingMs:
        """The timings of a job that ends in this step."""
        return total_ms(job, monotonic() - self.since, TimingMs(**self.stored(job)))


@dataclass(slots=True)
class Generate:
    """The generate step on the event loop; ``run`` takes one leased job as far as this step goes."""

    ledger: Ledger
    journal: Journal
    providers: Providers
    policy: RetryPolicy
    jitter: Callable[[], float]
    to_check: Callable[[Leased], None]
    """Told of each job whose answer is committed: its check can be hinted."""
    final: Callable[[Leased, FinalJob], None]
    """Told of each job that became final here: its result can be published."""
    tokens: TokenSink = field(default_factory=Unheard)
    """Told of each streamed call and its text."""
    limits: Limits = field(default_factory=Unlimited)
    """Asked before each call."""
    shares: Variants = field(default_factory=dict)
    """Of the prompt versions that are tried."""
    sharing: SharePolicy = NOBODY
    """Whose calls share their answers."""
    cpu: Executor | None = None
    """Where the prompts of big requests are made; None: a thread of the loop's own."""
    max_rescues: int = MAX_RESCUES
    """Lost workers after which a job is not tried again."""

    async def run(self, job: Leased) -> None:
        """Take a job through the step. Every failure ends in the ledger; only cancellation and an unreachable ledger leave it."""
        watch = Stopwatch()
        try:
            if job.stored is not None:
                # An earlier call's answer arrived after all: nothing more is paid for.
                await self._move(job, Advance(JobState.SCHEDULED, job.request.config.check_step, job.round))
                return
            ruling = ruled_out(job)
            if job.rescues > self.max_rescues:
                await self._fail(job, worker_lost(job), watch)
            elif ruling is not None:
                await self._finish(job, _uncalled(job, *ruling, watch.timing(job)))
            elif job.unknown >= MAX_UNKNOWN:
                await self._fail(job, spent_of(job), watch)
            else:
                await self._call_in_turn(job, watch)
        except (ConfigurationError, InputError, ProviderError, Unstorable) as error:
            await self._fail(job, failure_of(error), watch)
        except (ServiceUnavailable, LedgerError):
            # No fault of the job's: its lease runs out, and the rescue hands it on with all that is stored.
            raise
        except Exception as error:
            log.exception("job %s broke in generate", job.job_id)
            await self._fail(job, failure_of(error), watch)

    async def _call_in_turn(self, job: Leased, watch: Stopwatch) -> None:
        """Call the configured provider and then its fallbacks, until one answers or the job is to wait or fail."""
        turns = FallbackChain(job, self.providers, watch.planned, self.shares)
        if turns.spent:
            await self._fail(job, spent_of(job), watch)
            return
        if job.request_bytes >= BIG_REQUEST_BYTES:
            await asyncio.get_running_loop().run_in_executor(self.cpu, turns.more)
        more, called = True, False
        while more:
            planned = turns.take()
            share = self.sharing.terms(job, planned.call)
            if share is not None and turns.taken > 1:
                # To wait would be to begin with the first provider again.
                share = replace(share, wait=timedelta(0))
            if share is not None and await self._shared(job, planned, share, watch, turns):
                return
            permit = await self.limits.permit(job, planned.call)
            if isinstance(permit, Denied):
                # A busy provider is waited for; one that is down or has no quota left is passed over.
                if permit.why is not DenyReason.LIMIT and turns.more():
                    turns.passed_over(planned, permit.why.value)
                    continue
                await self._move(job, not_now(job, permit, called=called))
                return
            watch.limiter_wait += permit.waited_ms
            purpose = Purpose(again.purpose) if (again := active_correction(job)) else Purpose.GENERATE
            attempt = new_attempt(job, planned.call, purpose, job.attempts + turns.taken, share)
            status = await opened(self.journal, self.limits, permit, job, attempt)
            if status is not Opened.OPENED:
                await self._not_opened(job, status)
                return
            called = True
            more = await self._answer(job, planned, attempt, watch, turns, permit=permit)

    async def _shared(
        self, job: Leased, planned: Planned, share: ShareTerms, watch: Stopwatch, turns: FallbackChain
    ) -> bool:
        """Whether no call is made now: the answer of an identical one was taken, or is waited for."""
        if not (share.within or share.wait):
            return False
        attempt = new_attempt(job, planned.call, Purpose.GENERATE, job.attempts + turns.taken, share)
        look = wanted(job, planned.call, attempt, asked_before=tuple(turns.asked), timing_ms=watch.stored(job))
        found = await self.journal.share(look)
        match found.sharing:
            case CacheStatus.TAKEN:
                self.to_check(job)
            case CacheStatus.UNDER_WAY:
                await self._move(job, look_again(job, found.open_for, self.jitter()))
            case CacheStatus.NONE | CacheStatus.LOST:
                # If lost, someone else has the job now.
                return found.sharing is CacheStatus.LOST
        return True

    async def _not_opened(self, job: Leased, status: Opened) -> None:
        if status is Opened.ANSWERED:
            await self._move(job, Advance(JobState.SCHEDULED, job.request.config.check_step, job.round))
        elif status is Opened.DUPLICATE:
            await self._move(job, look_again(job, timedelta(0), self.jitter()))
        elif status is Opened.OVER_BUDGET:
            # There is an answer already: what money comes back is for jobs without one.
            await self._move(job, give_up(job, "the batch's budget was used up"))
        # LOST: someone else has the job now. HELD: it waits for money.

    async def _answer(
        self,
        job: Leased,
        planned: Planned,
        attempt: NewAttempt,
        watch: Stopwatch,
        turns: FallbackChain,
        *,
        permit: Permit,
    ) -> bool:
        """Make one call and close its attempt; True if the next provider is to be called."""
        call = planned.call
        started = monotonic()
        listener = self._listener(job, call, attempt)
        try:
            calling = planned.provider.call(call, listener)
            answered = turns.credited(await answer_within(calling, call.timeout_s + OVERTIME_S))
        except asyncio.CancelledError:
            # Lease lost or process stopping: the request may have been served, so the outcome is unknown.
            self.limits.failed(permit, Failure(kind=FailureKind.CANCELLED, message="cut off"))
            await asyncio.shield(self._close_broken(cut_off(job, attempt), self._broken(call, attempt, listener)))
            raise
        except Exception as error:
            failure = failure_of(error, attempt=attempt.number)
            if failure.kind is FailureKind.INTERNAL:
                log.exception("call of job %s to %s broke", job.job_id, call.provider)
            watch.llm = (monotonic() - started) * 1000
            turns.failed(planned, failure)
            paused = self.limits.failed(permit, failure)
            left = self._broken(call, attempt, listener)
            return await self._call_failed(job, attempt, failure, watch, turns, left=left, lane_paused=paused)
        watch.llm = (monotonic() - started) * 1000
        self.limits.answered(permit, answered.completion)
        if listener is not None:
            self.tokens.end(attempt.id, whole=True)
        await finish_first(self._keep(job, call.prompt, attempt, answered, watch))
        return False

    async def _keep(
        self, job: Leased, prompt: Prompt, attempt: NewAttempt, answered: Answered, watch: Stopwatch
    ) -> None:
        if await self._close_answered(job, prompt, attempt, answered, watch):
            self.to_check(job)

    def _listener(self, job: Leased, call: Call, attempt: NewAttempt) -> Listener | None:
        if not call.stream:
            return None
        self.tokens.start(job, attempt)
        return Listener(partial(self.tokens.text, attempt.id))

    def _broken(self, call: Call, attempt: NewAttempt, listener: Listener | None) -> StoredAnswer | None:
        """What a call that failed brought all the same: the part of its stream that came."""
        if listener is None:
            return None
        self.tokens.end(attempt.id, whole=False)
        came = listener.so_far()
        return None if came is None else StoredAnswer(came.raw, came.completion, call.prompt)

    async def _close_broken(self, done: ClosedAttempt, left: StoredAnswer | None) -> None:
        try:
            await self.journal.close_attempt(replace(done, answer=left))
        except Unstorable as error:
            if left is None:
                raise
            log.warning("what a broken stream of job %s left can't be kept: %s", done.job_id, error)
            await self.journal.close_attempt(done)

    async def _close_answered(
        self, job: Leased, prompt: Prompt, attempt: NewAttempt, answered: Answered, watch: Stopwatch
    ) -> bool:
        then = Advance(JobState.AVAILABLE, job.request.config.check_step, job.round)
        done = closed(
            job,
            attempt,
            "ok",
            answer=StoredAnswer(answered.raw, answered.completion, prompt),
            cost_usd=answered.completion.cost_usd,
            timing_ms=watch.stored(job),
            then=then,
        )
        try:
            return await self.journal.close_attempt(done)
        except Unstorable as error:
            # The answer can't be kept, but it was paid for: the attempt says so, and the job fails alone.
            failure = failure_of(error, attempt=attempt.number)
            cost_usd = answered.completion.cost_usd
            bare = closed(job, attempt, outcome_of(failure), spent=True, failure=failure, cost_usd=cost_usd)
            await self.journal.close_attempt(bare)
            await self._fail(job, failure, watch)
            return False

    async def _call_failed(
        self,
        job: Leased,
        attempt: NewAttempt,
        failure: Failure,
        watch: Stopwatch,
        turns: FallbackChain,
        *,
        left: StoredAnswer | None,
        lane_paused: bool,
    ) -> bool:
        config = job.request.config
        decision = decide(
            failure,
            spent=job.spent,
            snoozes=job.snoozes,
            max_attempts=config.max_attempts,
            more_providers=turns.more(),
            policy=self.policy,
            jitter=self.jitter(),
            lane_paused=lane_paused,
        )
        if isinstance(decision, Hold) and job.round:
            # There is an answer already: nobody has to decide about a second one.
            decision = Fail(failure)
        done = closed(
            job,
            attempt,
            outcome_of(failure),
            spent=not isinstance(decision, Snooze | Hold),
            failure=failure,
            cost_usd=cost_of(failure, attempt),
            timing_ms=watch.stored(job),
            then=advance_of(decision, job),
        )
        await self._close_broken(done, left)
        if isinstance(decision, Fail):
            await self._fail(job, turns.with_unusable(decision.failure), watch)
        return isinstance(decision, Fallback)

    async def _move(self, job: Leased, advance: Advance) -> None:
        await self.ledger.defer(LeaseKey(job.job_id, job.token), advance)

    async def _fail(self, job: Leased, failure: Failure, watch: Stopwatch) -> None:
        """The end of the job; of a second round only: the first answer was paid for, and is finished instead."""
        if job.round:
            await self._move(job, give_up(job, f"the call failed: {failure.message}"))
        else:
            await self._finish(job, failed(job, failure, watch.timing(job)))

    async def _finish(self, job: Leased, final: FinalJob) -> None:
        if await self.journal.finish(final):
            self.final(job, final)


def _uncalled(job: Leased, outcome: Outcome, reason: str, timing: TimingMs) -> FinalJob:
    kind = "no_evidence" if outcome is Outcome.NO_EVIDENCE else "abstained"
    quality = Quality(sufficient_context=False, reasoning=f"No call was made: {reason}.", abstain_reason=reason)
    return completed(job, outcome, Findings(answer=fallback_text(job, kind), quality=quality), timing)


@shared_task(name="nightdesk.generate", ignore_result=True, acks_late=False)
def generate_task(job_ids: Sequence[Any], urgent: bool = False) -> None:  # noqa: FBT001, FBT002 - a JSON argument
    """Admit the jobs of a hint to the process's loop; returns when they are admitted, not when they are done."""
    wired().admit(Step.GENERATE, read_ids(job_ids), urgent=urgent)
