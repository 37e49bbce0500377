"""Lab for an experiment: its own servers, workers, a provider that counts its calls, and the final report."""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import psycopg
import redis
from celery import Celery
from celery.result import AsyncResult

from tests.acceptance.conftest import System, Value, questions
from tests.celery_client import celery_client
from tests.databases import forget
from tests.forking import PROGRAM
from tests.left_homes import remove, watch
from tests.run_directory import home_directory
from tests.seeded_homes import seed
from tests.stub.server import Stub, running_stub
from worker import local
from worker.ledger.postgres import PostgresLedger
from worker.ledger.schema_version import migrate
from worker.settings import worker_name

KEY = "sk-canary-faults-0123456789abcdefghij"

SLOTS = 20


# Of each attempt: if its job had an answer at that moment. An answer is stored under the lock of its job, and an
# opening holds that lock; the times in the rows are those at which their transactions began, and may be in the other order.
_WITNESS = """
CREATE TABLE opening (attempt_id uuid PRIMARY KEY, answered boolean NOT NULL);
CREATE FUNCTION witness_opening() RETURNS trigger LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO opening
    SELECT new.id, EXISTS (SELECT FROM completion c WHERE c.won AND (c.job_id, c.run, c.round, c.purpose)
                                                                 = (new.job_id, new.run, new.round, new.purpose));
    RETURN NULL;
END $$;
-- An answer that is taken from an identical call comes with its attempt; nothing is called.
CREATE TRIGGER witness_opening AFTER INSERT ON attempt FOR EACH ROW WHEN (new.shared_from IS NULL)
EXECUTE FUNCTION witness_opening();
"""

_LATE = """
SELECT encode(a.request_hash, 'hex'), count(*) FROM attempt a
WHERE a.outcome = 'ok' AND EXISTS (
    SELECT FROM job_event e JOIN attempt again USING (job_id, run) JOIN opening o ON o.attempt_id = again.id
    WHERE e.job_id = a.job_id AND e.run = a.run AND e.kind = 'rescue' AND e.detail ->> 'from_worker' = ANY(%s)
      AND (again.round, again.purpose) = (a.round, a.purpose)
      AND a.opened_at < e.at AND e.at < again.opened_at AND NOT o.answered)
GROUP BY 1
"""


@dataclass(frozen=True)
class Report:
    """Counts of an experiment's jobs, by the ledger and by the provider.

    Attributes:
        lost: jobs without exactly one final record of the latest run, or without a published result that answers.
        needless: calls beyond the first of a job that no recorded failure, unknown outcome or person called for.
        unrecorded: calls that the provider counted and the ledger has no attempt for.
        unknown: attempts whose outcome is unknown: called twice when it could not be avoided.
        late: attempts that were unknown when the call was made again, and answered after that: their worker had been
            frozen. A worker that nobody froze has no such excuse; its late answers are needless calls.
        recovery_s: from the end of the fault until every job was final (and its result published).
    """

    jobs: int
    lost: int
    needless: int
    unrecorded: int
    unknown: int
    late: int
    calls: int
    recovery_s: float
    note: str = ""
    """A further measurement, for the table."""

    def with_note(self, note: str) -> "Report":
        """The same account with a note."""
        return replace(self, note=note)

    @property
    def promises_hold(self) -> bool:
        """True if no promise is broken."""
        return self.lost == self.needless == self.unrecorded == 0


