"""Where a home keeps what the commands need: logs, worker records, notes on submissions, and who uses it now.

Under ``NIGHTDESK_HOME``: ``logs/`` and ``workers/`` (one log and one record a worker), ``submissions/`` (see
``notes``), ``use.lock``, ``ends-with-last-user``, and ``local/``, which belongs to the embedded servers.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import ConfigurationError
from worker.cli.exits import InUse
from worker.local.files import make_directory, open_lock, try_lock, write_atomically
from worker.local.polling import poll

MODE = 0o700


@dataclass(frozen=True, slots=True)
class Place:
    """The paths of a home; making it touches nothing on disk."""

    root: Path

    @property
    def logs(self) -> Path:
        """One log file a worker."""
        return self.root / "logs"

    @property
    def workers(self) -> Path:
        """One record and one guard a worker."""
        return self.root / "workers"

    @property
    def submissions(self) -> Path:
        """What the ledger does not hold of a submission."""
        return self.root / "submissions"

    @property
    def has_servers(self) -> bool:
        """Whether embedded servers were ever started here."""
        return (self.root / "local").is_dir()

    def create(self) -> None:
        """Make the directories that are missing; raises ``ConfigurationError`` when home can't be written to."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            for directory in (self.logs, self.workers, self.submissions):
                make_directory(directory, MODE)
        except OSError as error:
            raise ConfigurationError(
                f"NIGHTDESK_HOME is {self.root}, which can't be used ({error.strerror}): set it to a directory of yours"
            ) from error

    # ---- who uses it ----

    @contextmanager
    def used(self) -> Iterator["Use"]:
        """Be counted as a user, so that nobody stops what is needed; waits while somebody is just stopping it."""
        descriptor = open_lock(self.root / "use.lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield Use(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def alone(self, seconds: float) -> Iterator[None]:
        """Be the only user; raises ``InUse`` when others still are there after ``seconds``."""
        descriptor = open_lock(self.root / "use.lock")
        try:
            if not poll(lambda: try_lock(descriptor), seconds):
                raise InUse(
                    f"another nightdesk command is using {self.root} (a 'run', 'demo', 'up --foreground' or "
                    "'results --wait'): end it first, with Ctrl-C or SIGTERM"
                )
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def starting(self, seconds: float) -> Iterator[None]:
        """Be the only one who starts workers; raises ``InUse`` after ``seconds``."""
        descriptor = open_lock(self.workers / "lock")
        try:
            if not poll(lambda: try_lock(descriptor), seconds):
                raise InUse(f"another nightdesk command has been starting workers of {self.root} for {seconds:g} s")
            yield
        finally:
            os.close(descriptor)

    # ---- servers that a passing command started ----

    @property
    def _passing(self) -> Path:
        return self.root / "ends-with-last-user"

    @property
    def servers_are_passing(self) -> bool:
        """Whether the embedded servers are to be stopped by the last command that uses them."""
        return self._passing.exists()

    def mark_servers(self, *, passing: bool) -> None:
        """Note whether the last user is to stop the servers. It outlives a command that is killed."""
        if passing:
            write_atomically(self._passing, "")
        else:
            self._passing.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Use:
    """A user's hold on a home."""

    descriptor: int

    def is_last(self) -> bool:
        """Give the hold up; True for the last one, who then holds the home alone until its block ends.

        Of several that end at once exactly one is told True.
        """
        return try_lock(self.descriptor)
