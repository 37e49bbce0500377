"""Holds what all requests share: the ledger on the loop that answers, the bulk loop, the doorbell, the watch over jobs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from redis import asyncio as redis

from schemas.record import JobResult
from tasks.errors import BrokerUnavailable, NotFound
from tasks.ports import HintKey
from tasks.results import poll
from worker.batching import Batcher, OnError
from worker.http.authentication import Access
from worker.http.bodies import FORM_BYTES, remove_stale
from worker.http.bulk_loop import BulkLoop
from worker.http.exposition import Metrics
from worker.http.job_watch import JobWatch
from worker.http.readiness import Lookout
from worker.http.shares import Caller, Shares
from worker.http.submission_process import LARGE_BYTES, NotStarted, SubmissionProcesses, Work
from worker.ledger.outage import PROBE_S, Outage
from worker.ledger.postgres import PostgresLedger
from worker.ledger.tenancy import JobVersion
from worker.ledger.uploads import Upload
from worker.local import Endpoints
from worker.operations.operator import Operator
from worker.process.doorbell import CeleryDoorbell, ring
from worker.providers.registry import Installation
from worker.settings import Settings
from worker.token_streams import TokenReader

log = logging.getLogger(__name__)

Result = TypeVar("Result")

CONNECTIONS = 8
"""To PostgreSQL, for the statements of requests; each takes some milliseconds."""

STATEMENT_S = 15.0
"""Seconds that a request waits for the answer of a statement."""

READ_WAIT = timedelta(milliseconds=3)
"""Longest time that a poll waits for others to be read with."""

OPERATION_WAIT_S = 20.0
"""Seconds that a request waits for an operation over many jobs, which goes on after the answer."""


@dataclass(frozen=True, slots=True)
class Service:
    """The parts that routes use; belongs to the loop that answers."""

    settings: Settings
    where: Endpoints
    access: Access
    shares: Shares
    ledger: PostgresLedger
    bulk: BulkLoop
    large: SubmissionProcesses
    watch: JobWatch
    catalog: Installation
    doorbell: CeleryDoorbell
    versions: Batcher[tuple[UUID, str], JobVersion | None]
    """Reads the versions of the jobs of polls that come together, each with its tenant, by one statement."""
    results: Batcher[UUID, JobResult | None]
    """The same for the results of these jobs."""
    lookout: Lookout
    tokens: TokenReader
    metrics: Metrics
    tasks: set[asyncio.Task[Any]]
    """Work that goes on after its answer."""
    endings: dict[UUID, asyncio.Task[Upload]] = field(default_factory=dict)
    """Of the batches of uploaded files."""

    @property
    def uploads(self) -> Path:
        """The folder of bodies on their way into the ledger."""
        return self.settings.home.expanduser().absolute() / "uploads"

    async def version(self, job_id: UUID, tenant: str) -> JobVersion:
        """The version of a tenant's job; raises ``NotFound``."""
        version = await self.versions.send((job_id, tenant))
        if version is None:
            raise NotFound(f"no job {job_id}")
        return version

    async def take_in(self, tenant: str, work: Work[Result], *arguments: Any, size: int) -> Result:
        """Writes a tenant's submission of so many bytes: a large one in a process of its own, another one on the bulk loop."""
        if size >= LARGE_BYTES:
            with suppress(NotStarted):
                return await self.large.run(tenant, work, *arguments)
        return await self.bulk.submit(tenant, lambda ledger: work(ledger, self.settings, *arguments))

    async def stream(
        self, caller: Caller, work: Callable[[PostgresLedger], AsyncIterator[bytes]]
    ) -> AsyncIterator[bytes]:
        """Yields what an iterator of the bulk loop yields, for as long as its caller may read; raises ``Problem`` then."""
        async with aclosing(self.bulk.stream(caller.tenant, work)) as pieces:
            async for piece in pieces:
                await self.access.require_valid(caller)
                yield piece

    def operator(self, name: str, ledger: PostgresLedger) -> Operator:
        """The caller of a request as the one who gives an order."""
        return Operator(f"http:{name}", self.settings, self.where, ledger, log.warning)

    def hint(self, hints: Iterable[HintKey]) -> None:
        """Wakes workers for new jobs without a wait; without Redis they find them by themselves a little later."""
        for key in hints:
            self.go_on(self._hint(key))

    async def _hint(self, key: HintKey) -> None:
        try:
            await self.doorbell.hint(key.step, urgent=key.urgent)
        except BrokerUnavailable as error:
            log.warning("%s; the jobs are accepted and start a few seconds later", error)

    async def operate(
        self, caller: Caller, operation: Callable[[Operator], Coroutine[Any, Any, Result]]
    ) -> Result | None:
        """Does an operation in the name of a caller; None: it takes long, and goes on after the answer."""

        async def run(ledger: PostgresLedger) -> Result:
            return await operation(self.operator(caller.name, ledger))

        task = self.go_on(self.bulk.run(caller.tenant, run))
        ended, _ = await asyncio.wait({task}, timeout=OPERATION_WAIT_S)
        return task.result() if ended else None

    def go_on(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Runs a coroutine beside the requests; a stop of the service waits for it."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


@asynccontextmanager
async def open_service(
    settings: Settings, where: Endpoints, *, loopback: bool, probe_s: float = PROBE_S
) -> AsyncIterator[Service]:
    """Connects to everything; Redis may be away. Raises ``LedgerUnavailable``, ``SchemaMismatch``."""
    async with AsyncExitStack() as stack:
        outage = await stack.enter_async_context(Outage(where.database_url, probe_s=probe_s))
        ledger = await stack.enter_async_context(
            PostgresLedger(where.database_url, connections=CONNECTIONS, statement_s=STATEMENT_S, outage=outage)
        )
        bulk = BulkLoop(where.database_url, outage)
        await bulk.start()
        stack.push_async_callback(bulk.stop)
        doorbell = await stack.enter_async_context(ring(settings, where.redis_url))
        client = redis.Redis.from_url(where.redis_url, socket_timeout=2, socket_connect_timeout=2)
        stack.push_async_callback(client.aclose)
        versions = Batcher[tuple[UUID, str], JobVersion | None](
            "versions", ledger.tenancy.jobs, on_error=OnError.RAISE, wait=READ_WAIT, in_flight=CONNECTIONS
        )
        stack.push_async_callback(versions.close)
        results = Batcher[UUID, JobResult | None](
            "polls",
            partial(poll, ledger.reading),
            on_error=OnError.RAISE,
            wait=READ_WAIT,
            in_flight=CONNECTIONS,
        )
        stack.push_async_callback(results.close)
        watch = JobWatch(ledger.tenancy)
        stack.push_async_callback(watch.close)
        lookout = Lookout(outage, client)
        service = Service(
            settings,
            where,
            Access(ledger.api_keys, settings.tenant, loopback=loopback),
            Shares(settings.http_max_connections, settings.http_max_body_bytes + FORM_BYTES),
            ledger,
            bulk,
            SubmissionProcesses(settings, where, probe_s=probe_s),
            watch,
            Installation(settings, same_for_workers=settings.embedded()),
            doorbell,
            versions,
            results,
            lookout,
            await stack.enter_async_context(TokenReader(where.redis_url, key_prefix=settings.key_prefix)),
            Metrics(ledger, settings.lease_for, lookout.look),
            set(),
        )
        await asyncio.to_thread(remove_stale, service.uploads)
        stack.push_async_callback(_finish, service.tasks)
        yield service


FINISH = timedelta(seconds=10)


async def _finish(tasks: set[asyncio.Task[Any]]) -> None:
    """Waits for what goes on, for a while: each operation is completed by the same request again."""
    if tasks:
        _, remaining = await asyncio.wait(tasks, timeout=FINISH.total_seconds())
        for task in remaining:
            task.cancel()
