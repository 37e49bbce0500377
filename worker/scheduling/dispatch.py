"""Keeps jobs moving: promotes what is due, expires what is late, wakes feeds, rescues, and leads the outbox."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from schemas.states import Step
from tasks.errors import BrokerUnavailable, LedgerUnavailable
from tasks.ports import Doorbell, Outlook
from worker.ledger.postgres import PostgresLedger
from worker.scheduling.feed import Feed
from worker.scheduling.outbox import Outbox
from worker.scheduling.rescue import Rescue
from worker.scheduling.urgent_workers import UrgentWorkers

log = logging.getLogger(__name__)

IDLE_TICKS = 3
"""Ticks between looks of a worker that does not lead, while nothing runs and nothing waits."""

HEAD_START = timedelta(milliseconds=500)
"""Time that workers of urgent jobs alone have to take one before the others do."""

LOCAL_ROWS = 2_000
"""Jobs left to the plain check in one statement; the next one follows a second later."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals and page sizes; one set for all processes."""

    tick: timedelta = timedelta(seconds=1)
    lead_for: timedelta = timedelta(seconds=5)
    """How long a worker leads unless it looks again: others take over so soon after it died or froze."""
    promote_rows: int = 2_000
    expire_rows: int = 500
    budget_rows: int = 500
    """Jobs of a batch without money that are held in one statement: calls of the same batch wait for it, some 20 ms."""
    count_rows: int = 20_000
    """Changes of the batches' counts that are summed up in one statement; no other statement waits for it."""
    publish_rows: int = 200
    publish_older_than: timedelta = timedelta(seconds=5)
    """The worker that finishes a job publishes it; the sweep leaves it that time."""
    check_backlog: int = 5_000
    """While more answers wait for their check, no more are generated."""
    results_kept: timedelta = timedelta(days=1)
    """How long the result backend keeps a result, and so how far back results are published again."""
    local_model_wait: timedelta = timedelta(0)
    """How long a job waits for a worker with the local model while there is none; then the plain check names the missing layer."""


