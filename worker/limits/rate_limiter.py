"""Grants permits for provider calls, from an account of each provider's model."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from time import monotonic, time

from uuid_utils.compat import uuid7

from schemas.completion import Completion
from schemas.failure import Failure, FailureKind
from tasks.ports import Call, Leased, Limits, NotNow, Permit, Room, Why
from worker.limits.bucket import Ask, Book, Settlement
from worker.limits.failover import LATEST_S, Accounts, Books
from worker.limits.headers import LONGEST_PAUSE_S, read
from worker.limits.health import REFUSALS, LaneHealth, Trial, Unreachable
from worker.limits.lanes import Lane, Lanes
from worker.limits.permit_queue import NAME_S, Line, Waiter
from worker.limits.presence import EVERY_S
from worker.limits.rates import DIMENSIONS, INPUT, OUTPUT, PERIOD_S, REQUESTS, TOKENS, terms_of
from worker.process.cancellation import cancelled
from worker.settings import ProviderKind, Settings

log = logging.getLogger(__name__)

SOONEST_S = 0.02
"""Between two exchanges of a line in which somebody waits, at least."""
GATHER_S = 0.1
"""How long ends of calls are gathered while nobody waits."""
AFTER_BREAK_S = 1.0

SETTLE_S = 2 * EVERY_S
"""Without Redis a new worker grants nothing for so long: until the others have counted it, its share is theirs."""

ACTIVE_S = 30.0
"""A provider's model that nobody asked for in that time no longer counts."""
FIRST_LOOK = 8
"""Jobs that are leased to learn whom they call, where something is limited."""
PEEK_S, PEEK = 2.0, 2
"""While all that is called is blocked, so many jobs are leased in that time, to see whether others call elsewhere."""

MOST_LINES, IDLE_S = 500, 600.0
"""From so many models on, those that nobody asked for in that time are forgotten."""

SLOT_GRACE_S = 60.0
"""Beyond a call's timeout: its slot comes back then even if nobody says what became of it."""

ILL = frozenset({FailureKind.OVERLOADED, FailureKind.UNAVAILABLE, FailureKind.UNKNOWN_OUTCOME})
NEITHER = frozenset({FailureKind.BAD_ANSWER, FailureKind.INTERNAL, FailureKind.CONFIGURATION, FailureKind.CANCELLED})
"""Failures that say nothing of the provider's health; all others show that it answers."""


