"""Writes the answer of one job: prompt, paid call, stored completion."""

import asyncio
import logging
import re
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from time import monotonic

from schemas.failure import Failure, FailureKind
from schemas.generation import WINDOWS, Lane
from schemas.job import JobRequest
from schemas.model_call import Prompt
from schemas.record import Quality, TimingMs
from schemas.states import HeldReason, JobState, Outcome
from tasks.answers.texts import fallback
from tasks.calls.experiments import Variants, with_variant
from tasks.calls.paid_call import (
    MAX_UNKNOWN,
    BrokenCall,
    OpenCall,
    PaidCalls,
    PlannedCall,
    finish_first,
    new_attempt,
    plan_call,
    with_way,
)
from tasks.calls.response_cache import NO_SHARING, SharePolicy, cache_lookup, wait_for_duplicate
from tasks.calls.retry import Fail, Fallback, Hold, advance_of
from tasks.defaults import MAX_RESCUES
from tasks.errors import (
    ConfigurationError,
    InputError,
    LedgerError,
    ProviderError,
    ServiceUnavailable,
    Unstorable,
    failure_of,
)
from tasks.lanes.choice import LaneChooser
from tasks.lanes.parking import Parking
from tasks.policy.asks import after_failure, settle
from tasks.policy.relevance import mean_relevance
from tasks.ports import (
    Advance,
    Answered,
    CacheStatus,
    Denied,
    DenyReason,
    FinalJob,
    Journal,
    Leased,
    LeaseKey,
    Opened,
    Provider,
    Providers,
    Purpose,
    Queue,
    ShareTerms,
    Turn,
)
from tasks.prompting.messages import render, stored_prompt, with_correction
from tasks.prompting.sources.pack import MANY_SOURCES
from tasks.results import Findings, completed, failed, total_ms, worker_lost