@dataclass(slots=True)
class Dispatch:
    """The loop of duties: every worker process runs it, and the one that leads does them.

    Leading is a short lease in the ledger, so that another worker takes over soon after the leader died or froze. No duty
    relies on being done by one worker alone: two that believe to lead for a moment lock each other out, row by row.
    """

    ledger: PostgresLedger
    doorbell: Doorbell
    rescue: Rescue
    feeds: Mapping[Step, Feed]
    worker: str
    pace: Pace = field(default_factory=Pace)
    urgent_workers: UrgentWorkers = field(default_factory=UrgentWorkers)
    others_serve: Callable[[], bool] = lambda: True
    """True if a worker serves all jobs: one of urgent jobs alone leads where there is no other."""
    outbox: Outbox = field(init=False)
    _leads: bool = False
    _broker: bool | None = None
    """True if this worker reaches Redis; None: not known."""
    expired: int = 0
    """Jobs so far."""

    def __post_init__(self) -> None:
        self.outbox = Outbox(self.ledger.outbox, self.doorbell, self.pace.publish_rows, self.pace.publish_older_than)

    async def run(self) -> None:
        """Look for work and do the duties until cancelled."""
        while True:
            pause = await self.tick()
            await asyncio.sleep(pause.total_seconds())

    @property
    def leads(self) -> bool:
        """True if this worker led at its last look."""
        return self._leads

    async def resign(self) -> None:
        """Let another worker lead at once."""
        await self.ledger.duties.resign(self.worker)

    async def tick(self) -> timedelta:
        """Look once, and do the duties if this worker leads; returns the time until the next look."""
        try:
            outlook = await self._attend()
            await self._watch_urgent()
        except LedgerUnavailable as error:
            self._lose_ledger(error)
            return self.pace.tick
        except Exception:
            log.exception("looking for work broke")
            return self.pace.tick
        self._steer(outlook)
        if not outlook.leads:
            self.outbox.rest()
            self._broker = await self._reaches_broker() if outlook.without_broker else None
            busy = self._broker or outlook.available or any(feed.in_use for feed in self.feeds.values())
            return self.pace.tick if busy else self.pace.tick * IDLE_TICKS
        return timedelta(0) if await self._do_duties(outlook) else self.pace.tick

    async def _watch_urgent(self) -> None:
        """Take urgent jobs here, too, if one waits although there are workers for them."""
        if self.urgent_workers.leave and (
            await self._submissions_wait() or await self.ledger.duties.urgent_waits(HEAD_START)
        ):
            self.urgent_workers.help()

    async def _submissions_wait(self) -> bool:
        """True if a submission finds no worker that takes it at once."""
        try:
            if not await self.doorbell.unread_submissions():
                return False
            await asyncio.sleep(HEAD_START.total_seconds())
            return bool(await self.doorbell.unread_submissions())
        except BrokerUnavailable:
            return False

    async def _attend(self) -> Outlook:
        pace = self.pace
        outlook = await self.ledger.duties.attend(
            self.worker,
            pace.lead_for,
            pace.publish_older_than,
            pace.check_backlog,
            broker=self._broker,
            may_lead=not (self.urgent_workers.only and self.others_serve()),
        )
        if outlook.leads and not self._leads:
            log.info("this worker leads the duties")
        self._leads = outlook.leads
        self.rescue.reached(outlook.server_age)
        return outlook

    def _lose_ledger(self, error: LedgerUnavailable) -> None:
        self.rescue.broken()
        self.outbox.rest()
        log.warning("dispatch waits for the ledger: %s", error)

    def _steer(self, outlook: Outlook) -> None:
        """Throttle generation while the check is behind; wake the feeds of this process for which jobs wait."""
        for step, feed in self.feeds.items():
            if step is Step.GENERATE:
                feed.throttled = outlook.check_behind
            if step in outlook.available:
                feed.wake()

    async def _do_duties(self, outlook: Outlook) -> bool:
        """Do each duty that has work once; True if some duty has more than a page of it.

        A failing duty is logged and does not keep the others from their turn.
        """
        more = False
        for duty in (
            self._close_windows,
            self._promote,
            self._settle_budgets,
            self._fold_counts,
            self._forget_turns,
            self._refresh_statistics,
            self._expire,
            self._rescue,
            self._check_without_model,
            self._republish_lost,
            self._publish,
        ):
            try:
                more |= await duty(outlook)
            except LedgerUnavailable as error:
                self._lose_ledger(error)
                return False
            except BrokerUnavailable as error:
                self.outbox.rest()
                if self._broker is not False:
                    log.warning("Redis can't be reached; jobs start up to some seconds later: %s", error)
                self._broker = False
            except Exception:
                log.exception("the duty %s broke", duty.__name__)
        return more

    async def _close_windows(self, outlook: Outlook) -> bool:
        if outlook.window_over and (jobs := await self.ledger.duties.close_windows()):
            log.info("%d jobs wait for the next window of their batch", jobs)
        return False

    async def _promote(self, outlook: Outlook) -> bool:
        return outlook.due and await self.ledger.duties.promote(self.pace.promote_rows) == self.pace.promote_rows

    async def _settle_budgets(self, outlook: Outlook) -> bool:
        if outlook.unsettled:
            await self.ledger.duties.settle_budgets(self.pace.budget_rows)
        return False

    async def _fold_counts(self, outlook: Outlook) -> bool:
        if outlook.unfolded:
            await self.ledger.duties.fold_counts(self.pace.count_rows)
        return False

    async def _forget_turns(self, outlook: Outlook) -> bool:
        if outlook.unfolded:
            await self.ledger.duties.forget_turns()
        return False

    async def _refresh_statistics(self, outlook: Outlook) -> bool:
        if outlook.outgrown and (tables := await self.ledger.duties.refresh_statistics()):
            log.debug("new statistics of %s", ", ".join(tables))
        return False

    async def _expire(self, outlook: Outlook) -> bool:
        if not outlook.late:
            return False
        if expired := await self.ledger.duties.expire(self.pace.expire_rows):
            self.expired += len(expired)
            log.info("%d jobs expired", len(expired))
        return len(expired) == self.pace.expire_rows

    async def _rescue(self, outlook: Outlook) -> bool:
        if outlook.lost and (rescued := await self.rescue.run()):
            log.warning("rescued %d jobs from workers that stopped renewing", len(rescued))
        return False

    async def _check_without_model(self, outlook: Outlook) -> bool:
        wait = self.pace.local_model_wait
        if Step.LOCAL in outlook.available and (
            jobs := await self.ledger.duties.reassign(Step.LOCAL, Step.CHECK, wait, LOCAL_ROWS)
        ):
            log.warning(
                "%d jobs want the local model and no worker has one: they are checked without it and end as partial",
                len(jobs),
            )
        return False

    async def _republish_lost(self, _outlook: Outlook) -> bool:
        if await self.doorbell.lost_its_data():
            # In this order: a crash in between publishes once more, never once too little.
            again = await self.ledger.outbox.begin_republishing(self.pace.results_kept)
            await self.doorbell.remember()
            self.outbox.wake()
            if again:
                log.warning("Redis was restarted or lost its data: the results it should have are published again")
        self._broker = True
        return False

    async def _reaches_broker(self) -> bool:
        try:
            await self.doorbell.lost_its_data()
        except BrokerUnavailable:
            return False
        return True

    async def _publish(self, outlook: Outlook) -> bool:
        if self._broker and (outlook.unpublished or outlook.republishing):
            self.outbox.wake()
        return False
