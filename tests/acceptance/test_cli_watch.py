"""``nightdesk watch`` looks on: from another process, after an interrupt, and when all is over."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli_home import Home, new_home, question, write_lines


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with new_home(extractive_latency_s="1", drain_s="1") as home:
        assert home.run("up").code == 0
        yield home


def submitted(home: Home, tmp_path: Path, *lines: object) -> str:
    return home.run("submit", write_lines(tmp_path / "in.jsonl", lines)).out.strip()


def test_a_batch_is_followed_to_its_end_also_after_an_interrupt(home: Home, tmp_path: Path) -> None:
    batch = submitted(home, tmp_path, *(question(number, scheduled_at="2999-01-01T00:00:00Z") for number in range(3)))
    command = home.start("watch", batch, "--json")
    command.await_message(r"0 of 3 final, next job at 2999-01-01 .*: 3 scheduled")
    command.process.send_signal(signal.SIGINT)
    assert command.ended().code == 130
    assert f"Look again with: nightdesk watch {batch}" in command.ended().err

    again = home.start("watch", batch, "--json")
    assert home.run("cancel", batch).code == 0
    done = again.ended()

    assert done.code == 1
    assert json.loads(done.out)["states"] == {"cancelled": 3}
    assert "3 jobs: 3 cancelled" in done.err


def test_watch_prints_each_change_of_a_job_until_it_is_final(home: Home, tmp_path: Path) -> None:
    batch = submitted(home, tmp_path, question(0, scheduled_at="2999-01-01T00:00:00Z"))
    command = home.start("watch", f"{batch}:q0", "--json")
    command.await_message("scheduled, generate")
    cancelled = home.run("cancel", batch)
    assert (cancelled.code, "1 job cancelled" in cancelled.err) == (0, True)
    command.await_message("cancelled")
    assert command.ended().code == 1
    retried = home.run("retry", f"{batch}:q0")
    assert (retried.code, "1 job starts a new run" in retried.err) == (0, True)
    done = home.run("watch", f"{batch}:q0", "--json")

    assert done.code == 0, done.err
    job_json = json.loads(done.out)
    assert (job_json["batch_id"], job_json["state"], job_json["outcome"]) == (batch, "completed", "answered")
    edges = [
        line.partition(": ")[2] for line in done.err.splitlines() if line.startswith(f"job {job_json['job_id']}: ")
    ]
    assert edges[-1] == "completed, answered (run 2, round 0)"
    assert home.run("watch", job_json["job_id"]).err.count(": completed, answered") == 1
