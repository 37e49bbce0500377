"""The composed system for acceptance tests: real servers, real worker processes, a clean database and Redis each."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest
import redis
from celery import Celery

from tasks.ports import Submitter
from tasks.submit import new_batch, submit
from tests.celery_client import celery_client
from tests.deadlines import scale_to_load, until
from tests.forking import start_command
from tests.lent_ledger import KeptLedger
from tests.servers import Servers
from worker.ledger.postgres import PostgresLedger

Value = TypeVar("Value")

LEASE_S = 3.0
"""Of workers on a machine with a free core; where a worker waits for one, its leases last longer too."""


@dataclass
class System:
    """Servers, and the worker processes a test starts on them."""

    database_url: str
    redis_url: str
    logs: Path
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _connection: psycopg.Connection | None = None
    _turn: Lock = field(default_factory=Lock)

    def environment(self, **settings: object) -> dict[str, str]:
        """Environment variables of this system for a process of ours; leases are short so that rescues come soon."""
        variables = {
            "NIGHTDESK_DATABASE_URL": self.database_url,
            "NIGHTDESK_REDIS_URL": self.redis_url,
            "NIGHTDESK_HOME": str(self.logs),
            "NIGHTDESK_LEASE_S": f"{scale_to_load(LEASE_S):.1f}",
            "NIGHTDESK_TICK_S": "0.2",
            "NIGHTDESK_THREADS": "4",
            **{f"NIGHTDESK_{name.upper()}": str(value) for name, value in settings.items()},
        }
        return {**os.environ, **variables}

    program: tuple[str, ...] | None = None
    """Arguments of Python that make it the command ``nightdesk``, for workers that are executed and not forked."""

    def start_worker(self, queues: str = "generate,check,submit", **settings: object) -> subprocess.Popen[bytes]:
        """Start a worker process and return at once: jobs wait for it, it never has to be waited for."""
        with (self.logs / f"worker-{len(self.workers)}.log").open("wb") as log:
            worker = start_command(
                ["worker", "--queues", queues],
                self.environment(**settings),
                stdout=log.fileno(),
                stderr=log.fileno(),
                session=True,
                program=self.program,
            )
        self.workers.append(worker)
        return worker

    def log(self, number: int = 0) -> str:
        """The log of a worker."""
        return (self.logs / f"worker-{number}.log").read_text()

    def submit(
        self,
        raw_jobs: list[dict[str, Any]],
        *,
        tenant: str = "default",
        submitter: Submitter | None = None,
        **batch: Any,
    ) -> tuple[UUID, list[UUID]]:
        """Write jobs to the ledger; no hint is sent, workers find them."""

        async def work(ledger: PostgresLedger) -> tuple[UUID, list[UUID]]:
            submitted = await submit(
                ledger.submission, raw_jobs, batch=new_batch(batch, tenant=tenant, submitter=submitter)
            )
            assert submitted.refused == ()
            assert submitted.receipt is not None
            return submitted.receipt.batch_id, [job_id for job_id in submitted.job_ids if job_id]

        return self.with_ledger(work)

    def with_ledger(self, work: Callable[[PostgresLedger], Coroutine[Any, Any, Value]]) -> Value:
        """Runs a coroutine function on the ledger."""

        async def opened() -> Value:
            async with KeptLedger(self.database_url) as ledger:
                return await work(ledger)

        return asyncio.run(opened())

    def rows(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        with self._turn:
            used = self._connection is not None and not self._connection.closed
            try:
                return self._connected().execute(statement.encode(), parameters).fetchall()
            except psycopg.OperationalError:
                self._disconnect()
                if not used:
                    raise
                # The server may have ended or cut the connection since it was used last.
                return self._connected().execute(statement.encode(), parameters).fetchall()

    def _connected(self) -> psycopg.Connection:
        """One connection for all looks at the database: a new one costs more than most of them."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.database_url, autocommit=True)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def scalar(self, statement: str, *parameters: object) -> Any:
        """The single value of a statement."""
        return self.rows(statement, *parameters)[0][0]

    def until(self, true: Callable[[], Value], *, within_s: float = 60, what: str = "") -> Value:
        """Wait until something holds, and return it; shows the workers' logs when it does not in time.

        Time counts as on a machine with a free core.
        """
        if value := until(true, within_s):
            return value
        logs = "\n".join(self.log(number)[-3000:] for number in range(len(self.workers)))
        pytest.fail(f"not within {within_s} s of a free machine: {what or true}\n{logs}")

    def until_final(self, count: int, *, published: bool = True, within_s: float = 90) -> None:
        """Wait until so many jobs are final and, unless told otherwise, published."""
        column = "result_published_at" if published else "finished_at"
        self.until(
            lambda: self.scalar(f"SELECT count(*) FROM job WHERE {column} IS NOT NULL") >= count,
            within_s=within_s,
            what=f"{count} jobs with {column}",
        )

    def stop(self) -> None:
        """End every worker that still runs."""
        self._disconnect()
        for worker in self.workers:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


@pytest.fixture
def system(servers: Servers, tmp_path: Path) -> Iterator[System]:
    """A clean system without workers."""
    with redis.Redis.from_url(servers.redis_url) as client:
        client.flushall()
    with servers.database() as url:
        system = System(url, servers.redis_url, tmp_path)
        try:
            yield system
        finally:
            system.stop()


@pytest.fixture
def producer(system: System) -> Iterator[Celery]:
    """A client of Celery, by which jobs are handed in."""
    with celery_client(system.redis_url) as app:
        yield app


def questions(count: int) -> list[dict[str, Any]]:
    """Questions that their one source answers."""
    return [
        {
            "query": f"When does desk number {number} open?",
            "context": [f"Desk number {number} opens at {number % 12 + 1} in the morning. It closes at noon."],
            "custom_id": f"q{number}",
        }
        for number in range(count)
    ]
