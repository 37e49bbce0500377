"""The lease keeper over a real ledger: it renews, says what is lost, and lets a dead loop's leases lapse."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest

from schemas.states import Step
from tasks.ports import LeaseKey
from tests.builders import make_batch, make_jobs, make_request
from tests.deadlines import scale_to_load, until
from tests.lent_ledger import KeptLedger
from worker.process import lease_renewer
from worker.process.lease_renewer import LeaseRenewer

LEASE = timedelta(seconds=0.8)


class Loop:
    """An event loop in a thread, as a worker has it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.stop()


def leased(database_url: str) -> LeaseKey:
    async def scenario() -> LeaseKey:
        async with KeptLedger(database_url) as ledger:
            await ledger.submission.submit(make_batch(), [make_jobs(make_request())])
            (job,) = await ledger.queue.lease(Step.GENERATE, "w", LEASE, 1)
            return LeaseKey(job.job_id, job.token)

    return asyncio.run(scenario())


def lease_end(database_url: str, job_id: UUID) -> datetime:
    with psycopg.connect(database_url) as connection:
        (end,) = connection.execute("SELECT lease_until FROM job WHERE id = %s", [job_id]).fetchone() or (None,)
    assert isinstance(end, datetime)
    return end


def eventually(true: Callable[[], bool]) -> None:
    assert until(true, 10)


def started(database_url: str, loop: Loop, dead: Callable[[], None] | None = None) -> LeaseRenewer:
    keeper = LeaseRenewer(database_url, LEASE, loop.loop, dead=dead)
    loop.loop.call_soon_threadsafe(keeper.start)
    return keeper


def test_a_held_lease_outlives_itself(database_url: str, loop: Loop) -> None:
    keeper, key = started(database_url, loop), leased(database_url)
    keeper.leases.hold(key, lambda: None)
    later = lease_end(database_url, key.job_id) + 2 * LEASE
    eventually(lambda: lease_end(database_url, key.job_id) > later)
    asyncio.run(keeper.stop())


def test_a_loop_that_stood_still_reads_what_came_before_it_is_told_of_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    now, later, losses = time.monotonic(), [], []
    monkeypatch.setattr(lease_renewer, "monotonic", lambda: now)
    loop = SimpleNamespace(call_later=lambda seconds, _: later.append(seconds))
    keeper = LeaseRenewer("postgresql://nobody@127.0.0.1:1/none", LEASE, cast("Any", loop))

    def lose() -> tuple[int, int]:
        """Loses a lease; how many losses were told at once by then, and later."""
        keeper._lose(lambda: losses.append(now))
        return len(losses), later.count(lease_renewer.READ_FIRST_S)

    now += 1.5
    assert lose() == (1, 0)
    now += 3
    assert lose() == (1, 1), "its sign of life is overdue"
    keeper._beat()
    now += 1
    assert lose() == (1, 2), "it was, a moment ago"
    for _ in range(10):
        keeper._beat()
        now += 1
    assert lose() == (2, 2)
    keeper._own_loop.close()


def test_a_row_that_another_transaction_has_locked_holds_up_no_other_lease(database_url: str, loop: Loop) -> None:
    locked_lease, free_lease = leased(database_url), leased(database_url)
    keeper = started(database_url, loop)
    with psycopg.connect(database_url) as stranger:
        stranger.execute("SELECT FROM job WHERE id = %s FOR UPDATE", [locked_lease.job_id])
        end, later = (lease_end(database_url, key.job_id) for key in (locked_lease, free_lease))
        for key in (locked_lease, free_lease):
            keeper.leases.hold(key, lambda: None)
        later += 2 * LEASE
        eventually(lambda: lease_end(database_url, free_lease.job_id) > later)
        assert lease_end(database_url, locked_lease.job_id) == end
        assert not keeper.leases.surely_held(locked_lease, time.monotonic() - LEASE.total_seconds())
    eventually(lambda: lease_end(database_url, locked_lease.job_id) > end)
    asyncio.run(keeper.stop())


def test_a_lease_is_surely_held_while_it_was_confirmed_or_renewed_lately(database_url: str, loop: Loop) -> None:
    keeper, key = started(database_url, loop), leased(database_url)
    long_ago = time.monotonic() - LEASE.total_seconds()
    assert keeper.leases.surely_held(key, time.monotonic() + 60)
    assert not keeper.leases.surely_held(key, long_ago), "nobody renews it"
    lost = threading.Event()
    keeper.leases.hold(key, lost.set)
    eventually(lambda: keeper.leases.surely_held(key, long_ago))

    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE job SET lease_token = gen_random_uuid()")
    assert lost.wait(scale_to_load(10))
    assert not keeper.leases.surely_held(key, long_ago)
    asyncio.run(keeper.stop())


def test_a_released_lease_is_not_renewed(database_url: str, loop: Loop) -> None:
    keeper, key = started(database_url, loop), leased(database_url)
    keeper.leases.hold(key, lambda: None)
    keeper.leases.release(key)
    eventually(lambda: lease_end(database_url, key.job_id) < datetime.now(UTC))
    asyncio.run(keeper.stop())


def test_a_loop_that_is_dead_does_not_keep_its_leases(
    database_url: str, loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lease_renewer, "STALLED_LEASES", 1)
    dead = threading.Event()
    keeper, key = started(database_url, loop, dead=dead.set), leased(database_url)
    keeper.leases.hold(key, lambda: None)
    frozen = threading.Event()
    loop.loop.call_soon_threadsafe(frozen.wait, scale_to_load(15))
    eventually(lambda: lease_end(database_url, key.job_id) < datetime.now(UTC))
    loss = dead.wait(scale_to_load(10))
    frozen.set()
    asyncio.run(keeper.stop())

    assert loss
    assert "no sign of life" in caplog.text


def test_the_keeper_waits_for_a_database_that_is_away(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    keeper = started("postgresql://nobody@127.0.0.1:1/none", loop)
    assert until(lambda: "leases could not be renewed" in caplog.text, 30)
    asyncio.run(keeper.stop())
