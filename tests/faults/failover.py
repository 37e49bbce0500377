"""A standby of PostgreSQL takes over without the last commits, as an asynchronous one does."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal

import psycopg
from psycopg.conninfo import make_conninfo

from tests.acceptance.conftest import questions
from tests.faults.lab import Lab, Report
from tests.faults.proxy import Proxy, running_proxy
from tests.faults.registry import experiment
from tests.forking import PROGRAM
from worker import local
from worker.local.home import LOOPBACK
from worker.local.programs import Account, find_binaries
from worker.process.spool import lost_answers

CALLS = 30


class Standby:
    """A PostgreSQL that follows that of the lab's home until it is told to stop; ``url`` is the superuser's."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        primary = local.status(lab.home).postgres
        owner = primary.data.stat()
        self._account = Account(owner.st_uid, owner.st_gid, switch=os.geteuid() == 0)
        self._programs = find_binaries(self._account, local.LocalOptions().shared_root).postgres.parent
        self._data = primary.data.with_name("standby")
        self._admin = local.start(lab.home).admin_database_url
        self._port = _free_port()
        self.url = make_conninfo(self._admin, port=self._port)
        self.ledger_url = _with_port(lab.database_url, self._port)
        with (primary.data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host replication all {LOOPBACK}/32 scram-sha-256\n")
        lab.admin("SELECT pg_reload_conf()")

    def start(self) -> None:
        """Copies the primary, and follows it from then on."""
        self._data.mkdir(mode=0o700)
        self._account.chown(self._data)
        copied = self._account.run(
            [self._programs / "pg_basebackup", "-D", self._data, "-R", "-c", "fast", "-d", self._admin]
        )
        assert copied.returncode == 0, copied.stderr
        switch = (
            {"user": self._account.uid, "group": self._account.gid, "extra_groups": ()} if self._account.switch else {}
        )
        with (self._lab.logs / "standby.log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, "-c", f"port={self._port}"],
                stdout=log,
                stderr=log,
                env=self._account.environment,
                **switch,  # type: ignore[call-overload]
            )
        self._lab.until(self.follows, what="a standby")

    def follows(self) -> bool:
        """True when all that the primary has is here, too."""
        with psycopg.connect(self._admin, autocommit=True) as primary:
            row = primary.execute(
                "SELECT count(*) FILTER (WHERE replay_lsn >= pg_current_wal_lsn()) FROM pg_stat_replication"
            ).fetchone()
        return row == (1,)

    def part(self) -> None:
        """Follows no longer, as if the network between the two were cut."""
        self._say("ALTER SYSTEM SET primary_conninfo = ''")
        self._say("SELECT pg_reload_conf()")
        self._lab.until(lambda: self._say("SELECT count(*) FROM pg_stat_wal_receiver") == 0, what="a standby alone")

    def promote(self) -> None:
        """Takes the place of the primary."""
        assert self._say("SELECT pg_promote()") is True

    def stop(self) -> None:
        """Ends it."""
        if hasattr(self, "_process"):
            self._process.terminate()
            self._process.wait(30)

    def _say(self, statement: str) -> object:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _with_port(url: str, port: int) -> str:
    head, _, rest = url.rpartition("@")
    return f"{head}@{LOOPBACK}:{port}/{rest.partition('/')[2]}"


@contextmanager
def cluster(lab: Lab) -> Iterator[tuple[Proxy, Standby]]:
    """A standby of the lab's PostgreSQL, and a proxy as the address that moves."""
    standby = Standby(lab)
    try:
        standby.start()
        with running_proxy(lab.database_url) as proxy:
            lab.database_url = proxy.url
            yield proxy, standby
            lab.stop()
    finally:
        standby.stop()


def fail_over(lab: Lab, proxy: Proxy, standby: Standby) -> None:
    """The primary is gone, and the address leads to the promoted standby."""
    if local.status(lab.home).postgres.running:
        lab.crash("postgres")
    standby.promote()
    proxy.lead_to(standby.ledger_url)
    lab.start_recovery()


def charged(lab: Lab) -> Decimal:
    """The money of all batches, which is that of their calls."""
    return Decimal(str(lab.scalar("SELECT coalesce(sum(spent_usd), 0) FROM batch")))


def all_kept(lab: Lab, report: Report, usd: Decimal | None = None) -> Report:
    """The report, once every answer is there and paid once."""
    report = lab.assert_settled(report)
    assert (report.calls, report.unknown, lab.count("attempt")) == (CALLS, 0, CALLS), report
    assert usd is None or charged(lab) == usd
    assert charged(lab) == Decimal(str(lab.scalar("SELECT sum(cost_usd) FROM attempt"))) > 0
    return report


@experiment("fail-over: jobs are known, openings of 30 calls under way are not", jobs=CALLS, latency_s=12.0)
def openings_lost(lab: Lab) -> Report:
    with cluster(lab) as (proxy, standby):
        standby.part()
        for _ in range(2):
            lab.work(slots=CALLS // 2)
        lab.until_calling(CALLS)
        fail_over(lab, proxy, standby)
        return all_kept(lab, lab.report(CALLS))


@experiment("fail-over: 30 answers come between the two servers", quick=True, jobs=CALLS, latency_s=15.0)
def answers_between(lab: Lab) -> Report:
    with cluster(lab) as (proxy, standby):
        standby.part()
        lab.work(slots=CALLS)
        lab.until_calling(CALLS)
        lab.crash("postgres")
        lab.until(lambda: sum(lab.stub.answered.values()) == CALLS, what="all answers in memory")
        fail_over(lab, proxy, standby)
        return all_kept(lab, lab.report(CALLS))


@experiment("fail-over: 30 stored answers and their final records are lost", jobs=CALLS)
def answers_lost(lab: Lab) -> Report:
    with cluster(lab) as (proxy, standby):
        standby.part()
        lab.work(slots=CALLS)
        lab.until(lambda: lab.count("job WHERE result_published_at IS NOT NULL") == CALLS, what="published results")
        usd = charged(lab)
        fail_over(lab, proxy, standby)
        return all_kept(lab, lab.report(CALLS), usd)


@experiment("fail-over: stored answers are lost, and their worker is killed", jobs=CALLS)
def answers_lost_with_their_worker(lab: Lab) -> Report:
    with cluster(lab) as (proxy, standby):
        standby.part()
        worker = lab.work(slots=CALLS)
        lab.until(lambda: lab.count("job WHERE result_published_at IS NOT NULL") == CALLS, what="published results")
        usd = charged(lab)
        lab.until(
            lambda: sum(len(p.read_bytes().splitlines()) for p in lab.logs.glob("spool/*/*.stored")) == CALLS,
            what="copies of all answers",
        )
        lab.kill(worker)
        fail_over(lab, proxy, standby)
        lab.work(slots=CALLS)
        return all_kept(lab, lab.report(CALLS), usd)


@experiment("fail-over: a batch that was accepted is not known", jobs=5)
def batch_lost(lab: Lab) -> Report:
    with cluster(lab) as (proxy, standby):
        standby.part()
        batch_id, _ = lab.submit(
            [{**question, "query": f"Tell me: {question['query']}"} for question in questions(CALLS)]
        )
        lab.work(slots=CALLS)
        lab.until_answered(CALLS + 5)
        fail_over(lab, proxy, standby)
        lab.until(lambda: str(batch_id) in lab.log(), what="a word about the batch")
        report = lab.report(5)
        lost = [row for rows in lost_answers(lab.logs).values() for row in rows]
        assert {row.opening.batch_id for row in lost if row.opening} == {batch_id}
        for command in (["doctor"], ["status"]):
            done = subprocess.run(
                [sys.executable, *PROGRAM, *command], env=lab.environment(), capture_output=True, text=True, check=False
            )
            assert str(batch_id) in done.stdout.replace("\n", ""), done
        # Their calls are recorded in the spool.
        return replace(report, unrecorded=report.unrecorded - len({row.id for row in lost}))


@experiment("fail-over: a synchronous standby has every commit", jobs=CALLS)
def synchronous(lab: Lab) -> Report:
    with cluster(lab) as (proxy, standby):
        lab.admin("ALTER SYSTEM SET synchronous_standby_names = '*'")
        lab.admin("SELECT pg_reload_conf()")
        lab.work(answers_kept_s=0)
        lab.until_answered(CALLS // 3)
        fail_over(lab, proxy, standby)
        report = all_kept(lab, lab.report(CALLS))
        assert not list(lab.logs.glob("spool/*/*.stored"))
        return report
