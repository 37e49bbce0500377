"""Commands and duties over many jobs: killed midway, beside other tenants' calls, and with rows that can't be changed."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg

from tasks.errors import LedgerUnavailable
from tasks.ports import LeaseKey
from tests.acceptance.conftest import questions
from tests.deadlines import scale_to_load
from tests.faults.lab import SLOTS, Lab, Report
from tests.faults.registry import JOBS, experiment
from tests.forking import REPOSITORY
from worker.ledger.pages import PAGE_ROWS
from worker.ledger.postgres import PostgresLedger

BIG = 2_000
SLOWEST_RENEWAL_S = 1.0
LEASE = timedelta(seconds=30)

_CALLS = "SELECT count(*) FROM attempt a JOIN job j ON j.id = a.job_id WHERE j.batch_id = %s"

_BAD, _LATE = 5, 20


@experiment("the cancel of a big batch killed midway beside another batch's calls, and given again", latency_s=2.0)
def cancel_killed(lab: Lab) -> Report:
    big, _ = lab.submit(questions(JOBS + BIG)[JOBS:])
    lab.work()
    lab.until_calling(10)
    with renewed(lab) as renewals:
        # The cancel comes as far as a job in its second page, and is killed there.
        with psycopg.connect(lab.database_url) as holding:
            holding.execute("SELECT FROM job WHERE batch_id = %s AND position = 700 FOR UPDATE", (big,))
            command = cancel(lab, big)
            lab.until(
                lambda: lab.count("job WHERE state = 'cancelled'") >= PAGE_ROWS, what="the first page is cancelled"
            )
            command.kill()
            command.wait()
        called = lab.scalar(_CALLS, big)
        lab.start_recovery()
        assert cancel(lab, big).wait(scale_to_load(60)) == 0
    report = lab.report(JOBS + BIG)
    # A worker may hold leases from before that wait for a slot.
    assert lab.scalar(_CALLS, big) <= called + SLOTS, "jobs were called after their batch was cancelled"
    cancelled = lab.count(f"job WHERE batch_id = '{big}' AND state = 'cancelled'")
    assert cancelled >= BIG - called, f"{cancelled} cancelled, though only {called} were called before"
    assert max(renewals) < scale_to_load(SLOWEST_RENEWAL_S), f"a renewal took {max(renewals):.2f} s"
    return lab.assert_settled(report)


def cancel(lab: Lab, batch_id: UUID) -> "subprocess.Popen[bytes]":
    """Start the command that cancels a batch."""
    with (lab.logs / "cancel.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "worker.cli", "cancel", str(batch_id)],
            cwd=REPOSITORY,
            env=lab.environment(),
            stderr=log,
        )


@contextmanager
def renewed(lab: Lab) -> Iterator[list[float]]:
    """Renew every lease there is again and again, each time in one statement; gives the seconds of each renewal."""
    renewals: list[float] = []
    end = threading.Event()

    async def renew(ledger: PostgresLedger) -> None:
        while not end.is_set():
            running = lab.rows("SELECT id, lease_token FROM job WHERE state = 'running' ORDER BY id")
            began = time.monotonic()
            # One whose connection is hung up counts with the time it took.
            with suppress(LedgerUnavailable):
                await ledger.queue.renew([LeaseKey(*row) for row in running], LEASE)
            renewals.append(time.monotonic() - began)

    async def work() -> None:
        async with PostgresLedger(lab.database_url, connections=1) as ledger:
            await renew(ledger)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        yield renewals
    finally:
        end.set()
        thread.join()


@experiment("jobs that can't be changed are the first to be late, others behind them")
def late_behind_bad(lab: Lab) -> Report:
    now = datetime.now(UTC)
    later = {"scheduled_at": (now + timedelta(hours=1)).isoformat()}
    spare = [{**job, **later} for job in questions(JOBS + _BAD + _LATE)[JOBS:]]
    _, bad = lab.submit([{**job, "deadline": (now + timedelta(seconds=1)).isoformat()} for job in spare[:_BAD]])
    lab.submit([{**job, "deadline": (now + timedelta(seconds=2)).isoformat()} for job in spare[_BAD:]])
    lab.execute(
        "CREATE FUNCTION raise_poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poison'; END $$"
    )
    ids = ", ".join(f"'{job_id}'" for job_id in bad)
    lab.execute(
        f"CREATE TRIGGER poison BEFORE UPDATE ON job FOR EACH ROW WHEN (OLD.id IN ({ids})) EXECUTE FUNCTION raise_poison()"
    )
    lab.work()
    lab.until(lambda: lab.count("job WHERE state = 'expired'") == _LATE, what="the others expired")
    lab.until(lambda: lab.count("quarantine WHERE duty = 'expire'") == _BAD, what="the bad ones are in quarantine")
    lab.execute("DROP TRIGGER poison ON job")
    # As if the minute had passed.
    lab.execute("UPDATE quarantine SET until = nightdesk_now()")
    lab.start_recovery()
    report = lab.report(JOBS + _BAD + _LATE)
    assert lab.count("job WHERE state = 'expired'") == _BAD + _LATE
    return lab.assert_settled(report)