# ---- the providers of a job ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FallbackChain:
    """The providers of one job at one lease, in their order.

    Args:
        job: the job.
        providers: all providers of this process.
        add_plan_ms: gets the milliseconds that each plan took.
        variants: the prompt versions of experiments.
        lanes: chooses the lane of a job that leaves it open; None: it is called at once.
    """

    job: Leased
    providers: Providers
    add_plan_ms: Callable[[float], None]
    variants: Variants = field(default_factory=dict)
    lanes: LaneChooser | None = None
    misses: list[str] = field(default_factory=list)
    """``provider: reason`` of each provider without an answer, in order."""
    calls: int = 0
    """Number of calls so far."""
    _turns: list[Turn] = field(default_factory=list)
    _next: PlannedCall | None = None
    _unusable: list[ConfigurationError | ProviderError] = field(default_factory=list)
    _without: set[Lane] = field(default_factory=set)
    """Lanes that took no call of a job that leaves its lane open."""

    def __post_init__(self) -> None:
        turns = self.providers.turns(self.job.request.config, self.job.level)
        if self.job.replay is not None:
            # Asked again to compare models and prompts: the answer of another model would be beside the question.
            turns = turns[:1]
        # Each turn is good for one spent attempt beyond those that the first may spend.
        done = max(0, self.job.spent - self.job.request.config.max_attempts + 1)
        self._turns = list(turns[done:])

    @property
    def spent(self) -> bool:
        """True when every provider failed as often as allowed."""
        return not self._turns and self._next is None

    def more(self) -> bool:
        """True if another provider can be called; plans its call, so that an unusable provider does not count."""
        while self._next is None and self._turns:
            turn = self._turns.pop(0)
            try:
                self._next = self._plan(turn)
            except (ConfigurationError, ProviderError) as error:
                kind = error.kind if isinstance(error, ProviderError) else FailureKind.CONFIGURATION
                self.misses.append(f"{turn.provider}: {kind.value}")
                self._unusable.append(error)
        return self._next is not None

    def take(self) -> PlannedCall:
        """The next call to make. Without one, raises the first provider's error together with those of the others."""
        if not self.more():
            raise self._error()
        plan, self._next = self._next, None
        assert plan is not None
        self.calls += 1
        return plan

    def add_failure(self, plan: PlannedCall, failure: Failure) -> None:
        """Notes a failed call."""
        self.misses.append(f"{plan.provider.name}: {failure.kind.value}")

    def pass_over(self, plan: PlannedCall, why: DenyReason) -> bool:
        """Leaves a call that was denied; True if another one is to be made in its place.

        A busy provider is waited for; one that is down or has no quota left is passed over.
        """
        in_other_lane = why is DenyReason.LANE_PAUSED and self.leave_lane(plan)
        if not in_other_lane and (why is DenyReason.LIMIT or not self.more()):
            return False
        self.calls -= 1
        if not in_other_lane:
            self.misses.append(f"{plan.provider.name}: {why.value}")
        return True

    def with_unusable(self, failure: Failure) -> Failure:
        """The final failure of the job, which names the unusable providers."""
        message = "; ".join((failure.message, *map(str, self._unusable)))
        return failure.model_copy(update={"message": message})

    def leave_lane(self, plan: PlannedCall) -> bool:
        """Leaves the lane of a call for another one; False where the job asks for this lane alone."""
        if self.lanes is None or plan.lane_reason is None or plan.call.lane == Lane.STANDARD:
            return False
        self._without.add(Lane(plan.call.lane))
        self._turns.insert(0, Turn(plan.call.provider, plan.call.model))
        return True

    def leave_background(self, plan: PlannedCall, broken: BrokenCall) -> bool:
        """Leaves the background lane, if the provider refused to take this response in it; True if another lane is asked instead."""
        if plan.call.lane not in WINDOWS or not (broken.lane_paused or broken.failure.kind in _NOT_IN_BACKGROUND):
            return False
        if self.lanes is not None and "background" in broken.failure.message:
            self.lanes.refuse(plan.call.provider, plan.call.model, Lane(plan.call.lane))
        return self.leave_lane(plan)

    def _plan(self, turn: Turn) -> PlannedCall:
        provider = self.providers.get(turn.provider)
        request = _request_of(self.job.request, turn)
        lane_reason = None
        if request.config.lane is Lane.AUTO:
            lane, lane_reason = Lane.STANDARD, "no calls are made in cheaper lanes now"
            if self.lanes is not None:
                choice = self.lanes.choose(self.job, provider.name, provider.model_of(request.config), self._without)
                lane, lane_reason = choice.lane, choice.reason
            request = request.model_copy(update={"config": request.config.model_copy(update={"lane": lane})})
        if self.variants:
            request = with_variant(request, self.job.job_id, self.variants)
        started = monotonic()
        prompt = self._prompt(request, provider)
        if correction := self.job.active_correction:
            prompt = with_correction(prompt, request, correction)
        plan = plan_call(self.job, provider, request, prompt)
        self.add_plan_ms((monotonic() - started) * 1000)
        return plan if lane_reason is None else replace(plan, lane_reason=lane_reason)

    def _prompt(self, request: JobRequest, provider: Provider) -> Prompt:
        """Renders the request; of a replay takes the messages as they are stored."""
        protocol = provider.protocol(request.config)
        if self.job.replay is not None and self.job.replay.prompt is not None:
            return stored_prompt(request, self.job.replay.prompt)
        return render(request, protocol, provider.model_of(request.config))

    def _error(self) -> ConfigurationError | ProviderError:
        first, *rest = self._unusable
        if not rest:
            return first
        message = "; ".join(map(str, self._unusable))
        return ProviderError(first.kind, message) if isinstance(first, ProviderError) else ConfigurationError(message)


_NOT_IN_BACKGROUND = frozenset(
    {
        FailureKind.INVALID_REQUEST,
        FailureKind.CONFIGURATION,
        FailureKind.NOT_FOUND,
        FailureKind.PERMISSION,
        FailureKind.PARAMETER,
    }
)
"""Failures by which a provider may say that it has no background for this model or account."""


def _request_of(request: JobRequest, turn: Turn) -> JobRequest:
    """The request as a turn's provider gets it: a model is one of its own provider."""
    if turn.model == request.config.model:
        return request
    return request.model_copy(update={"config": request.config.model_copy(update={"model": turn.model})})


