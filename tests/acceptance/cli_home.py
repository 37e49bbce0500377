"""A home of its own for each test of the command line, and the command run as a user runs it: as a process."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests import deadlines
from tests.acceptance.command import Ended, run_here
from tests.forking import PROGRAM, start_command
from tests.left_homes import remove, watch
from tests.run_directory import parent_of_homes
from tests.seeded_homes import seed
from worker import local
from worker.supervise.state_directory import StateDirectory
from worker.supervise.workers import supervisors_in

DEADLINE_S = 90.0
"""Far more than anything here takes on a machine with a free core; a busy one has longer."""


@dataclass(frozen=True)
class Home:
    """A home, and the environment that commands see."""

    root: Path
    settings: dict[str, str] = field(default_factory=dict)
    commands: list["Command"] = field(default_factory=list)

    @property
    def place(self) -> StateDirectory:
        return StateDirectory(self.root)

    def environment(self, **settings: str) -> dict[str, str]:
        named = {f"NIGHTDESK_{name.upper()}": value for name, value in {**self.settings, **settings}.items()}
        return {**os.environ, "NIGHTDESK_HOME": str(self.root), **named}

    def start(self, *arguments: str | Path, **settings: str) -> "Command":
        """Start a command and return at once."""
        return self._start(arguments, settings)

    def execute(self, *arguments: str | Path, **settings: str) -> "Command":
        """Do as ``start`` with nothing forked: the command and its workers are executed as a user's are."""
        return self._start(arguments, settings, PROGRAM)

    def _start(
        self,
        arguments: Sequence[str | Path],
        settings: dict[str, str],
        program: Sequence[str] | None = None,
        stdin: int | None = None,
    ) -> "Command":
        directory = Path(tempfile.mkdtemp(prefix="command-", dir=self.root.parent))
        with (directory / "out").open("wb") as out, (directory / "err").open("wb") as err:
            process = start_command(
                arguments,
                self.environment(**settings),
                stdout=out.fileno(),
                stderr=err.fileno(),
                stdin=stdin,
                program=program,
            )
        command = Command(process, directory)
        self.commands.append(command)
        return command

    def run(self, *arguments: str | Path, stdin: bytes = b"", **settings: str) -> Ended:
        """Run a command to its end: in this process, unless something is given on standard input."""
        if not stdin:
            return run_here(arguments, self.environment(**settings))
        with tempfile.TemporaryFile() as file:
            file.write(stdin)
            file.seek(0)
            return self._start(arguments, settings, stdin=file.fileno()).ended()

    def workers(self) -> dict[str, int]:
        """Name and process id of the workers that run."""
        if not self.place.workers.is_dir():
            return {}
        return {
            name: worker_process.pid
            for supervisor in supervisors_in(self.place)
            for name, worker_process in supervisor.running().items()
        }

    def kill(self, name: str) -> int:
        """Kill a worker the hard way, once it is more than the shell that starts it; return its process id."""

        def is_python() -> int | None:
            pid = self.workers().get(name)
            try:
                return pid if pid and psutil.Process(pid).cmdline()[:1] == [sys.executable] else None
            except psutil.NoSuchProcess:
                return None

        pid: int = until(is_python, f"the worker {name}")
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.workers().get(name) != pid, "its end")
        return pid

    def servers_run(self) -> bool:
        status = local.status(self.root)
        return status.postgres.running or status.valkey.running


@dataclass(frozen=True)
class Command:
    """A command that runs; its output goes to files, so that it can be looked at meanwhile."""

    process: "subprocess.Popen[bytes]"
    directory: Path

    def await_message(self, pattern: str) -> "re.Match[str]":
        """Wait until the command has said something on standard error."""

        def look() -> "re.Match[str] | None":
            over = self.process.poll() is not None
            match = re.search(pattern, (self.directory / "err").read_text())
            assert match or not over, f"ended without saying {pattern!r}: {self.ended().err}"
            return match

        match: re.Match[str] = until(look, pattern)
        return match

    def batch(self) -> str:
        """The batch id that a run tells as soon as its jobs are accepted."""
        return self.await_message(r"batch ([0-9a-f-]{36}): ")[1]

    def ended(self) -> Ended:
        """Wait for the end."""
        until(lambda: self.process.poll() is not None, "the end of the command")
        return Ended(
            self.process.returncode, (self.directory / "out").read_text(), (self.directory / "err").read_text()
        )


def until(look: Callable[[], Any], what: str) -> Any:
    """Wait for something to become true."""
    value = deadlines.until(look, DEADLINE_S)
    assert value, f"not within {DEADLINE_S:.0f} s of a free machine: {what}"
    return value


@contextmanager
def new_home(*, seeded: bool = True, **settings: str) -> Iterator[Home]:
    """A home whose processes and data are gone afterwards, whatever a test left running.

    With ``seeded``, its embedded PostgreSQL is initialised and migrated.
    """
    # Not tmp_path: as root that one lies below a 0700 directory, and the servers' data would be put elsewhere.
    base = Path(tempfile.mkdtemp(prefix="nightdesk-cli-", dir=parent_of_homes()))
    base.chmod(0o755)
    home = Home(base / "home", settings)
    watch(home.root)
    if seeded and "database_url" not in settings:
        seed(home.root)
    try:
        yield home
    finally:
        for command in home.commands:
            command.process.kill()
            command.process.wait()
            # Shown beside a failure.
            sys.stderr.write(command.directory.joinpath("err").read_text())
        for log in sorted(home.place.logs.glob("*.log")):
            sys.stderr.write(f"{log.name}\n{log.read_text(errors='replace')[-3000:]}\n")
        for pid in home.workers().values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        remove(home.root)
        shutil.rmtree(base)


@contextmanager
def new_running_home(**settings: str) -> Iterator[Home]:
    """A home whose servers and workers stay up: commands start and stop none, which is most of their work."""
    with new_home(**settings) as home:
        done = home.run("up")
        assert done.code == 0, done.err
        yield home


def question(number: int, **fields: Any) -> dict[str, Any]:
    """A question that the offline provider answers from its one source."""
    return {
        "custom_id": f"q{number}",
        "query": f"How long is the warranty of the product {number}?",
        "context": [f"The warranty of the product {number} lasts {number + 2} years from the date of purchase."],
        **fields,
    }


def write_lines(path: Path, values: Sequence[Any]) -> Path:
    """A file of JSON lines; strings go in as they are."""
    lines = (value if isinstance(value, str) else json.dumps(value) for value in values)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
