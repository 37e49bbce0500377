"""PostgreSQL is stopped with calls under way and started again: what was answered meanwhile is kept and written."""

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.cli_home import new_home
from tests.acceptance.conftest import System, questions
from tests.deadlines import scale_to_load, until
from worker import local


class HomeSystem(System):
    """A system over servers of its own, which a test may stop."""

    home: Path


@pytest.fixture
def system(tmp_path: Path) -> Iterator[HomeSystem]:
    with new_home() as home:
        where = local.start(home.root)
        system = HomeSystem(where.database_url, where.redis_url, tmp_path)
        system.home = home.root
        try:
            yield system
        finally:
            system.stop()


def crash(home: Path) -> None:
    """Kill the whole PostgreSQL at once, as a power cut would, and start it again."""
    pid = local.status(home).postgres.pid
    assert pid is not None
    os.kill(pid, 9)
    assert until(lambda: not local.status(home).postgres.running, 20)


def _count(system: HomeSystem) -> int:
    try:
        return int(system.scalar("SELECT count(*) FROM job WHERE finished_at IS NOT NULL"))
    except psycopg.OperationalError:
        return 0


def test_answers_outlive_a_worker_that_dies_while_the_database_is_away(system: HomeSystem) -> None:
    system.submit(questions(20))
    worker = system.start_worker(slots=20, extractive_latency_s=scale_to_load(2), lease_s=scale_to_load(30))
    system.until(lambda: system.scalar("SELECT count(*) FROM attempt WHERE closed_at IS NULL") == 20, what="calls")
    crash(system.home)
    system.until(lambda: _spooled(system) == 20, within_s=30, what="all answers in the spool")
    worker.kill()
    worker.wait(scale_to_load(10))

    local.start(system.home)
    system.start_worker(slots=20, lease_s=scale_to_load(30))
    system.until(lambda: _count(system) >= 20, within_s=120, what="all final")

    assert system.scalar("SELECT count(*) FROM attempt WHERE outcome = 'ok'") == 20
    assert system.scalar("SELECT count(*) FROM attempt") == 20, "nothing was called again"
    assert _spooled(system) == 0
    assert "were written from" in system.log(1)


def _spooled(system: HomeSystem) -> int:
    return sum(len(path.read_bytes().splitlines()) for path in system.logs.glob("spool/*/*.jsonl"))
