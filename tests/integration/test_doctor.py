"""The doctor over real servers: each fault is made, found, and gone after its remedy."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import redis

from schemas.states import HeldReason
from tests.builders import closed_unknown, later, make_attempt, make_batch, make_request
from tests.contract.situations import ACTOR, finished, open_one, submit, submit_and_take, submit_many, take
from tests.lent_ledger import KeptLedger
from tests.servers import Servers, advance_clock
from worker.doctor import examine
from worker.doctor.environment import RESET_CLOCK
from worker.doctor.finding import Finding, Severity
from worker.ledger.postgres import PostgresLedger
from worker.ledger.schema_version import head_revision, migrate

pytestmark = pytest.mark.usefixtures("durable")


class Installation:
    """Servers named in the environment, without workers of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, servers: Servers, database_url: str) -> None:
        self.monkeypatch = monkeypatch
        self.servers = servers
        self.database_url = database_url
        monkeypatch.setenv("NIGHTDESK_REDIS_URL", servers.redis_url)
        monkeypatch.setenv("NIGHTDESK_DATABASE_URL", database_url)

    def findings(self) -> dict[str, Finding]:
        """Findings of the doctor, without those about missing workers."""
        findings_by_check = {finding.check: finding for finding in asyncio.run(examine()).findings}
        return {check: finding for check, finding in findings_by_check.items() if check != "workers"}

    def finding(self, check: str) -> Finding:
        """The only finding."""
        findings_by_check = self.findings()
        assert list(findings_by_check) == [check]
        return findings_by_check[check]

    def use(self, work: Callable[[PostgresLedger], Awaitable[object]]) -> None:
        """Runs an action on the ledger."""

        async def opened() -> None:
            async with KeptLedger(self.database_url) as ledger:
                await work(ledger)

        asyncio.run(opened())

    def execute(self, statement: str) -> None:
        """Changes the database behind the ledger's back."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def pass_time(self, by: timedelta) -> None:
        """Let all times in the ledger be so long ago; the clock itself stays right."""
        tables = {
            "job": "scheduled_at available_at lease_until finished_at",
            "attempt": "opened_at closed_at",
        }
        for table, columns in tables.items():
            changes = ", ".join(f"{name} = {name} - interval '{by.total_seconds()} s'" for name in columns.split())
            self.execute(f"UPDATE {table} SET {changes}")


@pytest.fixture
def installation(monkeypatch: pytest.MonkeyPatch, servers: Servers, database_url: str) -> Installation:
    # Nothing that an earlier test left there: a breaker, a limit that was cut.
    with redis.Redis.from_url(servers.redis_url) as client:
        client.flushall()
    return Installation(monkeypatch, servers, database_url)


# ---- servers ---------------------------------------------------------------------------------------------------


def test_a_new_database_has_nothing_wrong_but_no_workers(installation: Installation) -> None:
    report = asyncio.run(examine())

    assert [(finding.check, finding.severity) for finding in report.findings] == [("workers", Severity.WARNING)]
    assert report.checked == ["settings", "spool", "PostgreSQL", "Redis", "workers", "jobs"]


def test_a_wrong_password(installation: Installation) -> None:
    parts = urlsplit(installation.database_url)
    wrong = urlunsplit(parts._replace(netloc=f"{parts.username}:wr0ng-canary@{parts.hostname}:{parts.port}"))
    installation.monkeypatch.setenv("NIGHTDESK_DATABASE_URL", wrong)

    finding = installation.finding("postgres_password")

    assert finding.severity is Severity.UNREACHABLE
    assert "refuses the login" in finding.what
    assert "wr0ng-canary" not in finding.what + finding.remedy


def test_a_missing_database_is_created_and_migrated(installation: Installation) -> None:
    url = installation.servers.url("nightdesk_not_there")
    installation.monkeypatch.setenv("NIGHTDESK_DATABASE_URL", url)
    finding = installation.finding("postgres_database")
    assert finding.severity is Severity.UNREACHABLE
    assert "createdb" in finding.remedy

    installation.execute("CREATE DATABASE nightdesk_not_there")
    try:
        assert "nightdesk migrate" in installation.finding("migration").remedy
        migrate(url)
        assert installation.findings() == {}
    finally:
        installation.execute("DROP DATABASE nightdesk_not_there WITH (FORCE)")


def test_a_server_that_is_not_there(installation: Installation) -> None:
    installation.monkeypatch.setenv("NIGHTDESK_DATABASE_URL", "postgresql://someone@127.0.0.1:1/nightdesk")
    installation.monkeypatch.setenv("NIGHTDESK_REDIS_URL", "redis://127.0.0.1:1/0")

    findings_by_check = installation.findings()

    assert list(findings_by_check) == ["postgres", "redis"]
    assert {finding.severity for finding in findings_by_check.values()} == {Severity.UNREACHABLE}
    assert "127.0.0.1:1/nightdesk can't be reached (Connection refused)" in findings_by_check["postgres"].what


def test_a_newer_schema(installation: Installation) -> None:
    installation.execute("UPDATE alembic_version SET version_num = '9999'")
    installation.execute("UPDATE schema_floor SET revision = '9999'")
    assert "upgrade nightdesk" in installation.finding("migration").remedy

    installation.execute(f"UPDATE alembic_version SET version_num = '{head_revision()}'")
    installation.execute(f"UPDATE schema_floor SET revision = '{head_revision()}'")
    assert installation.findings() == {}


def test_a_moved_clock(installation: Installation) -> None:
    advance_clock(installation.database_url, timedelta(hours=1))
    finding = installation.finding("clock")
    assert "+3,600 s" in finding.what
    assert RESET_CLOCK in finding.remedy

    installation.execute(RESET_CLOCK)
    assert installation.findings() == {}


@contextmanager
def configured(installation: Installation, name: str, value: str) -> Iterator[None]:
    """Redis with another configuration."""
    with redis.Redis.from_url(installation.servers.redis_url) as client:
        before = client.config_get(name)[name]
        client.config_set(name, value)
        try:
            yield
        finally:
            client.config_set(name, before)


def test_a_redis_that_is_full(installation: Installation) -> None:
    with configured(installation, "maxmemory", "1mb"):
        assert "when it is full, it refuses writes" in installation.finding("redis_memory").what


def test_one_url_without_the_other(installation: Installation) -> None:
    installation.monkeypatch.delenv("NIGHTDESK_REDIS_URL")
    finding = installation.finding("settings")
    assert "NIGHTDESK_REDIS_URL is not set" in finding.what


def test_embedded_servers_that_do_not_run(installation: Installation, tmp_path: Path) -> None:
    installation.monkeypatch.delenv("NIGHTDESK_REDIS_URL")
    installation.monkeypatch.delenv("NIGHTDESK_DATABASE_URL")
    installation.monkeypatch.setenv("NIGHTDESK_HOME", str(tmp_path / "home"))

    report = asyncio.run(examine())

    assert [(finding.check, finding.severity) for finding in report.findings] == [("embedded", Severity.NOTE)]
    assert "nightdesk up" in report.findings[0].remedy
    assert not (tmp_path / "home").exists()


# ---- jobs ------------------------------------------------------------------------------------------------------


def test_embedded_servers_that_ended_under_their_workers(installation: Installation, tmp_path: Path) -> None:
    installation.monkeypatch.delenv("NIGHTDESK_REDIS_URL")
    installation.monkeypatch.delenv("NIGHTDESK_DATABASE_URL")
    installation.monkeypatch.setenv("NIGHTDESK_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "workers").mkdir(parents=True)
    (tmp_path / "home" / "workers" / "generate.pid").touch()

    report = asyncio.run(examine())

    assert [finding.check for finding in report.findings] == ["embedded", "embedded"]
    assert report.worst is Severity.UNREACHABLE
    assert all("nightdesk up" in finding.remedy for finding in report.findings)


def test_jobs_without_a_worker_are_a_problem(installation: Installation) -> None:
    installation.use(lambda ledger: submit_many(ledger, 3))
    installation.use(lambda ledger: ledger.duties.promote(10))

    (finding,) = asyncio.run(examine()).findings

    assert (finding.check, finding.severity) == ("workers", Severity.PROBLEM)
    assert finding.what == "no worker is alive; 3 jobs wait"


def test_stuck_leases(installation: Installation) -> None:
    installation.use(submit_and_take)
    # A lease of 60 s that ran out just under two lease times ago may still be rescued in time.
    installation.pass_time(timedelta(seconds=60 + 100))
    assert installation.findings() == {}
    installation.pass_time(timedelta(seconds=60))
    assert installation.finding("stuck_leases").severity is Severity.PROBLEM

    installation.use(lambda ledger: ledger.duties.rescue(10, None))
    assert installation.findings() == {}


def test_jobs_that_cannot_be_changed(installation: Installation) -> None:
    soon = datetime.now(UTC) + timedelta(minutes=1)
    installation.use(lambda ledger: submit_many(ledger, 2, deadline=soon))
    installation.execute("UPDATE job SET deadline = nightdesk_now()")
    installation.execute(
        "CREATE FUNCTION raise_poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poison'; END $$"
    )
    installation.execute(
        "CREATE TRIGGER poison BEFORE UPDATE ON job FOR EACH ROW WHEN (OLD.position = 0) EXECUTE FUNCTION raise_poison()"
    )
    installation.use(lambda ledger: ledger.duties.expire(10))

    finding = installation.findings()["quarantine"]

    assert finding.severity is Severity.PROBLEM
    assert finding.what.startswith("1 job can't be changed")
    assert "(expire: poison)" in finding.what
    installation.execute("DROP TRIGGER poison ON job")
    installation.execute("UPDATE quarantine SET until = nightdesk_now()")
    installation.use(lambda ledger: ledger.duties.expire(10))
    assert "quarantine" not in installation.findings()


def test_overdue_jobs(installation: Installation) -> None:
    in_future = datetime.now(UTC) + timedelta(minutes=5)
    installation.use(lambda ledger: submit(ledger, make_request(scheduled_at=in_future)))
    installation.pass_time(timedelta(minutes=5, seconds=30))
    assert installation.findings() == {}
    installation.pass_time(timedelta(minutes=1))
    assert "1 scheduled job was" in installation.finding("overdue").what

    installation.use(lambda ledger: ledger.duties.promote(10))
    assert installation.findings() == {}


def test_unpublished_results(installation: Installation) -> None:
    installation.use(finished)
    assert installation.findings() == {}
    installation.pass_time(timedelta(minutes=2))
    finding = installation.finding("unpublished")
    assert "1 final job" in finding.what

    async def publish(ledger: PostgresLedger) -> None:
        await ledger.outbox.mark_published(
            [(view.job_id, view.run) for view in await ledger.outbox.unpublished(10, timedelta(0))]
        )

    installation.use(publish)
    assert installation.findings() == {}


@pytest.mark.parametrize("reason", [HeldReason.BUDGET, HeldReason.TENANT_BUDGET, HeldReason.LANE_PAUSED])
def test_held_jobs_are_named_with_how_to_release_them(installation: Installation, reason: HeldReason) -> None:
    batch = make_batch()

    async def hold(ledger: PostgresLedger) -> None:
        for leased in await take(ledger, (await submit_many(ledger, 2, batch=batch)).job_ids):
            closed = closed_unknown(
                leased, await open_one(ledger, leased), then=later(leased, held_reason=reason, event="hold")
            )
            await ledger.attempts.close_attempts([closed])

    installation.use(hold)
    finding = installation.finding(f"held_{reason.value}")
    assert finding.what.startswith("2 jobs are held: ")
    # Jobs that a budget holds go on where it has more.
    with_money = {
        HeldReason.TENANT_BUDGET: "budget set",
        HeldReason.BUDGET: f"release {batch.id} --max-cost-usd",
    }
    sooner = with_money.get(reason, f"release {batch.id} --reason {reason.value}")
    assert f"nightdesk {sooner}" in finding.remedy

    installation.use(lambda ledger: ledger.actions.release(batch.id, reason, ACTOR))
    assert installation.findings() == {}


def test_possibly_billed_twice(installation: Installation) -> None:
    async def call_again(ledger: PostgresLedger) -> None:
        for reserved in (None, Decimal(0)):
            leased = await submit_and_take(ledger)
            attempt = await open_one(ledger, leased, reserved_usd=reserved)
            await ledger.attempts.close_attempts([closed_unknown(leased, attempt)])
            await open_one(ledger, leased)

    installation.use(call_again)
    finding = installation.finding("billed_twice")
    assert finding.severity is Severity.NOTE
    assert finding.what.startswith("possibly billed twice: 1 ")

    installation.pass_time(timedelta(days=8))
    assert "billed_twice" not in installation.findings()


def test_jobs_whose_rows_cannot_be_read(installation: Installation) -> None:
    async def lease_a_damaged_one(ledger: PostgresLedger) -> None:
        ids = (await submit_many(ledger, 3)).job_ids
        installation.execute(f"UPDATE job_request SET head = '[]' WHERE job_id = '{ids[1]}'")
        assert len(await take(ledger, ids)) == 2

    installation.use(lease_a_damaged_one)

    finding = installation.finding("unreadable")
    assert finding.what.startswith("1 job of the last 7 days failed ")


def test_attempts_left_open_on_final_jobs(installation: Installation) -> None:
    batch = make_batch(max_cost_usd=Decimal(1))

    async def cancel_during_call(ledger: PostgresLedger) -> None:
        leased = await submit_and_take(ledger, batch=batch)
        await ledger.attempts.open_attempts([make_attempt(leased, reserved_usd=Decimal("0.5"))])
        await ledger.actions.cancel([leased.job_id], ACTOR)
        await ledger.outbox.mark_published([(leased.job_id, leased.run)])

    installation.use(cancel_during_call)
    assert installation.findings() == {}  # its worker still may write down what became of it
    installation.pass_time(timedelta(seconds=60 + 61))
    assert "1 call" in installation.finding("attempts_left_open").what


# ---- invariants ------------------------------------------------------------------------------------------------


def test_money_that_does_not_add_up_is_found_when_asked_for(installation: Installation) -> None:
    installation.use(finished)
    installation.execute("UPDATE batch SET spent_usd = spent_usd + 1")
    assert installation.findings() == {}

    report = asyncio.run(examine(invariants=True))

    (finding,) = (finding for finding in report.findings if finding.check.startswith("invariant_"))
    assert (finding.check, finding.severity) == ("invariant_batch_spent_is_the_sum", Severity.PROBLEM)
    assert "1 times" in finding.what
    installation.execute("UPDATE batch SET spent_usd = spent_usd - 1")
    assert not any(finding.check.startswith("invariant_") for finding in asyncio.run(examine(invariants=True)).findings)
