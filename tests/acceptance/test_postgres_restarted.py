"""PostgreSQL is stopped with calls under way and started again: what was answered meanwhile is kept and written."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.conftest import System, questions
from tests.deadlines import scale_to_load, until
from tests.seeded_homes import seed
from worker import local
from worker.ledger.schema_version import migrate


class Desk(System):
    """A system over servers of its own, which a test may stop."""

    home: Path


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    home = tmp_path / "home"
    seed(home, durable=True)
    where = local.start(home)
    migrate(where.database_url)
    desk = Desk(where.database_url, where.redis_url, tmp_path)
    desk.home = home
    try:
        yield desk
    finally:
        desk.stop()
        local.remove(home)


def crash(home: Path) -> None:
    """Kill the whole PostgreSQL at once, as a power cut would, and start it again."""
    pid = local.status(home).postgres.pid
    assert pid is not None
    os.kill(pid, 9)
    assert until(lambda: not local.status(home).postgres.running, 20)


@pytest.mark.parametrize("away_s", [0.0, 4.0])
def test_answers_that_came_while_the_database_was_away_are_not_paid_for_again(desk: Desk, away_s: float) -> None:
    desk.submit(questions(60))
    # A lease outlives the outage, so that whoever holds it can still write.
    desk.start_worker(slots=20, extractive_latency_s=1.0, lease_s=scale_to_load(20))
    desk.until(lambda: desk.scalar("SELECT count(*) FROM attempt WHERE outcome = 'ok'") >= 5, what="answers")
    desk.until(lambda: desk.scalar("SELECT count(*) FROM attempt WHERE closed_at IS NULL") >= 5, what="calls")
    crash(desk.home)
    ended = time.monotonic() + away_s
    while time.monotonic() < ended:
        time.sleep(0.05)
    where = local.start(desk.home)
    assert where.database_url == desk.database_url

    desk.until(lambda: _count(desk) >= 60, within_s=120, what="all final")

    assert desk.rows("SELECT state, count(*) FROM job GROUP BY state") == [("completed", 60)]
    assert desk.rows("SELECT DISTINCT outcome FROM attempt") == [("ok",)]
    assert desk.scalar("SELECT count(*) FROM attempt") == 60
    desk.until_final(60)


def _count(desk: Desk) -> int:
    try:
        return int(desk.scalar("SELECT count(*) FROM job WHERE finished_at IS NOT NULL"))
    except psycopg.OperationalError:
        return 0


def test_a_worker_told_to_stop_while_the_database_is_away_ends_in_time(desk: Desk) -> None:
    desk.submit(questions(10))
    worker = desk.start_worker(slots=20, extractive_latency_s=0.5, drain_s=2)
    desk.until(lambda: desk.scalar("SELECT count(*) FROM attempt WHERE closed_at IS NULL") >= 5, what="calls")
    crash(desk.home)
    worker.terminate()

    worker.wait(scale_to_load(40))

    local.start(desk.home)
    desk.start_worker(slots=20)
    desk.until_final(10)


def test_answers_outlive_a_worker_that_dies_while_the_database_is_away(desk: Desk) -> None:
    desk.submit(questions(20))
    worker = desk.start_worker(slots=20, extractive_latency_s=2.0, lease_s=scale_to_load(30))
    desk.until(lambda: desk.scalar("SELECT count(*) FROM attempt WHERE closed_at IS NULL") >= 10, what="calls")
    crash(desk.home)
    called = desk.until(lambda: _spooled(desk), within_s=30, what="a spool")
    ended = time.monotonic() + 3
    while time.monotonic() < ended:
        time.sleep(0.05)
    called = _spooled(desk)
    worker.kill()
    worker.wait(scale_to_load(10))

    local.start(desk.home)
    desk.start_worker(slots=20, lease_s=scale_to_load(30))
    desk.until(lambda: _count(desk) >= 20, within_s=120, what="all final")

    assert called >= 10
    assert desk.scalar("SELECT count(*) FROM attempt WHERE outcome = 'ok'") == 20
    assert desk.scalar("SELECT count(*) FROM attempt") == 20, "nothing was called again"
    assert _spooled(desk) == 0
    assert "were written from" in desk.log(1)


def _spooled(desk: Desk) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in desk.logs.glob("spool/*/*.jsonl"))