class LimitDesk(Limits):
    """``tasks.ports.Limits`` of one process; belongs to one event loop.

    Args:
        settings: the limits.
        books: the shared accounts.
        lanes: the paused lanes.
        workers: how many processes make calls now.
        slots: of this process; waiting jobs never take more than half of them.
        on_room: called when more jobs may be leased.
        period_s: a minute; tests take less.
        settle_s: seconds until all workers know of this one.
    """

    def __init__(
        self,
        settings: Settings,
        books: Books,
        lanes: Lanes,
        *,
        workers: Callable[[], int],
        slots: int,
        on_room: Callable[[], None],
        period_s: float = PERIOD_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._settings = settings
        self._accounts = Accounts(books, workers, settle_s)
        self._lanes = lanes
        self._workers = workers
        self._slots = slots
        self._on_room = on_room
        self._period_s = period_s
        self._lines: dict[tuple[str, str], Line] = {}
        self._health = LaneHealth(settings.unreachable_s)
        self._trials: dict[tuple[str, str], Trial] = {}
        self._naming: asyncio.Task[None] | None = None
        self._peeked_at = float("-inf")
        self._configured = any(
            limits.model_fields_set and any(value is not None for value in limits.model_dump().values())
            for limits in (
                settings.default_limits,
                *(one.limits for one in settings.providers.values() if one.limits),
                *(one for given in settings.providers.values() for one in (given.model_limits or {}).values()),
            )
        )
        # Slices are counted by wall time as in Redis, but a step of the clock must not empty or fill them.
        self._offset = time() - monotonic()

    # ---- the port ----

    async def permit(self, job: Leased, call: Call) -> Permit | NotNow:
        """See ``tasks.ports.Limits``."""
        began = monotonic()
        if await self._paused(call):
            return NotNow(Why.LANE_PAUSED, timedelta(0))
        line = self._line(call.provider, call.model or "")
        if not line.terms.any and self._offline(call.provider):
            line.asked_at = began
            return Permit(uuid7(), call.provider, line.model, call.lane, (), 0.0, 0.0)
        await self._trial(line).admit()
        if self._lanes.known(call.provider, call.lane, line.model) and await self._paused(call):
            return NotNow(Why.LANE_PAUSED, timedelta(0))
        refusal = line.refusal(self._workers(), urgent=job.priority > 0, mixed=self._mixed())
        if refusal is not None:
            line.asked_at = began
            return refusal
        return await self._granted(line, call, began, urgent=job.priority > 0)

    async def _granted(self, line: Line, call: Call, began: float, *, urgent: bool) -> Permit | NotNow:
        """Wait in line."""
        weights = self._weights(line, call)
        waiter = line.join(Ask(uuid7(), urgent, weights), call.timeout_s + SLOT_GRACE_S)
        self._start(line)
        try:
            granted = await waiter.granted
        except asyncio.CancelledError:
            line.leave(waiter)
            if waiter.granted.done() and not waiter.granted.cancelled():
                self._give_back(line, waiter)
            raise
        if isinstance(granted, NotNow):
            return granted
        if self._lanes.known(call.provider, call.lane, line.model):
            # Paused while this call waited for its permit.
            self._give_back(line, waiter)
            return NotNow(Why.LANE_PAUSED, timedelta(0))
        waited_ms = (monotonic() - began) * 1000
        return Permit(
            waiter.ask.id, call.provider, line.model, call.lane, weights, granted.at_s, waited_ms, granted.shared,
            len(call.body),
        )  # fmt: skip

    def answered(self, permit: Permit, completion: Completion) -> None:
        """See ``tasks.ports.Limits``."""
        self._health.answered(permit.provider, permit.model)
        if not permit.taken:
            return
        line = self._line(permit.provider, permit.model)
        self._trial(line).end()
        used = permit.taken
        if (usage := completion.usage) is not None:
            line.estimate.learn(permit.body_bytes, usage.input_tokens, usage.output_tokens)
            used = _weights(usage.input_tokens, usage.output_tokens)
        told = read(completion.snapshot.rate_limits)
        line.learn(told.limits)
        if told.pause_s:
            line.cut(told.pause_s, too_many=False)
        line.went_well()
        self._settle(line, permit, used)

    def failed(self, permit: Permit, failure: Failure) -> bool:
        """See ``tasks.ports.Limits``."""
        scope = self._health.failed(permit.provider, permit.model, failure)
        if scope is not None:
            self._lanes.pause(Lane(permit.provider, permit.lane, scope), failure.kind, failure.message)
        if permit.taken:
            self._note_failure(self._line(permit.provider, permit.model), permit, failure, paused=scope is not None)
        return scope is not None

    async def _paused(self, call: Call) -> bool:
        """Whether the call's lane is paused; once it goes on, few calls show whether it is served."""
        paused = await self._lanes.paused(call.provider, call.lane, call.model or "")
        if paused:
            self._trials.pop((call.provider, call.model or ""), None)
        return paused

    def _trial(self, line: Line) -> Trial:
        return self._trials.setdefault((line.provider, line.model), Trial())

    def unreachable(self) -> tuple[Unreachable, ...]:
        """The providers to which no connection comes about, for people to be told."""
        return self._health.unreachable()

    def _note_failure(self, line: Line, permit: Permit, failure: Failure, *, paused: bool) -> None:
        too_many = failure.kind is FailureKind.RATE_LIMITED
        if too_many or failure.retry_after_s:
            line.cut(min(failure.retry_after_s or 0.0, LONGEST_PAUSE_S), too_many=too_many)
        trial = self._trial(line)
        if not trial.over and failure.kind is FailureKind.UNAVAILABLE and self._health.lost(permit.provider):
            # Nobody has answered yet: those who wait need not find out for themselves.
            line.trip()
            trial.end()
        elif paused or failure.kind not in REFUSALS | {FailureKind.UNAVAILABLE}:
            trial.end()
        if failure.kind in ILL:
            line.went_ill()
        elif failure.kind not in NEITHER:
            line.went_well()
        # The request arrived and counts; nothing was written or read for it, unless nobody knows.
        unknown = failure.kind in {FailureKind.UNKNOWN_OUTCOME, FailureKind.CANCELLED, FailureKind.BAD_ANSWER}
        used = permit.taken if unknown else _weights(0, 0)
        self._settle(line, permit, used)

    def unused(self, permit: Permit) -> None:
        """See ``tasks.ports.Limits``."""
        if permit.taken:
            line = self._line(permit.provider, permit.model)
            self._settle(line, permit, (0.0,) * len(DIMENSIONS))

    # ---- what may be leased ----

    def room(self) -> Room | None:
        """How many jobs may be leased now to wait for permits; None while nothing is limited."""
        now, workers = monotonic(), self._workers()
        active = [line for line in self._lines.values() if now - line.asked_at < ACTIVE_S or line.waiting]
        limited = [line for line in active if line.limited]
        if not limited:
            return Room(self._slots, FIRST_LOOK) if self._configured and not active else None
        half = max(1, self._slots // 2)
        urgent = max(0, half - sum(len(line.urgent) for line in active))
        waiting = sum(len(line.bulk) for line in active)
        if len(limited) < len(active):
            return Room(urgent, max(0, half - waiting))
        most = min(sum(line.ahead(workers) for line in active), half)
        bulk = max(0, most - waiting)
        if bulk < most // 4:
            # A lease for each permit would cost more than the calls; the rest still waits for the next ones.
            bulk = 0
        if bulk == 0 and all(now < line.blocked_until for line in active) and now - self._peeked_at > PEEK_S:
            self._peeked_at, bulk = now, PEEK
        return Room(urgent, bulk)

    def _mixed(self) -> bool:
        now = monotonic()
        return sum(now - line.asked_at < ACTIVE_S for line in self._lines.values()) > 1

    def try_lane(self, provider: str) -> None:
        """A lane of this provider goes on: one call shows whether it is served."""
        for line in self._lines.values():
            if line.provider == provider:
                line.probe()
                self._start(line)

    async def close(self) -> None:
        """Tell what is left to be told, once, and stop."""
        await self._accounts.close()
        for task in (self._naming, *(line.pump for line in self._lines.values())):
            if task is not None:
                await cancelled(task)
        for line in self._lines.values():
            if line.unsent:
                await self._once(line)
        # Telling may have found Redis away.
        await self._accounts.close()

    # ---- lines ----

    def _line(self, provider: str, model: str) -> Line:
        line = self._lines.get((provider, model))
        if line is None:
            self._forget_idle()
            terms = terms_of(self._settings, provider, model, self._period_s)
            line = self._lines[provider, model] = Line(provider, model, terms, Book(self._now))
        return line

    def _forget_idle(self) -> None:
        """Models come from jobs: however many are named, only those in use are remembered."""
        if len(self._lines) >= MOST_LINES:
            now = monotonic()
            self._trials = {key: trial for key, trial in self._trials.items() if key in self._lines}
            self._lines = {
                key: line for key, line in self._lines.items()
                if line.waiting or line.unsent or line.held or now - line.asked_at < IDLE_S
            }  # fmt: skip

    def _now(self) -> float:
        return monotonic() + self._offset

    def _offline(self, provider: str) -> bool:
        given = self._settings.providers.get(provider)
        kind = given.kind if given is not None else provider
        return kind == ProviderKind.EXTRACTIVE

    def _weights(self, line: Line, call: Call) -> tuple[float, ...]:
        expected = line.estimate
        return _weights(expected.input_tokens(len(call.body)), expected.output_tokens(call.request.config.max_tokens))

    def _settle(self, line: Line, permit: Permit, used: tuple[float, ...]) -> None:
        more = tuple(new - old for new, old in zip(used, permit.taken, strict=True))
        line.settle(Settlement(permit.id, permit.taken_at_s, more), shared=permit.shared)
        self._start(line)

    def _give_back(self, line: Line, waiter: Waiter) -> None:
        granted = waiter.granted.result()
        if not isinstance(granted, NotNow):
            nothing = tuple(-weight for weight in waiter.ask.weights)
            line.settle(Settlement(waiter.ask.id, granted.at_s, nothing), shared=granted.shared)
            self._start(line)

    # ---- exchanging ----

    def _start(self, line: Line) -> None:
        if line.pump is None or line.pump.done():
            line.pump = asyncio.get_running_loop().create_task(self._pump(line), name=f"limits of {line.provider}")

    async def _name(self) -> None:
        """Keep the slots of calls under way, also where nothing else is to be told."""
        while True:
            await asyncio.sleep(NAME_S)
            for line in self._lines.values():
                if line.unsent:
                    self._start(line)

    async def _pump(self, line: Line) -> None:
        while line.waiting or line.unsent:
            try:
                pause_s = await self._once(line)
            except Exception:
                # Jobs wait here: whatever broke, they must be served or sent away.
                log.exception("the limits of %s broke", line.provider)
                pause_s = AFTER_BREAK_S
            line.send_away(self._workers(), mixed=self._mixed())
            self._on_room()
            if pause_s:
                await line.woken(pause_s)
            elif not line.waiting:
                # The ends of calls are gathered, so that a busy provider costs few exchanges.
                await line.woken(GATHER_S)

    async def _once(self, line: Line) -> float:
        """Exchange once and serve; returns for how long to pause."""
        asking, order, settlements = line.order()
        reply, shared = await self._accounts.exchange(line, order, settlements)
        for waiter in line.serve(asking, reply, shared=shared):
            nothing = tuple(-weight for weight in waiter.ask.weights)
            line.settle(Settlement(waiter.ask.id, reply.at_s, nothing), shared=shared)
        if line.held and self._naming is None:
            self._naming = asyncio.get_running_loop().create_task(self._name(), name="name calls under way")
        if not reply.why:
            return 0.0
        return min(max(reply.wait_s, SOONEST_S), LATEST_S)


def _weights(input_tokens: float, output_tokens: float) -> tuple[float, ...]:
    weights = [0.0] * len(DIMENSIONS)
    weights[REQUESTS], weights[INPUT], weights[OUTPUT] = 1.0, float(input_tokens), float(output_tokens)
    weights[TOKENS] = float(input_tokens + output_tokens)
    return tuple(weights)
