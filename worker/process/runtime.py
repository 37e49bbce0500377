"""The process's one event loop in a thread of its own, and everything that lives on it."""

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from datetime import timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import UUID

import uvloop
from celery import Celery

from schemas.states import Step
from tasks.calls.paid_call import PaidCalls
from tasks.calls.retry import RetryPolicy
from tasks.check import Check
from tasks.errors import ConfigurationError, NightdeskError
from tasks.generate import Generate
from tasks.grounding.judge.call import Judge, JudgeOptions
from tasks.grounding.judge.lane import JudgeLane
from tasks.lanes.choice import LaneChooser
from tasks.lanes.parking import Parking
from tasks.ports import Providers
from tasks.ports.remote_batches import Gathering
from tasks.text.time_limit import TimeLimit
from worker.cancellation import cancel
from worker.lanes.background import BackgroundLane
from worker.lanes.collection import BatchLane
from worker.lanes.pace import LanePace
from worker.lanes.parked_calls import parked_together
from worker.lanes.settlement import Settlement
from worker.ledger.continuity import Continuity
from worker.ledger.database import HOT_S
from worker.ledger.postgres import PostgresLedger
from worker.limits.lanes import Lanes
from worker.limits.presence import LEAVE_S, Heartbeat
from worker.limits.rate_limiter import RateLimiter
from worker.limits.rates import lane_terms
from worker.limits.redis_bucket import RedisBuckets
from worker.process.alive_file import keep_fresh
from worker.process.callback_delivery import Delivery
from worker.process.check_processes import CheckProcesses, ForkServer
from worker.process.doorbell import CeleryDoorbell, Sender
from worker.process.intake import Intake
from worker.process.journal import LedgerJournal
from worker.process.lease_renewer import LeaseRenewer
from worker.process.pruning import Pruning
from worker.process.spool import Spool, spool_folder, write_back
from worker.providers.registry import Installation
from worker.providers.worker_report import report_of
from worker.scheduling.dispatch import Dispatch, Pace
from worker.scheduling.feed import Feed
from worker.scheduling.load import Load, Suspicion
from worker.scheduling.rescue import Rescue
from worker.scheduling.urgent_workers import UrgentWorkers
from worker.settings import Settings, worker_name
from worker.telemetry.metering import Metering
from worker.token_streams import RedisTokens, forget

log = logging.getLogger(__name__)

Result = TypeVar("Result")


class _Closes(Protocol):
    async def close(self) -> None: ...


Closing = TypeVar("Closing", bound=_Closes)

LOCAL_SLOTS = 16
"""Most jobs in a worker with the local model: with more, one process would keep jobs that another could compute."""

CLOSING_S = 10.0
"""Seconds to write the last answers after a drain: with the ledger away a stop takes ``drain_s`` and this time."""


