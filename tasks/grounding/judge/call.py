"""Asks the judge about one answer, in one paid call, and caches its verdicts; if that fails, the answer keeps its check."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from uuid import UUID

from schemas.generation import Lane
from schemas.grounding import ReusedFrom
from schemas.job import GenerationConfig
from schemas.model_call import Completion, FinishReason
from schemas.states import HeldReason, JobState
from tasks.calls.paid_call import MAX_UNKNOWN, BrokenCall, OpenCall, PaidCalls, PlannedCall, finish_first, plan_call
from tasks.calls.retry import REFUSED_LANE, Fail, Hold, advance_of
from tasks.errors import ConfigurationError, LedgerError, ProviderError
from tasks.grounding.checkers import ClaimFinding
from tasks.grounding.judge.allowance import DefaultJudge, JudgeTerms
from tasks.grounding.judge.lane import JudgeLane
from tasks.grounding.judge.request import (
    JudgeRequest,
    as_stored,
    cacheable_claims,
    key_of,
    read_pairs,
    with_first,
    without_cached,
)
from tasks.grounding.judge.verdicts import NO_JUDGE, JudgeReply
from tasks.lanes.choice import LaneChoice
from tasks.ports import (
    Advance,
    Answered,
    CachedVerdict,
    CheckExecutor,
    Denied,
    DenyReason,
    Journal,
    Leased,
    LeaseKey,
    NewVerdicts,
    Opened,
    Providers,
    Purpose,
    Queue,
    StoredCompletion,
    VerdictQuery,
)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class VerdictCache:
    """The verdicts of all judges, shared with other processes through the ledger.

    Only a verdict that counts is cached. Where the ledger can't be asked, the cache is empty: then the judge is asked.
    """

    journal: Journal
    _locks: dict[tuple[UUID, bytes], asyncio.Event] = field(default_factory=dict)
    """Set when the call that asks about this key now has its reply, or has none."""

    @asynccontextmanager
    async def locked(self, job: Leased, request: JudgeRequest, judge: str) -> AsyncIterator[None]:
        """Locks the claims of a request for other calls of this process.

        Waits for the calls that hold them now, for each claim once: a verdict that does not come, or does not count, is
        not waited for again. A waiting call holds no lock, so no two wait for each other.
        """
        keys = [(job.batch_id, key) for key in _keys(job, request, judge)]
        waited: set[tuple[UUID, bytes]] = set()
        while busy := [key for key in keys if key in self._locks and key not in waited]:
            waited.update(busy)
            for lock in {self._locks[key] for key in busy}:
                await lock.wait()
        over = asyncio.Event()
        for key in keys:
            self._locks.setdefault(key, over)
        try:
            yield
        finally:
            for key in keys:
                if self._locks.get(key) is over:
                    del self._locks[key]
            over.set()

    async def without_cached(
        self, job: Leased, request: JudgeRequest, judge: str, executor: CheckExecutor
    ) -> JudgeRequest:
        """The request without the claims with a cached verdict of this judge."""
        keys = _keys(job, request, judge)
        if not keys:
            return request
        try:
            cached = await self.journal.find_verdicts(VerdictQuery(job.batch_id, tuple(keys)))
        except LedgerError as error:
            log.warning("cached verdicts for job %s can't be read; the judge is asked: %s", job.job_id, error)
            return request
        if not cached:
            return request
        verdicts = [(keys[key], verdict) for key, verdict in cached.items()]
        return await executor.do(partial(_with_verdicts, request, verdicts), tenant=job.tenant)

    async def store(self, job: Leased, request: JudgeRequest, reply: JudgeReply, executor: CheckExecutor) -> None:
        """Caches the verdicts of a reply; returns when other processes can read them."""
        if reply.reply is None or reply.attempt_id is None:
            return
        keys = {at: key for key, positions in _keys(job, request, reply.judge).items() for at in positions}
        if not keys:
            return
        try:
            numbers = await executor.do(partial(cacheable_claims, request, reply.reply), tenant=job.tenant)
            verdicts = tuple((keys[request.selection.claims[number - 1]], number) for number in numbers)
            if verdicts:
                await self.journal.store_verdicts(NewVerdicts(reply.attempt_id, verdicts))
        except LedgerError as error:
            log.warning("the verdicts of job %s can't be cached; other jobs ask again: %s", job.job_id, error)
        except Exception:
            # The policy: an answer that was paid for is used, whether it is cached or not.
            log.exception("the verdicts of job %s are not cached; other jobs ask again", job.job_id)


def _keys(job: Leased, request: JudgeRequest, judge: str) -> Mapping[bytes, list[int]]:
    """The keys of the open claims without a finding, with their positions; none where nothing is shared."""
    recheck = job.recheck.id if job.recheck is not None else None
    if (job.recheck is not None and recheck is None) or (request.by_default and request.decided):
        # The probabilities of a judge by default may rest on passages that are no part of the pair.
        return {}
    keys: dict[bytes, list[int]] = {}
    for position in request.open:
        if position not in request.cached:
            key = key_of(request.pairs[position].sha256, judge, request.prompt, recheck)
            keys.setdefault(key, []).append(position)
    return keys


def _with_verdicts(request: JudgeRequest, cached: Sequence[tuple[Sequence[int], CachedVerdict]]) -> JudgeRequest:
    """Reads cached replies with the sources of this request; a verdict that does not count here is left out.

    Args:
        request: the request without cached verdicts.
        cached: the positions of equal pairs, with the place of the verdict on them.
    """
    findings = {}
    for positions, verdict in cached:
        (finding,) = read_pairs(request, verdict.reply, {verdict.number: positions[0]}).values()
        if finding.verdict is not None:
            origin = ReusedFrom(job_id=verdict.job_id, attempt_id=verdict.attempt_id, number=verdict.number)
            findings.update(dict.fromkeys(positions, replace(finding, reused_from=origin)))
    return without_cached(request, findings) if findings else request


ERASED = ClaimFinding(reason="the judge's verdict on it for another answer is erased")
"""Finding of a claim that was not asked about because a verdict was cached."""

NO_REPLY = frozenset({FinishReason.REFUSAL, FinishReason.CONTENT_FILTER})

PaidReply = tuple[JudgeReply, Decimal | None]
"""A reply with its cost now; None: the price is unknown."""


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """The judge of jobs that name none, and the bounds of a call."""

    judge: str | None = None
    max_tokens: int = 8_192
    timeout_s: float = 60.0
    default_share: Decimal = Decimal(0)
    """Most that a judge by default adds to the cost of an answer; 0: there is none."""


@dataclass(slots=True)
class Judge:
    """The judge of the check step, on the event loop."""

    queue: Queue
    calls: PaidCalls
    providers: Providers
    options: JudgeOptions = field(default_factory=JudgeOptions)
    lane: JudgeLane | None = None
    """None: every call is made at once."""
    terms: JudgeTerms = field(init=False)
    _verdict_cache: VerdictCache = field(init=False)

    def __post_init__(self) -> None:
        self.terms = JudgeTerms(self.providers, self.options.judge, self.options.default_share)
        self._verdict_cache = VerdictCache(self.calls.journal)

    async def ask(
        self, job: Leased, request: JudgeRequest, executor: CheckExecutor
    ) -> tuple[JudgeRequest, JudgeReply, Decimal | None] | None:
        """The judge's reply, with the request that it answers and the cost now; None: the job waits, or is lost.

        Cached verdicts of the batch are taken, and so is a reply that is stored for this run and round: nothing is called
        for it again.
        """
        if job.judged is not None:
            request, reply = await self._stored_reply(job, job.judged, request, executor)
            return request, reply, Decimal(0)
        default = self.terms.by_default(job) if request.by_default else None
        choice = await self._choose_lane(job, default)
        plan = self._plan(job, request, default, choice)
        if isinstance(plan, JudgeReply):
            return request, plan, Decimal(0)
        judge = plan.model_name
        async with self._verdict_cache.locked(job, request, judge):
            remaining = await self._verdict_cache.without_cached(job, request, judge, executor)
            # Mostly nothing was cached, and the call is planned already.
            planned = plan if remaining is request else None
            skipped = None
            if default is not None:
                remaining, planned, skipped = await self._affordable(job, remaining, planned, default, executor)
            paid_reply = await self._reply(job, remaining, planned, default, choice)
            if paid_reply is None:
                return None
            # Whatever became of the call, the cached verdicts are that judge's.
            reply, cost = replace(paid_reply[0], judge=judge), paid_reply[1]
            await self._verdict_cache.store(job, remaining, reply, executor)
        return remaining, replace(reply, skipped=reply.skipped or skipped), cost

    async def _affordable(
        self,
        job: Leased,
        request: JudgeRequest,
        plan: PlannedCall | None,
        default: DefaultJudge,
        executor: CheckExecutor,
    ) -> tuple[JudgeRequest, PlannedCall | None, str | None]:
        """The request with the weightiest claims that a judge by default has money for, its call, and the reason for fewer."""
        count = most = len(request.selection.claims)
        while count:
            planned = plan or self._plan(job, request, default)
            if isinstance(planned, JudgeReply):
                return request, None, planned.failure
            usd = planned.provider.expected_usd(planned.call)
            if usd is not None and usd <= default.most_usd:
                break
            # Each request has a fixed part, so that the share of the price is never too few.
            count = 0 if usd is None else min(count - 1, int(count * default.most_usd / usd))
            request, plan = await executor.do(partial(with_first, request, count), tenant=job.tenant), None
        else:
            planned = None
        if count == most:
            return request, planned, None
        share = f"{default.most_usd:.7f} USD, {self.options.default_share:.0%} of the answer's cost"
        return request, planned, f"{most - count} of {most} open claims were not asked about: the limit is {share}"

    async def _stored_reply(
        self, job: Leased, stored: StoredCompletion, request: JudgeRequest, executor: CheckExecutor
    ) -> tuple[JudgeRequest, JudgeReply]:
        """The stored reply with the request that it answers, and the cached verdicts on other claims."""
        snapshot = stored.completion.snapshot
        judge = f"{snapshot.provider}:{snapshot.model_asked}"
        answered_request = await executor.do(partial(as_stored, request, stored.prompt), tenant=job.tenant)
        if answered_request is None:
            return request, JudgeReply(failure="its stored answer is to a question that this version puts otherwise")
        reply = _reply_of(judge, stored.completion, stored.attempt_id)
        await self._verdict_cache.store(job, answered_request, reply, executor)
        cached = (await self._verdict_cache.without_cached(job, request, judge, executor)).cached
        answered = {request.pairs[position].sha256 for position in answered_request.selection.claims}
        findings = {
            at: cached.get(at, ERASED)
            for at in request.open
            if request.pairs[at].sha256 not in answered and (at in cached or at in request.selection.claims)
        }
        return replace(answered_request, cached=findings), reply

    async def _reply(
        self,
        job: Leased,
        request: JudgeRequest,
        plan: PlannedCall | None,
        default: DefaultJudge | None,
        choice: LaneChoice | None,
    ) -> PaidReply | None:
        """The reply to a request, which may have no claims left."""
        if not request.selection.claims:
            return JudgeReply(), Decimal(0)
        planned = plan or self._plan(job, request, default, choice)
        if isinstance(planned, JudgeReply):
            return planned, Decimal(0)
        if default is not None and (job.spent or job.unknown):
            # A finished answer does not wait for a second try of what nobody asked for.
            return JudgeReply(skipped="its call ended without a reply, and is not made again"), Decimal(0)
        if job.spent >= job.request.config.max_attempts or job.unknown >= MAX_UNKNOWN:
            used_up = f"{job.spent} of its calls failed and {job.unknown} ended unknown; no more are allowed"
            return JudgeReply(failure=used_up), Decimal(0)
        return await self._call(job, planned, required=default is None)

    async def _call(self, job: Leased, plan: PlannedCall, *, required: bool) -> PaidReply | None:
        paid = await self.calls.open(job, plan, Purpose.JUDGE, job.attempts + 1, required=required)
        if isinstance(paid, Denied):
            return await self._wait_for_permit(job, paid, required=required)
        if paid is Opened.OVER_BUDGET:
            return JudgeReply(skipped="the batch has no money left for its call"), Decimal(0)
        if isinstance(paid, Opened):
            if paid is Opened.ANSWERED:
                # An earlier call's answer came after all: the next lease brings it.
                await self._move(job, Advance(JobState.SCHEDULED, job.step, job.round))
            # LOST: another worker has the job now. ON_HOLD: it waits for money.
            return None
        if self.lane is not None and plan.call.lane == Lane.PROVIDER_BATCH:
            self.calls.limits.unused(paid.permit)
            await self.lane.park(paid)
            return None
        answer = await self.calls.make(paid)
        timing_ms = {"judge": round(paid.ms, 3)}
        if isinstance(answer, BrokenCall):
            return await self._store_failure(paid, answer, timing_ms, required=required)
        return await self._store(paid, answer, timing_ms)

    async def _choose_lane(self, job: Leased, default: DefaultJudge | None) -> LaneChoice | None:
        """The cheaper lane of the call; None: it is made at once. No answer waits for a judge that its job does not ask for."""
        turn = self.terms.turn(job, default)
        if self.lane is None or turn is None or default is not None:
            return None
        try:
            return await self.lane.choose(job, turn)
        except ConfigurationError:
            # The plan of its call says what is missing.
            return None

    def _plan(
        self, job: Leased, request: JudgeRequest, default: DefaultJudge | None, choice: LaneChoice | None = None
    ) -> PlannedCall | JudgeReply:
        """The call to make, or the reason that none can be made."""
        turn = self.terms.turn(job, default)
        if turn is None:
            return NO_JUDGE
        try:
            provider = self.providers.get(turn.provider)
            most = self.options.max_tokens
            if default is not None:
                most = min(most, default.max_tokens(len(request.selection.claims)))
            # As its provider is to plan it, without the form of the answer.
            config = GenerationConfig(
                provider=turn.provider,
                model=turn.model,
                lane=Lane.STANDARD if choice is None else choice.lane,
                # A probability is a token at most; nothing else is written.
                max_tokens=len(request.prompt.snapshot.questions) or most,
                reasoning_effort=default.judge.reasoning_effort if default is not None else None,
                timeout_s=self.options.timeout_s,
                max_attempts=job.request.config.max_attempts,
            )
            plan = plan_call(job, provider, job.request.model_copy(update={"config": config}), request.prompt)
            return plan if choice is None else replace(plan, lane_reason=choice.reason)
        except (ConfigurationError, ProviderError) as error:
            return JudgeReply(failure=str(error))

    async def _wait_for_permit(self, job: Leased, denied: Denied, *, required: bool) -> PaidReply | None:
        """Waits where the limits let no call through now; a lane without quota is not waited for.

        For a call that is not required only the turn among the others is waited for.
        """
        if denied.why is DenyReason.BREAKER and not required:
            return JudgeReply(skipped="its provider fails again and again"), Decimal(0)
        if denied.why is DenyReason.LANE_PAUSED:
            return JudgeReply(failure="no calls are made to its provider: the lane is paused"), Decimal(0)
        event = None if denied.why is DenyReason.LIMIT else denied.why.value
        await self._move(job, Advance(JobState.SCHEDULED, job.step, job.round, denied.delay, event=event, limited=True))
        return None

    async def _move(self, job: Leased, advance: Advance) -> None:
        await self.queue.defer(LeaseKey(job.job_id, job.token), advance)

    async def _store(self, paid: OpenCall, answer: Answered, timing_ms: dict[str, float]) -> PaidReply:
        """Stores the reply, the job staying in its check."""
        close = await finish_first(self.calls.close_answered(paid, answer, timing_ms))
        cost_usd = answer.completion.cost_usd
        if close.failure is not None:
            return JudgeReply(failure="its answer can't be stored"), cost_usd
        return _reply_of(paid.plan.model_name, answer.completion, paid.attempt.id), cost_usd

    async def _store_failure(
        self, paid: OpenCall, broken: BrokenCall, timing_ms: dict[str, float], *, required: bool
    ) -> PaidReply | None:
        failure = broken.failure
        if not required:
            cost_usd = await self.calls.close_broken(paid, broken, Fail(failure), timing_ms, None)
            return JudgeReply(failure=f"its call failed: {failure.message}"), cost_usd
        # A lane that is paused for it, or has no quota, would hold the answer: better a check without its judge, which
        # can be repeated.
        decision = self.calls.decide(paid.job, replace(broken, lane_paused=False), more_providers=False)
        waits = failure.kind not in REFUSED_LANE and (
            not isinstance(decision, Hold) or decision.reason is HeldReason.UNKNOWN_OUTCOME
        )
        then = advance_of(decision, paid.job) if waits else None
        cost_usd = await self.calls.close_broken(paid, broken, decision, timing_ms, then)
        if then is not None:
            return None
        return JudgeReply(failure=f"its call failed: {failure.message}"), cost_usd


def _reply_of(judge: str, completion: Completion, attempt_id: UUID) -> JudgeReply:
    if completion.finish_reason in NO_REPLY:
        why = completion.refusal or completion.finish_reason.value
        return JudgeReply(judge, failure=f"the judge refused: {why}")
    return JudgeReply(judge, completion.text, attempt_id=attempt_id)