class Lab(System):
    """A system over servers that an experiment may break."""

    home: Path
    stub: Stub
    settings: dict[str, object]
    recovery_start: float | None = None
    frozen: set[str]
    """Workers that were frozen, by their names in leases."""

    # ---- workers ----

    def work(self, queues: str = "generate,check,submit", **settings: object) -> subprocess.Popen[bytes]:
        """Start a worker."""
        return self.start_worker(queues, **{"slots": SLOTS, "provider": "openai", **self.settings, **settings})

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """End a worker as a power cut would, if it has not ended by itself."""
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()

    # ---- moments to wait for ----

    def until_answered(self, count: int) -> None:
        """Wait until so many answers are in the ledger."""
        self.until(lambda: self.count("attempt WHERE outcome = 'ok'") >= count, what=f"{count} answers")

    def until_calling(self, count: int) -> None:
        """Wait until so many calls are under way."""
        self.until(lambda: self.count("attempt WHERE closed_at IS NULL") >= count, what=f"{count} calls under way")

    def until_called(self, count: int) -> None:
        """Wait until the provider was asked so often."""
        self.until(lambda: sum(self.stub.calls.values()) >= count, what=f"{count} calls at the provider")

    def count(self, of: str) -> int:
        """Count rows; 0 while the database can't be reached."""
        try:
            return int(self.scalar(f"SELECT count(*) FROM {of}"))
        except psycopg.OperationalError:
            return 0

    def all_final(self) -> bool:
        """True if every job is final."""
        return self.count("job WHERE finished_at IS NULL") == 0 and self.count("job") > 0

    def execute(self, statement: str) -> None:
        """Change something in the database."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def pause(self, seconds: float) -> None:
        """Let a fault last."""
        self.until(deadline(seconds), within_s=seconds + 5)

    def start_recovery(self) -> None:
        """Marks the end of the fault: recovery counts from now."""
        self.recovery_start = time.monotonic()

    # ---- servers ----

    def crash(self, name: str) -> None:
        """Kill a server at once, and wait until it is gone."""
        server = getattr(local.status(self.home), name)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        self.until(lambda: not getattr(local.status(self.home), name).running, what=f"{name} is gone")

    def restart(self) -> None:
        """Start what does not run, where it was."""
        where = local.start(self.home)
        assert (where.database_url, where.redis_url) == (self.database_url, self.redis_url)

    def freeze(self, name: str) -> Callable[[], None]:
        """Stop a server's processes without closing a connection; returns what thaws them."""
        server = getattr(local.status(self.home), name)
        frozen = [process for process in process_tree(server.pid) if if_alive(process.suspend)]

        def thaw() -> None:
            for process in frozen:
                if_alive(process.resume)

        return thaw

    def freeze_worker(self, worker: subprocess.Popen[bytes]) -> Callable[[], None]:
        """Stop a worker without closing a connection; returns what thaws it."""
        self.frozen.add(worker_name(worker.pid))
        worker.send_signal(signal.SIGSTOP)
        return lambda: worker.send_signal(signal.SIGCONT)

    def blocked_client_port(self, lock: int) -> int | None:
        """The client's port of the session that has this advisory lock and waits for another lock."""
        sessions = self.rows(
            "SELECT s.client_port FROM pg_locks l JOIN pg_stat_activity s USING (pid) WHERE l.locktype = 'advisory' "
            "AND l.granted AND l.objid::bigint = %s AND s.wait_event_type = 'Lock'",
            lock,
        )
        return int(sessions[0][0]) if sessions else None

    def owns_port(self, worker: subprocess.Popen[bytes], port: int) -> bool:
        """True if this port is the worker's own end of a connection."""
        return any(port in ports_of(process) for process in process_tree(worker.pid))

    def renewal_ports(self) -> set[int]:
        """The client's ports of the sessions whose last statement renewed leases."""
        sessions = self.rows(
            "SELECT client_port FROM pg_stat_activity WHERE query LIKE '%%UPDATE job j SET lease_until%%' "
            "AND pid <> pg_backend_pid() AND client_port > 0"
        )
        return {int(port) for (port,) in sessions}

    def terminate_connections(self) -> None:
        """Cut every connection to the database."""
        self.admin(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'nightdesk' AND pid <> pg_backend_pid()"
        )

    def admin(self, statement: str) -> None:
        """Say something to the database as its superuser."""
        url = local.start(self.home).admin_database_url
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def redis(self) -> redis.Redis:
        """A client."""
        return redis.Redis.from_url(self.redis_url)

    def cut_redis(self, client: "redis.Redis | None" = None) -> None:
        """Cut every connection to Redis, so that all connect again; ``client`` is one that is let in now."""
        with client or self.redis() as operator:
            for kind in ("normal", "pubsub"):
                operator.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")

    def refuses_to_grow(self) -> bool:
        """True if the database refuses to write, or is gone."""
        try:
            self.execute("CREATE TABLE filler AS SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
            self.execute("DROP TABLE filler")
        except psycopg.Error:
            return True
        return False

    def redis_refuses_to_write(self) -> bool:
        """True if Redis refuses to write, or is gone."""
        try:
            with self.redis() as client:
                client.set("filler", "x" * 1000, ex=60)
        except redis.RedisError:
            return True
        return False

    def celery(self) -> AbstractContextManager[Celery]:
        """A producer's app."""
        return celery_client(self.redis_url)

    # ---- the account ----

    def report(self, jobs: int, *, published: bool = True, within_s: float = 120) -> Report:
        """Wait for the end, and count."""
        column = "result_published_at" if published else "finished_at"
        self.until(
            lambda: self.count(f"job WHERE {column} IS NOT NULL") >= jobs,
            within_s=within_s,
            what=f"{jobs} with {column}",
        )
        recovery_s = time.monotonic() - self.recovery_start if self.recovery_start else 0.0
        complete = self.scalar(
            "SELECT count(*) FROM job j WHERE finished_at IS NOT NULL AND 1 = "
            "(SELECT count(*) FROM generation_record g WHERE g.job_id = j.id AND g.run = j.run)"
        )
        unanswered = len(self._without_result()) if published else 0
        attempts = Counter[str]()
        causes = Counter[str]()
        for digest, outcome, count in self.rows(
            "SELECT encode(request_hash, 'hex'), outcome, count(*) FROM attempt WHERE shared_from IS NULL GROUP BY 1, 2"
        ):
            attempts[digest] += count
            causes[digest] += count if outcome != "ok" else 0
        # A person who wants a job run again wants it called again.
        for digest, again in self.rows(
            "SELECT encode(request_hash, 'hex'), count(DISTINCT run) - 1 FROM attempt "
            "WHERE outcome = 'ok' AND shared_from IS NULL GROUP BY 1"
        ):
            causes[digest] += again
        assert not self.count("opening WHERE answered"), "a call was opened though its answer was stored"
        late = Counter[str](dict(self.rows(_LATE, list(self.frozen))))
        causes += late
        calls = self.stub.calls
        return Report(
            jobs=jobs,
            lost=jobs - int(complete) + unanswered,
            needless=sum(max(0, count - 1 - causes[digest]) for digest, count in calls.items()),
            unrecorded=sum(max(0, count - attempts[digest]) for digest, count in calls.items()),
            unknown=self.count("attempt WHERE outcome = 'unknown'"),
            late=late.total(),
            calls=sum(calls.values()),
            recovery_s=recovery_s,
        )

    def assert_settled(self, report: Report) -> Report:
        """The account, once no call is open any more and every sum of money is that of its attempts."""
        self.until(lambda: self.count("attempt WHERE closed_at IS NULL") == 0, within_s=90, what="no call under way")
        broken = self.with_ledger(lambda ledger: ledger.inspection.violations())
        assert broken == [], broken
        return report

    def with_ledger(self, work: Callable[[PostgresLedger], Coroutine[Any, Any, Value]]) -> Value:
        """Runs a coroutine function on the ledger, over new connections: those that are kept do not outlive their server."""
        forget(self.database_url)
        return super().with_ledger(work)

    def _without_result(self) -> list[str]:
        missing = []
        with self.celery() as app:
            for (job_id,) in self.rows("SELECT id FROM job"):
                result: Any = AsyncResult(str(job_id), app=app)
                if not result.ready() or result.get(timeout=10)["job_id"] != str(job_id):
                    missing.append(str(job_id))
        return missing


def deadline(seconds: float) -> Callable[[], bool]:
    """True once so many seconds have passed."""
    ends = time.monotonic() + seconds
    return lambda: time.monotonic() >= ends


def process_tree(pid: int) -> Iterator[psutil.Process]:
    """A process, then those below it: they are listed once the first was dealt with, so a stopped one starts no more.

    Raises: NoSuchProcess when the first is gone; of the others any may end at any moment.
    """
    first = psutil.Process(pid)
    yield first
    yield from first.children(recursive=True)


def if_alive(act: Callable[[], object]) -> bool:
    """Act on a process; False when it ended before."""
    try:
        act()
    except psutil.NoSuchProcess:
        return False
    return True


def ports_of(process: psutil.Process) -> set[int]:
    """The process's own ends of its TCP connections; none once it ended."""
    try:
        return {connection.laddr.port for connection in process.net_connections("tcp")}
    except psutil.NoSuchProcess:
        return set()


@contextmanager
def open_lab(folder: Path, jobs: int, **stub: Any) -> Iterator[Lab]:
    """A lab with questions and a provider that answers after ``latency_s``."""
    # By hand, the disk is that of users.
    above = home_directory() if "PYTEST_VERSION" in os.environ else nullcontext(folder)
    with above as directory, _lab(directory / "home", folder, jobs, stub) as lab:
        yield lab


@contextmanager
def _lab(home: Path, folder: Path, jobs: int, stub: dict[str, Any]) -> Iterator[Lab]:
    watch(home)
    try:
        seed(home, durable=True)
        where = local.start(home)
        migrate(where.database_url)
        with psycopg.connect(where.database_url, autocommit=True) as connection:
            connection.execute(_WITNESS)
        with running_stub(**{"latency_s": 0.5, **stub}) as provider:
            lab = Lab(where.database_url, where.redis_url, folder)
            lab.home, lab.stub = home, provider
            lab.settings, lab.frozen = {}, set()
            # Where recovery and memory are measured, workers are executed, as users' are.
            lab.program = None if "PYTEST_VERSION" in os.environ else PROGRAM
            os.environ["OPENAI_API_KEY"] = KEY
            os.environ["OPENAI_BASE_URL"] = f"{provider.url}/v1"
            try:
                if jobs:
                    lab.submit(questions(jobs))
                yield lab
            finally:
                lab.stop()
    finally:
        for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
            os.environ.pop(name, None)
        remove(home)
