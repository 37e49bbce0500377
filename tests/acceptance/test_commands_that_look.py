"""A command that looks changes nothing: no process ends or stays, no row and no file changes, whatever another command left."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest

from tests.acceptance.cli_home import Command, Home, new_home, question, read_lines, until, write_lines
from tests.acceptance.command import Ended
from worker import local
from worker.cli.commands import NAMES

LOOKS: dict[str, list[str]] = {
    "estimate": ["IN"],
    "status": [],
    "results": ["DONE"],
    "report": ["DONE", "--json"],
    "compare": ["DONE", "DONE"],
    "show": ["DONE:0"],
    "watch": ["DONE"],
    "doctor": [],
    "schema": [],
    "clean": [],
    "label": ["export"],
    "keys": ["list"],
    "budget": ["list"],
    "replay": ["DONE", "--dry-run"],
    "prune": ["--older-than", "1d", "--dry-run"],
}
"""Arguments of a command that only looks."""

FURTHER_LOOKS = (
    ["status", "OPEN"], ["results", "OPEN"], ["doctor", "--invariants"],
)  # fmt: skip

LEAVES_PROCESSES: dict[str, list[str]] = {
    "submit": ["IN"],
    "pause": ["OPEN"],
    "release": ["OPEN"],
    "label": ["DONE:0", "supported", "--by", "me"],
    "retry": ["OPEN"],
    "migrate": [],
    "prune": ["--older-than", "99d"],
    "cancel": ["OPEN"],
    "erase": ["--batch", "OPEN", "--yes"],
}
"""Arguments of a command that changes rows, and neither starts nor ends a process of others."""

STARTS_OR_ENDS = {"run", "check", "demo", "up", "down", "worker", "serve", "replay", "recheck"}
NO_LEDGER = {"calibrate"}


def test_each_command_is_looked_at() -> None:
    assert {*LOOKS, *LEAVES_PROCESSES, *STARTS_OR_ENDS, *NO_LEDGER} == set(NAMES)


@dataclass
class Night:
    """A home with an answered batch, whose servers are stopped, and the words that arguments stand for."""

    home: Home
    directory: Path
    names: dict[str, str]
    connections: ExitStack
    connection: "psycopg.Connection[Any] | None" = None

    def start_run(self, name: str) -> Command:
        """A run whose calls are under way; ``OPEN`` is its batch."""
        file, out = self.directory / "calls.jsonl", self.directory / f"{name}.jsonl"
        command = self.home.start("run", file, "--again", "-o", out, extractive_latency_s="600", drain_s="1")
        self.names["OPEN"] = command.batch()
        self.connection = None
        # A job runs a moment before its call is written down.
        running = "SELECT count(*) = 3 FROM attempt a JOIN job j ON j.id = a.job_id WHERE j.batch_id = %s"
        until(lambda: self.query(running, self.names["OPEN"]) == [(True,)], "calls in flight")
        return command

    def query(self, statement: LiteralString, *parameters: object) -> list[Any]:
        """Rows, by a connection to servers that run."""
        if self.connection is None or self.connection.closed:
            connection = psycopg.connect(local.start(self.home.root).database_url, autocommit=True)
            self.connection = self.connections.enter_context(connection)
        return self.connection.execute(statement, parameters).fetchall()

    def run(self, arguments: list[str]) -> Ended:
        """Runs a command with what its words stand for."""
        words = [":".join(self.names.get(part, part) for part in word.split(":")) for word in arguments]
        done = self.home.run(*words)
        assert done.code in {0, 1, 3}, (arguments, done.err)
        assert "Traceback" not in done.err, arguments
        return done

    def processes(self) -> dict[str, int | None]:
        servers = local.status(self.home.root)
        return {**self.home.workers(), "postgres": servers.postgres.pid, "valkey": servers.valkey.pid}

    def files(self) -> set[str]:
        parts = (part for part in self.home.root.iterdir() if part.name not in {"local", "logs"})
        paths = (path for part in parts for path in (part, *part.rglob("*")))
        return {str(path) for path in paths if path.suffix not in {".guard", ".ready"}}

    def rows(self) -> list[Any]:
        return self.query(
            "SELECT (SELECT json_agg(b ORDER BY id) FROM batch b)::text,"
            " (SELECT json_agg(json_build_array(id, state, run, held_reason) ORDER BY id) FROM job)::text,"
            " (SELECT json_agg(e ORDER BY e::text) FROM job_event e)::text, (SELECT count(*) FROM attempt),"
            " (SELECT version_num FROM alembic_version)"
        )


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    tmp_path = tmp_path_factory.mktemp("night")
    with new_home() as home, ExitStack() as connections:
        done = write_lines(tmp_path / "done.jsonl", [question(0)])
        assert home.run("run", done, "-o", tmp_path / "out.jsonl").code == 0
        names = {
            "IN": str(write_lines(tmp_path / "in.jsonl", [question(7)])),
            "DONE": read_lines(tmp_path / "out.jsonl")[0]["batch_id"],
        }
        # Longer than all looks take on a busy machine.
        patient = {"timeout_s": 600}
        write_lines(tmp_path / "calls.jsonl", [question(number, config=patient) for number in range(10, 13)])
        yield Night(home, tmp_path, names, connections)


def test_at_rest_a_look_leaves_nothing_running(night: Night) -> None:
    before = night.files()
    for name in ("status", "show", "doctor", "estimate", "replay", "keys"):
        done = night.run([name, *LOOKS[name]])
        assert night.home.workers() == {}, name
        assert not night.home.servers_run(), name
        assert night.files() == before, name
        assert ("'nightdesk status' tells what" in done.out) is (name == "doctor"), "jobs may be held"


def test_a_killed_run_goes_on_beside_other_commands_until_the_next_run_and_that_beside_a_look(night: Night) -> None:
    command = night.start_run("killed")
    command.process.send_signal(signal.SIGKILL)
    command.process.wait()
    before = night.processes(), night.files(), night.rows()
    assert len(before[0]) > 3, "the workers go on"

    for arguments in (*([name, *arguments] for name, arguments in LOOKS.items()), *FURTHER_LOOKS):
        done = night.run(arguments)
        assert (night.processes(), night.files(), night.rows()) == before, arguments
        if arguments[0] == "status":
            assert "a command that was killed left 2 workers, which go on: 'nightdesk down' ends them" in done.err
            assert ("2 workers of this home run" in done.out) is (len(arguments) == 1)

    for name, arguments in LEAVES_PROCESSES.items():
        night.run([name, *arguments])
        assert night.processes() == before[0], name

    command = night.start_run("next")
    assert night.processes() == before[0], "the next run takes the workers"
    look = night.home.start("watch", night.names["OPEN"])
    look.await_message("final|available|running")
    command.process.terminate()
    assert command.ended().code == 130
    assert night.home.workers() == {}, "the workers go with the run"
    assert night.home.servers_run(), "the look goes on"
    look.process.send_signal(signal.SIGINT)
    look.ended()
    assert not night.home.servers_run(), "the servers go with the look that used them last"