# ---- the step --------------------------------------------------------------------------------------------------------


log = logging.getLogger(__name__)

BIG_REQUEST_BYTES = 200_000
"""From here on a prompt is made off the event loop: of 4 MB of sources it takes 0.13 s and more, in which no call would go on.

So is that of more than a hundred short sources: of 2,000 it takes 50 ms.
"""

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
    mean = mean_relevance(job.request)
    if mean is not None and mean < config.min_relevance:
        return Outcome.ABSTAINED, f"the mean relevance of the sources is {mean:.2f}, below {config.min_relevance:.2f}"
    return None


@dataclass(slots=True)
class Stopwatch:
    """The times of a generation in milliseconds; ``since`` is the lease, by the monotonic clock."""

    since: float = field(default_factory=monotonic)
    prompt: float = 0.0
    llm: float = 0.0
    limiter_wait: float = 0.0

    def add_plan(self, ms: float) -> None:
        """Adds the time for a prompt and the call made of it."""
        self.prompt += ms

    def stored(self, job: Leased) -> dict[str, float]:
        """The part of the job's timings that the check step completes."""
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
        return total_ms(job, monotonic() - self.since, self.stored(job))


@dataclass(slots=True)
class Generate:
    """The generate step on the event loop; ``run`` takes one leased job as far as this step goes."""

    queue: Queue
    journal: Journal
    calls: PaidCalls
    providers: Providers
    to_check: Callable[[Leased], None]
    """Gets each job with a committed answer, to hint its check."""
    variants: Variants = field(default_factory=dict)
    """Prompt versions of experiments."""
    sharing: SharePolicy = NO_SHARING
    """Tenants whose calls share their answers."""
    cpu: Executor | None = None
    """Executor for the prompts of big requests; None: a thread of the loop's own."""
    max_rescues: int = MAX_RESCUES
    """Lost workers after which a job is not tried again."""
    parking: Parking | None = None
    """Parks calls that are answered later; None: this process serves the lane ``standard`` alone."""
    lanes: LaneChooser | None = None
    """Chooses the lane of jobs that leave it open; None: they are called at once."""
    free_slot: Callable[[], AbstractContextManager[None]] = nullcontext
    """Frees the slot of the running job while its answer is stored: the call is over."""

    async def run(self, job: Leased) -> None:
        """Takes a job through the step.

        Every failure ends in the ledger; only cancellation and an unreachable ledger leave it.
        """
        watch = Stopwatch()
        try:
            if job.stored is not None:
                # An earlier call's answer arrived after all: nothing more is paid for.
                await self._to_stored_answer(job)
            elif job.rescues > self.max_rescues:
                await self._fail(job, worker_lost(job), watch)
            elif (ruling := ruled_out(job)) is not None:
                await self.journal.finish(_uncalled(job, *ruling, watch.timing(job)))
            elif job.unknown >= MAX_UNKNOWN:
                await self._fail(job, _attempts_spent(job), watch)
            else:
                await self._answer(job, watch)
        except (ConfigurationError, InputError, ProviderError, Unstorable) as error:
            failure = failure_of(error)
            if failure.kind is FailureKind.BUDGET and not job.round:
                # A ceiling or budget was set after the job was accepted: it makes no call while that is kept.
                hold = Advance(
                    JobState.SCHEDULED, job.step, job.round, held_reason=HeldReason.PRICE_UNKNOWN, event="hold"
                )
                await self._move(job, hold)
            else:
                await self._fail(job, failure, watch)
        except (ServiceUnavailable, LedgerError):
            # No fault of the job's: its lease runs out, and the rescue hands it on with all that is stored.
            raise
        except Exception as error:
            log.exception("job %s broke in generate", job.job_id)
            await self._fail(job, failure_of(error), watch)

    async def _answer(self, job: Leased, watch: Stopwatch) -> None:
        """Calls the configured provider and then its fallbacks, until one answers or the job is to wait or fail."""
        chain = FallbackChain(job, self.providers, watch.add_plan, self.variants, self.lanes)
        if job.request.config.lane is Lane.AUTO and self.lanes is not None:
            await self.lanes.refresh(job.request.config, job.level)
        if chain.spent:
            await self._fail(job, _attempts_spent(job), watch)
            return
        if job.request_bytes >= BIG_REQUEST_BYTES or len(job.request.context) > MANY_SOURCES:
            await asyncio.get_running_loop().run_in_executor(self.cpu, chain.more)
        more, called = True, False
        while more:
            plan = chain.take()
            self._require_lane(plan)
            share = self.sharing.terms(job, plan.call) if self.sharing.tenants else None
            if share is not None and (chain.calls > 1 or plan.call.lane != Lane.STANDARD):
                # To wait would be to begin with the first provider again, or to keep a call out of its batch.
                share = replace(share, wait=timedelta(0))
            if share is not None and await self._share(job, plan, share, watch, chain):
                return
            purpose = Purpose(job.active_correction.purpose) if job.active_correction else Purpose.GENERATE
            paid = await self.calls.open(job, plan, purpose, job.attempts + chain.calls, share)
            if isinstance(paid, Denied):
                if chain.pass_over(plan, paid.why):
                    continue
                await self._move(job, _wait_for_permit(job, paid, called=called))
                return
            if isinstance(paid, Opened):
                await self._leave(job, paid)
                return
            called = True
            watch.limiter_wait += paid.permit.waited_ms
            more = await self._call(paid, watch, chain)

    def _require_lane(self, plan: PlannedCall) -> None:
        """Raises ``ConfigurationError`` for a call in a lane that is not served."""
        if plan.call.lane != Lane.STANDARD and self.parking is None:
            raise ConfigurationError(f"this process does not serve the lane {plan.call.lane!r}: use 'standard'")

    async def _park(self, paid: OpenCall, watch: Stopwatch, chain: FallbackChain, remote_id: str | None = None) -> None:
        """Makes the job wait for a batch, or for a response with this id."""
        assert self.parking is not None
        await finish_first(self.parking.park(paid, watch.stored(paid.job), tuple(chain.misses), remote_id))

    async def _share(
        self, job: Leased, plan: PlannedCall, share: ShareTerms, watch: Stopwatch, chain: FallbackChain
    ) -> bool:
        """True if no call is made now: the answer of an identical call was taken, or is waited for."""
        if not (share.within or share.wait):
            return False
        attempt = new_attempt(job, plan.call, Purpose.GENERATE, job.attempts + chain.calls, share)
        timing_ms, misses = watch.stored(job), tuple(chain.misses)
        cached = await self.journal.share(
            cache_lookup(job, plan.call, attempt, fallback_from=misses, timing_ms=timing_ms)
        )
        match cached.status:
            case CacheStatus.REUSED:
                self.to_check(job)
            case CacheStatus.UNDER_WAY:
                await self._move(job, wait_for_duplicate(job, cached.open_for, self.calls.jitter()))
            case CacheStatus.NONE | CacheStatus.LOST:
                # If lost, another worker has the job now.
                return cached.status is CacheStatus.LOST
        return True

    async def _leave(self, job: Leased, status: Opened) -> None:
        """Leaves a job whose attempt was not opened. LOST: another worker has it; ON_HOLD: it waits for money."""
        if status is Opened.ANSWERED:
            await self._to_stored_answer(job)
        elif status is Opened.DUPLICATE:
            await self._move(job, wait_for_duplicate(job, timedelta(0), self.calls.jitter()))
        elif status is Opened.OVER_BUDGET:
            # There is an answer already: what money comes back is for jobs without one.
            await self._move(job, settle(job, "the batch's budget was used up"))

    async def _call(self, paid: OpenCall, watch: Stopwatch, chain: FallbackChain) -> bool:
        """Makes one call and stores its answer, or parks it; True if the next provider is to be called."""
        if paid.plan.call.lane == Lane.PROVIDER_BATCH:
            self.calls.limits.unused(paid.permit)
            await self._park(paid, watch, chain)
            return False
        answer = await self.calls.make(paid)
        watch.llm = paid.ms
        if isinstance(answer, BrokenCall):
            chain.add_failure(paid.plan, answer.failure)
            return await self._store_failure(paid, answer, watch, chain)
        if answer.remote_id is not None:
            await self._park(paid, watch, chain, answer.remote_id)
            return False
        answer = with_way(answer, chain.misses, paid.plan.lane_reason)
        with self.free_slot():
            await finish_first(self._store(paid, answer, watch))
        return False

    async def _store(self, paid: OpenCall, answer: Answered, watch: Stopwatch) -> None:
        """Stores an answer and moves the job on to its check."""
        job = paid.job
        then = Advance(JobState.AVAILABLE, job.request.config.check_step, job.round)
        close = await self.calls.close_answered(paid, answer, watch.stored(job), then)
        if close.failure is not None:
            await self._fail(job, close.failure, watch)
        elif close.advanced:
            self.to_check(job)

    async def _store_failure(self, paid: OpenCall, broken: BrokenCall, watch: Stopwatch, chain: FallbackChain) -> bool:
        """Stores a failure; True if the next provider is to be called."""
        job = paid.job
        other_lane = chain.leave_background(paid.plan, broken)
        decision = Fallback() if other_lane else self.calls.decide(job, broken, more_providers=chain.more())
        if isinstance(decision, Hold) and job.round:
            # There is an answer already: no person has to decide about a second one.
            decision = Fail(broken.failure)
        await self.calls.close_broken(paid, broken, decision, watch.stored(job), advance_of(decision, job))
        if isinstance(decision, Fail):
            await self._fail(job, chain.with_unusable(decision.failure), watch)
        return isinstance(decision, Fallback)

    async def _to_stored_answer(self, job: Leased) -> None:
        await self._move(job, Advance(JobState.SCHEDULED, job.request.config.check_step, job.round))

    async def _move(self, job: Leased, advance: Advance) -> None:
        await self.queue.defer(LeaseKey(job.job_id, job.token), advance)

    async def _fail(self, job: Leased, failure: Failure, watch: Stopwatch) -> None:
        await end_failed(job, failure, watch.timing(job), self.queue, self.journal)


