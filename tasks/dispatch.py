"""Keeps jobs moving: promotes what is due, expires what is late, hints what is available, rescues, sweeps the outbox."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from schemas.states import Step
from tasks.errors import BrokerUnavailable, LedgerUnavailable
from tasks.finish import compact, result_of
from tasks.pipeline import Feed
from tasks.ports import Doorbell, JobView, Ledger
from tasks.rescue import Rescue
from tasks.standin import StandIn

log = logging.getLogger(__name__)

MESSAGE_IDS = 50
"""Job ids a hint message holds: enough that a lease is one statement for many."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often and how much; one set for all processes."""

    tick: timedelta = timedelta(seconds=1)
    promote_rows: int = 2_000
    expire_rows: int = 500
    budget_rows: int = 500
    """Jobs of a batch without money that are held in one statement: calls of the same batch wait for it, some 20 ms."""
    hint_depth: int = 2_000
    """Jobs of a step that are hinted and not yet taken, in all queues together."""
    hint_again_after: timedelta = timedelta(seconds=30)
    """A hint older than this counts as lost."""
    publish_rows: int = 200
    publish_older_than: timedelta = timedelta(seconds=5)
    """The worker that finishes a job publishes it; the sweep leaves it that time."""
    check_backlog: int = 5_000
    """While more answers wait for their check, no more are generated."""
    results_kept: timedelta = timedelta(days=1)
    """How long the result backend keeps a result, and so how far back results are published again."""


@dataclass(slots=True)
class Dispatch:
    """The loop of duties; every worker process runs it, and the ledger's locks let one at a time do each duty."""

    ledger: Ledger
    doorbell: Doorbell
    rescue: Rescue
    stand_in: StandIn
    feeds: Mapping[Step, Feed]
    pace: Pace = field(default_factory=Pace)
    _broker_was_away: bool = False

    async def run(self) -> None:
        """Do the duties every tick until cancelled."""
        while True:
            await self.tick()
            await asyncio.sleep(self.pace.tick.total_seconds())

    async def tick(self) -> None:
        """Do each duty once. A failing duty is logged and does not keep the others from their turn."""
        duties: Sequence[Callable[[], Awaitable[object]]] = (
            self._promote,
            self._settle_budgets,
            self._expire,
            self._throttle,
            self._rescue,
            self._stand_in,
            self._heal_redis,
            self._hint,
            self._publish,
        )
        for duty in duties:
            try:
                await duty()
            except LedgerUnavailable as error:
                self.rescue.broken()
                log.warning("dispatch waits for the ledger: %s", error)
                return
            except BrokerUnavailable as error:
                if not self._broker_was_away:
                    log.warning("Redis can't be reached; jobs go on by idle claims: %s", error)
                self._broker_was_away = True
            except Exception:
                log.exception("the duty %s broke", duty.__name__)

    async def _promote(self) -> None:
        while await self.ledger.promote(self.pace.promote_rows) == self.pace.promote_rows:
            pass

    async def _settle_budgets(self) -> None:
        await self.ledger.settle_budgets(self.pace.budget_rows)

    async def _expire(self) -> None:
        if expired := await self.ledger.expire(self.pace.expire_rows):
            log.info("%d jobs expired", len(expired))

    async def _throttle(self) -> None:
        feed = self.feeds.get(Step.GENERATE)
        if feed is not None:
            limit = self.pace.check_backlog
            waiting = [await self.ledger.backlog(step, limit + 1) for step in (Step.CHECK, Step.LOCAL)]
            feed.throttled = sum(waiting) > limit

    async def _rescue(self) -> None:
        if rescued := await self.rescue.run():
            log.warning("rescued %d jobs from workers that stopped renewing", len(rescued))

    async def _stand_in(self) -> None:
        if left := await self.stand_in.run():
            log.info("%d jobs that want the local model are left to the plain check", len(left))

    async def _heal_redis(self) -> None:
        if await self.doorbell.lost_its_data():
            # In this order: a crash in between publishes once more, never once too little.
            again = await self.ledger.republish(self.pace.results_kept)
            await self.doorbell.remember()
            log.warning("Redis was restarted or lost its data: %d results are published again", again)
        self._broker_was_away = False

    async def _hint(self) -> None:
        for step in Step:
            generate = self.feeds.get(Step.GENERATE)
            if step is Step.GENERATE and generate is not None and generate.throttled:
                continue
            if step is Step.LOCAL and not self.stand_in.served():
                # Where nobody has a model, messages to its workers would lie in Redis for ever.
                continue
            pace = self.pace
            if await self.doorbell.waiting(step) * MESSAGE_IDS > 2 * pace.hint_depth:
                # Nobody takes them: hinting again and again would fill Redis for nothing.
                continue
            chosen = await self.ledger.take_hints(step, pace.hint_depth, pace.hint_depth, pace.hint_again_after)
            for urgent in (True, False):
                ids = [job_id for job_id, priority in chosen if (priority > 0) == urgent]
                for at in range(0, len(ids), MESSAGE_IDS):
                    await self.doorbell.hint(step, ids[at : at + MESSAGE_IDS], urgent=urgent)

    async def _publish(self) -> None:
        while True:
            views = await self.ledger.unpublished(self.pace.publish_rows, self.pace.publish_older_than)
            await publish(self.ledger, self.doorbell, views)
            if len(views) < self.pace.publish_rows:
                return


async def publish(ledger: Ledger, doorbell: Doorbell, views: Sequence[JobView]) -> None:
    """Publish the results of jobs as they stand in the ledger."""
    if views:
        erased = await _publish(ledger, doorbell, [(view.job_id, compact(result_of(view))) for view in views])
        await _forget(doorbell, [view.job_id for view in views if view.erased_at is None and view.job_id in erased])


async def publish_results(ledger: Ledger, doorbell: Doorbell, results: Sequence[tuple[UUID, bytes]]) -> None:
    """Publish the compact results of jobs that have just become final."""
    await _forget(doorbell, list(await _publish(ledger, doorbell, results)))


async def _publish(ledger: Ledger, doorbell: Doorbell, results: Sequence[tuple[UUID, bytes]]) -> set[UUID]:
    """Put results into the result backend, then note it: a crash in between publishes them once more.

    Returns: the jobs whose content is erased by now.
    """
    await doorbell.publish(results)
    return await ledger.mark_published([job_id for job_id, _ in results])


async def _forget(doorbell: Doorbell, late: Sequence[UUID]) -> None:
    """Remove results erased between the reading and the writing: the erasure forgot them before they were there."""
    if late:
        await doorbell.forget(late)
