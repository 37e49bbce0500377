"""Commands over many jobs, ended midway: what is done stays done, nothing more is called, the same command does the rest."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.cli_home import Command, Home, new_home, question, until, write_lines
from tests.servers import Servers

JOBS = 1_200


@pytest.fixture
def home(servers: Servers, database_url: str) -> Iterator[Home]:
    with new_home(
        database_url=database_url, redis_url=servers.redis_url, key_prefix=f"{database_url.rpartition('_')[2]}:"
    ) as home:
        yield home


def submitted(home: Home, tmp_path: Path) -> str:
    """The id of a batch of three pages that no worker takes."""
    input_path = write_lines(tmp_path / "in.jsonl", [question(number) for number in range(JOBS)])
    accepted = home.run("submit", input_path, "--json")
    assert accepted.code == 0, accepted.err
    return str(accepted.json()["batch_id"])


def started_and_stopped(home: Home, database_url: str, position: int, *arguments: str) -> Command:
    """A command that was started, came as far as this job, and got Ctrl-C there."""
    with psycopg.connect(database_url) as holding, psycopg.connect(database_url, autocommit=True) as looking:
        holding.execute("SELECT FROM job WHERE position = %s FOR UPDATE", (position,))
        command = home.start(*arguments)
        waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        until(lambda: looking.execute(waits).rowcount, "the command waits for the job")
        command.process.send_signal(signal.SIGINT)
        command.ended()
    return command


def count(database_url: str, condition: str) -> int:
    with psycopg.connect(database_url) as connection:
        row = connection.execute(f"SELECT count(*) FROM job WHERE {condition}".encode()).fetchone()
        assert row is not None
        return int(row[0])


def test_a_cancel_ended_with_ctrl_c_says_how_it_goes_on_and_does(home: Home, database_url: str, tmp_path: Path) -> None:
    batch = submitted(home, tmp_path)

    ended = started_and_stopped(home, database_url, 700, "cancel", batch).ended()

    assert ended.code == 130
    assert "Ended midway: 500 jobs cancelled so far" in ended.err
    assert f"'nightdesk cancel {batch}' cancels the rest" in ended.err
    assert count(database_url, "state = 'cancelled'") == 500
    again = home.run("cancel", batch)
    assert (again.code, "700 jobs cancelled" in again.err) == (0, True), again.err
    assert count(database_url, "state = 'cancelled'") == JOBS
