"""Bundles what an operation works with: the open ledger, Redis, the name of the operator, and a way to warn."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tasks.errors import BrokerUnavailable
from tasks.ports import Page
from worker.ledger.postgres import PostgresLedger
from worker.local import Endpoints
from worker.settings import Settings

if TYPE_CHECKING:
    from worker.process.doorbell import CeleryDoorbell


@dataclass(slots=True)
class JobPages:
    """Counts of an operation over many jobs, page by committed page."""

    on_page: Callable[["JobPages"], None] = lambda _: None
    """Called after each page."""
    total: int | None = None
    """Jobs to go through, where it is known."""
    jobs: int = 0
    changed: int = 0
    refused: dict[UUID, str] = field(default_factory=dict)
    """Jobs that can't be changed, each with the reason."""

    def add(self, page: Page) -> None:
        """Counts a page and reports it."""
        self.jobs += page.jobs
        self.changed += len(page.changed)
        self.refused.update(page.refused)
        self.on_page(self)


class Operator(NamedTuple):
    """The one who gives an order, with the servers that it concerns."""

    name: str
    """Stands in the events of the ledger."""
    settings: Settings
    where: Endpoints
    ledger: PostgresLedger
    """Open."""
    warn: Callable[[str], None]
    """Receives what the operation could not do and went on without."""


@dataclass(slots=True)
class PublishedResults:
    """The results in Redis of jobs that change; once Redis is unreachable they stay, with one warning."""

    operator: Operator
    doorbell: "CeleryDoorbell"
    consequence: str
    """Of results that stay, for the warning."""
    unreachable: bool = False

    async def delete(self, job_ids: Collection[UUID], *, texts: Mapping[UUID, int] | None = None) -> None:
        """Deletes the results of jobs, and the ``texts`` streamed of them, by job and run."""
        if self.unreachable or not job_ids:
            return
        try:
            await self.doorbell.forget(list(job_ids))
            if texts is not None:
                from worker.token_streams import forget  # noqa: PLC0415 - with Redis, as below

                await forget(self.operator.where.redis_url, self.operator.settings.key_prefix, texts)
        except BrokerUnavailable as error:
            self.unreachable = True
            self.operator.warn(f"{error}; {self.consequence}")


@asynccontextmanager
async def published_results(operator: Operator, consequence: str) -> AsyncIterator[PublishedResults]:
    """Opens the result backend for an operation."""
    # Only orders that remove results need Redis, and it takes longer to load than all else.
    from worker.process.doorbell import ring  # noqa: PLC0415

    async with ring(operator.settings, operator.where.redis_url) as doorbell:
        yield PublishedResults(operator, doorbell, consequence)
