"""A run that is interrupted, or whose workers or servers die, loses no job."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.cli_home import Home, new_home, question, read_lines, until, write_lines
from tests.deadlines import scale_to_load
from worker import local
from worker.cli.waiting import MOST_RESTARTS

SLOW = {"extractive_latency_s": "60", "drain_s": "1"}


@pytest.fixture
def home() -> Iterator[Home]:
    with new_home() as home:
        yield home


def test_an_interrupted_run_is_resumed(home: Home, tmp_path: Path) -> None:
    input_path = write_lines(tmp_path / "questions.jsonl", [*(question(number) for number in range(3)), "{"])
    out = tmp_path / "answers.jsonl"
    command = home.start("run", input_path, "-o", out, **SLOW)
    batch = command.batch()
    until(lambda: len(home.workers()) > 1, "workers")

    down = home.run("down")
    assert (down.code, "end it first" in down.err) == (1, True)
    assert home.servers_run()
    command.process.send_signal(signal.SIGINT)
    interrupted = command.ended()

    assert interrupted.code == 130
    assert f"nightdesk run --resume {batch} -o {out}" in interrupted.err
    assert not out.exists()
    assert home.workers() == {}
    assert not home.servers_run()

    resumed = home.run("run", "--resume", batch, "-o", out)

    assert resumed.code == 1, resumed.err
    assert [result["state"] for result in read_lines(out)] == ["completed", "completed", "completed", "failed"]
    assert home.workers() == {}
    assert not home.servers_run()


def test_a_second_interrupt_does_not_wait_for_calls_in_flight(home: Home, tmp_path: Path) -> None:
    input_path = write_lines(tmp_path / "questions.jsonl", [question(0)])
    command = home.start("run", input_path, "-o", tmp_path / "out", extractive_latency_s="600", drain_s="600")
    batch = command.batch()
    await_calls(home, batch, 1)

    command.process.send_signal(signal.SIGINT)
    command.await_message("Ctrl-C cuts them off")
    command.process.send_signal(signal.SIGINT)

    assert command.ended().code == 130
    assert home.workers() == {}
    assert not home.servers_run()


def await_calls(home: Home, batch: str, count: int) -> None:
    """Wait until so many calls are in flight."""
    # Not by a command: on a busy machine it takes longer to start than a call to end.
    with psycopg.connect(local.start(home.root).database_url, autocommit=True) as connection:
        running = "SELECT count(*) = %s FROM job WHERE batch_id = %s AND state = 'running'"
        until(lambda: connection.execute(running, (count, batch)).fetchone() == (True,), "calls in flight")


def test_a_worker_and_an_embedded_postgres_that_die_are_started_again(home: Home, tmp_path: Path) -> None:
    input_path = write_lines(tmp_path / "questions.jsonl", [question(number) for number in range(3)])
    patient = {"lease_s": f"{scale_to_load(4):.1f}", "extractive_latency_s": f"{scale_to_load(2):.1f}"}
    command = home.start("run", input_path, "-o", tmp_path / "out", **patient)
    batch = command.batch()

    home.kill("generate-1")
    await_calls(home, batch, 3)
    pid = local.status(home.root).postgres.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    done = command.ended()
    assert done.code == 0, done.err
    assert "the worker generate-1 ended by itself and is started again" in done.err
    assert [result["state"] for result in read_lines(tmp_path / "out")] == ["completed"] * 3


def test_a_worker_that_keeps_dying_ends_the_run_with_its_last_log_lines(home: Home, tmp_path: Path) -> None:
    input_path = write_lines(tmp_path / "questions.jsonl", [question(0)])
    command = home.start("run", input_path, "-o", tmp_path / "out", extractive_latency_s="600", drain_s="1")
    batch = command.batch()

    for _ in range(MOST_RESTARTS + 1):
        home.kill("generate-1")

    done = command.ended()
    assert done.code == 3
    assert "the worker generate-1 ended by itself. The end of" in done.err
    assert f"--resume {batch}" in done.err


def test_two_runs_share_a_home_and_the_last_to_end_stops_the_servers(home: Home, tmp_path: Path) -> None:
    input_paths = [write_lines(tmp_path / f"{name}.jsonl", [question(0), question(1)]) for name in ("one", "two")]
    runs = [home.start("run", path, "-o", path.with_suffix(".out"), extractive_latency_s="1") for path in input_paths]

    for command in runs:
        done = command.ended()
        assert done.code == 0, done.err

    # The same questions at the same moment are paid for once: the second run takes the batch of the first.
    results = [read_lines(path.with_suffix(".out")) for path in input_paths]
    assert results[0] == results[1]
    assert len({result["batch_id"] for result in results[0]}) == 1
    assert len(results[0]) == 2
    assert home.workers() == {}
    assert not home.servers_run()
