"""Publishes results: those that their workers did not, and all of a day's after Redis lost its data."""

import asyncio
import logging
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from tasks.errors import BrokerUnavailable, LedgerUnavailable
from tasks.ports import Doorbell, JobView, Rendered
from tasks.results import compact, result_of
from worker.ledger.publishing import PostgresOutbox

log = logging.getLogger(__name__)

RENDER = 10
"""Results rendered before the event loop's other work has its turn."""


@dataclass(slots=True)
class Outbox:
    """The slow part of the leader's duties: a loop beside the tick, in pages, that begins where the last leader ended."""

    results: PostgresOutbox
    doorbell: Doorbell
    rows: int
    older_than: timedelta
    """The worker that finishes a job publishes it; the sweep leaves it that time."""
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Begin, or go on: there is something to publish and this worker leads."""
        self._work.set()

    def rest(self) -> None:
        """Stop after the page under way: another worker leads, or Redis is away."""
        self._work.clear()

    async def run(self) -> None:
        """Publish whenever woken, until cancelled."""
        while True:
            await self._work.wait()
            try:
                more = await self.step()
            except (BrokerUnavailable, LedgerUnavailable) as error:
                log.info("publishing waits: %s", error)
                more = False
            except Exception:
                log.exception("publishing broke")
                more = False
            if not more:
                self.rest()

    async def step(self) -> bool:
        """Publish a page of each kind; True while there is more."""
        swept = await self.sweep()
        return await self.republish() or swept

    async def sweep(self) -> bool:
        """Publish a page of what was never published; True if it was full."""
        views = await self.results.unpublished(self.rows, self.older_than)
        await publish(self.results, self.doorbell, views)
        return len(views) == self.rows

    async def republish(self) -> bool:
        """Publish a page of what Redis lost; True while there is more."""
        page = await self.results.republish_page(self.rows)
        if page is None:
            return False
        await publish(self.results, self.doorbell, page.views)
        if page.through is None:
            if page.published:
                log.warning("%d results are published again", page.published)
            return False
        await self.results.note_republished(page)
        return True


async def publish_results(
    outbox: PostgresOutbox, doorbell: Doorbell, results: Sequence[Rendered], erased: Container[UUID] = ()
) -> None:
    """Publish rendered results; ``erased`` names those whose content was removed before they were read."""
    if not results:
        return
    refused = await doorbell.publish(results)
    for job_id, error in refused.items():
        await outbox.set_aside(job_id, error)
    # Erased or run again between the reading and the writing: that action withdrew the result before it was published.
    stale = await outbox.mark_published([(job_id, run) for job_id, run, *_ in results if job_id not in refused])
    await doorbell.withdraw([(job_id, run) for job_id, run in stale if job_id not in erased])


async def publish(outbox: PostgresOutbox, doorbell: Doorbell, views: Sequence[JobView]) -> None:
    """Put results into the result backend, then note it: a crash in between publishes them once more.

    A result that can't be rendered or that the backend refuses is set aside and keeps no other back.
    """
    erased = {view.job_id for view in views if view.erased_at is not None}
    await publish_results(outbox, doorbell, await _rendered(outbox, views), erased)


async def _rendered(outbox: PostgresOutbox, views: Sequence[JobView]) -> list[Rendered]:
    results: list[Rendered] = []
    for number, view in enumerate(views, start=1):
        try:
            results.append(Rendered(view.job_id, view.run, compact(result_of(view)), view.tenant))
        except Exception as error:
            log.exception("the result of job %s can't be rendered", view.job_id)
            await outbox.set_aside(view.job_id, error)
        if not number % RENDER:
            await asyncio.sleep(0)
    return results