async def end_failed(job: Leased, failure: Failure, timing: TimingMs, queue: Queue, journal: Journal) -> None:
    """Ends a job; of a later round only the round: the next model is asked, or the best answer is finished."""
    if job.round:
        then = after_failure(job, f"the call failed: {failure.message}")
        await queue.defer(LeaseKey(job.job_id, job.token), then)
    else:
        await journal.finish(failed(job, failure, timing))


def _uncalled(job: Leased, outcome: Outcome, reason: str, timing: TimingMs) -> FinalJob:
    kind = "no_evidence" if outcome is Outcome.NO_EVIDENCE else "abstained"
    quality = Quality(sufficient_context=False, reasoning=f"No call was made: {reason}.", abstain_reason=reason)
    return completed(job, outcome, Findings(answer=fallback(job.request, kind), quality=quality), timing)


def _attempts_spent(job: Leased) -> Failure:
    message = f"{job.spent} attempts failed and {job.unknown} ended unknown; no more are allowed"
    return Failure(kind=FailureKind.ATTEMPTS_SPENT, message=message)


def _wait_for_permit(job: Leased, denied: Denied, *, called: bool) -> Advance:
    """Sends a job away that may not be called for now; no attempt was made for this, none is spent.

    After its first attempt (``called``) the wait counts as the wait for another attempt.
    """
    held_reason = HeldReason.LANE_PAUSED if denied.why is DenyReason.LANE_PAUSED else None
    if held_reason and job.round:
        # There is an answer already: no operator has to repair a lane for another one.
        return after_failure(job, "no calls were made to the provider: its lane is paused")
    # Sent away by a limit, thousands of jobs come and go: that is the straight path, not an event of each.
    event = None if denied.why is DenyReason.LIMIT else "hold" if held_reason else denied.why.value
    limited = not held_reason and not called and not job.attempts
    return Advance(JobState.SCHEDULED, job.step, job.round, denied.delay, held_reason, event, limited=limited)