class WorkerRuntime:
    """Starts and stops the loop and all that is wired to it.

    The main thread calls ``start`` and ``stop``, Celery's threads go through the intake; a thread of ours calls ``dead`` when the
    loop is dead.
    """

    def __init__(
        self,
        settings: Settings,
        app: Celery,
        *,
        database_url: str,
        redis_url: str,
        steps: frozenset[Step],
        urgent_workers: UrgentWorkers,
        fork_servers: Mapping[Step, ForkServer],
        dead: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._app = app
        self._database_url = database_url
        self._redis_url = redis_url
        self._steps = steps
        self._urgent_workers = urgent_workers
        self._fork_servers = fork_servers
        self._checks: dict[Step, CheckProcesses] = {}
        self._dead = dead
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="event loop", daemon=True)
        self._stack = AsyncExitStack()
        self._at_end = self._stack.push_async_callback
        self._feeds: dict[Step, Feed] = {}
        self._suspicion = Suspicion()
        self._continuity = Continuity(database_url)
        self._metering = Metering(spans_by(settings))

    # ---- called by the main thread ----

    def start(self, providers: Providers) -> Intake:
        """Starts the loop, connects to the ledger and begins; raises ``LedgerUnavailable``, ``SchemaMismatch``."""
        self._thread.start()
        try:
            return self._call(self._open(providers))
        except BaseException:
            self._halt()
            raise

    def keep_fresh(self, path: Path) -> None:
        """Touches a file from now on, as long as the loop runs."""
        asyncio.run_coroutine_threadsafe(self._keep_fresh(path), self._loop)

    def stop_admitting(self) -> None:
        """Leases nothing more; waiting messages return at once. Safe in a signal handler."""
        if self._loop.is_closed():
            return
        for feed in self._feeds.values():
            self._loop.call_soon_threadsafe(feed.stop_admitting)

    def stop(self) -> int:
        """Lets running calls end within the drain time, closes everything; returns the number of interrupted jobs."""
        interrupted = self._call(self._drain())
        self._halt()
        return interrupted

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _halt(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # ---- on the loop ----

    async def _open(self, providers: Providers) -> Intake:
        """Opens all parts in the order in which they need each other.

        A stop closes them in the opposite one: first the duties and the intake, then what jobs use, and behind them the journal,
        which writes the last answers under leases that are renewed until then.
        """
        self._providers = self._closing(providers)
        await self._start_checks()
        await self._open_ledger()
        self._open_redis()
        spool = await self._open_spool()
        self._start_renewer()
        self._at_end(self._metering.stop)
        self._open_journal(spool)
        self._continuity.start(self._ledger)
        self._at_end(self._continuity.stop)
        self._prompts = ThreadPoolExecutor(1, thread_name_prefix="prompts")
        # Not on the loop: it waits for the work under way.
        self._at_end(asyncio.to_thread, self._prompts.shutdown)
        self._limiter = await self._limits()
        remote = self._ledger.remote_batches
        batches = self._closing(parked_together("parked calls", remote.park))
        responses = self._closing(parked_together("background responses", remote.park_responses))
        self._parking = Parking(batches.send, responses.send, self._journal)
        if Step.GENERATE in self._steps and not self._urgent_workers.only:
            self._open_batch_lane()
        for step in self._steps:
            self._feeds[step] = self._feed(step)
            self._feeds[step].start()
        dispatch = self._dispatch()
        intake = self._open_intake()
        self._start_duties(dispatch)
        self._metering.start(self._ledger.metric_totals, dispatch)
        return intake

    def _closing(self, part: Closing) -> Closing:
        """The part, which is closed when its turn comes."""
        self._at_end(part.close)
        return part

    async def _open_ledger(self) -> None:
        self._ledger = await self._stack.enter_async_context(
            PostgresLedger(
                self._database_url,
                tenant_shares=self._settings.tenant_shares,
                lease_for=self._settings.lease_for,
                statement_s=HOT_S,
                repeats=True,
                admit=self._continuity.admit,
            )
        )

    def _open_redis(self) -> None:
        settings = self._settings
        self._doorbell = self._closing(CeleryDoorbell(self._app, self._redis_url, settings))
        self._tokens = self._closing(
            RedisTokens(self._redis_url, key_prefix=settings.key_prefix, kept_s=settings.results_kept_s)
        )
        self._sender = self._closing(Sender(self._doorbell, self._ledger.outbox, self._tokens, self._local_is_served))

    async def _open_spool(self) -> Spool:
        """Opens the spool, once the answers that earlier workers left on disk are in the ledger."""
        spool = Spool(spool_folder(self._settings.home, await self._ledger.identity()))
        await write_back(spool, self._ledger.attempts, adopts=bool(self._answers_kept_for()))
        return spool

    def _start_renewer(self) -> None:
        self._renewer = LeaseRenewer(
            self._database_url,
            self._settings.lease_for,
            self._loop,
            dead=self._dead,
            admit=self._continuity.require_same,
        )
        self._renewer.start()
        self._at_end(self._renewer.stop)

    def _open_journal(self, spool: Spool) -> None:
        self._journal = self._closing(
            LedgerJournal(
                self._ledger,
                spool,
                surely_held=self._renewer.leases.surely_held,
                observe=self._metering.observe,
                publish=self._sender.final,
                kept_for=self._answers_kept_for(),
                confirmed_at=lambda: self._continuity.confirmed_at,
            )
        )
        self._continuity.put_back = self._journal.put_back

    def _open_intake(self) -> Intake:
        settings = self._settings
        return Intake(
            self._loop,
            self._feeds,
            ledger=self._ledger,
            owned=self._ledger.tenancy.jobs,
            catalog=Installation(settings, same_for_workers=True),
            sender=self._sender,
            tenants=settings.submit_queues,
            most_queued=settings.most_queued,
            callback_private=settings.callback_private,
        )

    async def _start_checks(self) -> None:
        """Starts the processes that compute checks. Raises ``ConfigurationError`` for a local model that can't be used."""
        limit = TimeLimit(self._settings.check_timeout_s)
        for step, server in self._fork_servers.items():
            self._checks[step] = self._closing(CheckProcesses(server, limit.seconds, limit.message, self._dead))
            await self._checks[step].start()

    def _answers_kept_for(self) -> timedelta:
        """The time that stored answers stay on disk; none where PostgreSQL is of this home, which has no standby."""
        return timedelta(0) if self._settings.embedded() else timedelta(seconds=self._settings.answers_kept_s)

    def _open_batch_lane(self) -> None:
        settlement = Settlement(
            self._ledger.queue,
            self._journal,
            self._calls(),
            self._providers,
            to_check=self._sender.to_check,
        )
        lanes, pace = self._lane_chooser(), lane_pace(self._settings)
        batches = BatchLane(self._ledger.remote_batches, settlement, lanes, pace)
        background = BackgroundLane(self._ledger.remote_batches, settlement, lanes, pace)
        self._present.unserved = (batches.unserved, background.unserved)
        for name, lane in (("provider batches", batches), ("background responses", background)):
            self._go_on(name, lane.run())

    def _lane_chooser(self) -> LaneChooser:
        return LaneChooser(self._providers, self._ledger.remote_batches.times, lane_terms(self._settings))

    async def _keep_fresh(self, path: Path) -> None:
        self._go_on("alive file", keep_fresh(path))

    def _go_on(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine until its turn to stop comes."""
        self._at_end(cancel, asyncio.create_task(work, name=name))

    def _start_duties(self, dispatch: Dispatch) -> None:
        self._at_end(_resign, dispatch)
        self._go_on("outbox", dispatch.outbox.run())
        self._go_on("dispatch", dispatch.run())
        settings, leads = self._settings, lambda: dispatch.leads
        key = None if (secret := settings.callback_secret) is None else secret.get_secret_value()
        self._go_on("callbacks", Delivery(self._ledger.callbacks, key, settings.callback_private, leads).run())
        ages = settings.prune_content_after, settings.prune_rows_after, settings.prune_batches_after
        if ages != (None, None, None):
            self._go_on("pruning", Pruning(self._ledger, self._forget, *ages, leads=leads).run())

    async def _forget(self, runs: Mapping[UUID, int]) -> None:
        """Removes results and streams of jobs from Redis."""
        await self._doorbell.forget(list(runs))
        await forget(self._redis_url, self._settings.key_prefix, runs)

    async def _limits(self) -> RateLimiter:
        """Makes the limits on calls, with the heartbeat that counts the workers."""
        settings = self._settings
        buckets = self._closing(RedisBuckets(self._redis_url, settings.key_prefix))
        lanes = self._closing(Lanes(self._ledger.fleet))
        lane_retry = timedelta(seconds=settings.lane_retry_s)
        self._present = present = Heartbeat(
            self._ledger.fleet, worker_name(), self._steps, lanes, lane_retry, urgent_workers=self._urgent_workers,
            report=report_of(settings),
        )  # fmt: skip
        limiter = self._closing(
            RateLimiter(settings, buckets, lanes, presence=present, slots=settings.slots, on_room=self._nudge)
        )
        present.unreachable = limiter.unreachable
        await present.start(limiter.try_lane)
        self._at_end(present.stop)
        return limiter

    def _nudge(self) -> None:
        if (feed := self._feeds.get(Step.GENERATE)) is not None:
            feed.wake()

    def _feed(self, step: Step) -> Feed:
        settings = self._settings
        generates = step is Step.GENERATE
        work: Generate | Check
        if generates:
            work, slots = self._generate(), settings.slots
        else:
            work, slots = self._check(step), settings.check_slots
            if step is Step.LOCAL:
                slots = min(slots, LOCAL_SLOTS)
        feed = Feed(
            step,
            slots=slots,
            worker=worker_name(),
            lease_for=settings.lease_for,
            queue=self._ledger.queue,
            leases=self._renewer.leases,
            run=work.run,
            load=Load(settings.max_bytes_in_flight // len(self._steps), self._suspicion),
            urgent_workers=self._urgent_workers,
            permitted=self._limiter.room if generates else lambda: None,
            waits=self._limiter.waits,
            unread=not generates,
        )
        if isinstance(work, Generate):
            work.free_slot = feed.free_slot
        return feed

    def _calls(self) -> PaidCalls:
        policy = RetryPolicy(hold_unknown=self._settings.hold_unknown)
        return PaidCalls(self._journal, policy, random.random, self._limiter, self._tokens)

    def _generate(self) -> Generate:
        return Generate(
            self._ledger.queue,
            self._journal,
            self._calls(),
            self._providers,
            to_check=self._sender.to_check,
            variants=self._settings.prompts,
            sharing=self._settings.share_policy,
            cpu=self._prompts,
            parking=self._parking,
            lanes=self._lane_chooser(),
            max_rescues=self._settings.max_rescues,
        )

    def _check(self, step: Step) -> Check:
        settings = self._settings
        lane = None
        if settings.judge_lane == "job":
            lane = JudgeLane(self._lane_chooser(), self._parking)
        return Check(
            self._ledger.queue,
            self._journal,
            self._checks[step],
            judge=Judge(self._ledger.queue, self._calls(), self._providers, judge_options(settings), lane),
            max_rescues=settings.max_rescues,
        )

    def _dispatch(self) -> Dispatch:
        settings = self._settings
        pace = Pace(
            tick=timedelta(seconds=settings.tick_s),
            results_kept=timedelta(seconds=settings.results_kept_s),
            local_model_wait=settings.local_model_wait,
        )
        rescue = Rescue(
            self._ledger.duties,
            settings.lease_for,
            hold_unknown=settings.hold_unknown,
            max_rescues=settings.max_rescues,
        )
        return Dispatch(
            self._ledger,
            self._doorbell,
            rescue,
            self._feeds,
            worker_name(),
            pace,
            self._urgent_workers,
            lambda: bool(self._present.steps),
        )

    def _local_is_served(self) -> bool:
        return Step.LOCAL in self._present.steps

    async def _drain(self) -> int:
        until = self._loop.time() + self._settings.drain_s
        await self._present.retire()
        within = timedelta(seconds=self._settings.drain_s)
        drained = await asyncio.gather(*(feed.drain(within) for feed in self._feeds.values()), return_exceptions=True)
        for error in drained:
            if isinstance(error, BaseException):
                # The answers must still be written, and everything else closed.
                log.error("a step could not be drained", exc_info=error)
        interrupted = sum(jobs for jobs in drained if not isinstance(jobs, BaseException))
        try:
            async with asyncio.timeout_at(max(until, self._loop.time() + CLOSING_S)):
                await self._stack.aclose()
        except TimeoutError:
            # Without an end the supervisor would kill this process; the next worker of this home reads the spool.
            log.critical("the ledger is away: answers that could not be written stay in the spool for the next worker")
        return interrupted


def judge_options(settings: Settings) -> JudgeOptions:
    """The judge of the settings."""
    share = Decimal(str(settings.default_judge_share))
    return JudgeOptions(settings.judge, settings.judge_max_tokens, settings.judge_timeout_s, share)


def lane_pace(settings: Settings) -> LanePace:
    """The times of the lane ``provider_batch`` by the settings."""
    quiet = timedelta(seconds=settings.provider_batch_gather_s)
    return LanePace(
        Gathering(quiet, 20 * quiet),
        first_look=timedelta(seconds=settings.provider_batch_look_s),
        create_within=timedelta(seconds=settings.provider_batch_create_s),
        tick=timedelta(seconds=2 * settings.tick_s),
        keep_for=timedelta(seconds=min(30.0, max(5.0, settings.provider_batch_look_s))),
    )


def spans_by(settings: Settings) -> Any:
    """Makes the exporter of traces; None where they are off, and then nothing of it is loaded."""
    if not settings.traces:
        return None
    try:
        spans = import_module("worker.telemetry.spans")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"NIGHTDESK_TRACES is set, but {error.name} is not installed: pip install '.[otel]' in the clone, or unset it"
        ) from error
    return spans.open_spans(settings.traces_ratio)


async def _resign(dispatch: Dispatch) -> None:
    """Lets another worker lead at once; with the ledger away it takes over after the lease."""
    try:
        async with asyncio.timeout(LEAVE_S):
            await dispatch.resign()
    except (NightdeskError, TimeoutError) as error:
        log.warning("another worker leads only some seconds later: %s", error)
