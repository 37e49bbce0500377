"""Lays out the state directory of a home: logs, worker records, and the locks of its users.

Under ``NIGHTDESK_HOME``: ``logs/`` and ``workers/`` (one log and one record a worker), ``use.lock``, ``workers.lock``,
``ends-with-last-user``, and ``local/``, which belongs to the embedded servers.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import ConfigurationError, NightdeskError
from worker.settings import Settings
from worker.supervise.files import make_directory, open_lock, try_lock, write_atomically
from worker.supervise.processes import exclusive_lock

MODE = 0o700


class InUse(NightdeskError):
    """Another command still uses the processes or the directory that this one must have for itself."""


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """The paths of a home; its construction changes nothing on disk."""

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
    def has_servers(self) -> bool:
        """True if embedded servers were ever started here."""
        return (self.root / "local").is_dir()

    def create(self) -> None:
        """Makes the missing directories; raises ``ConfigurationError`` when home can't be written to."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            for directory in (self.logs, self.workers):
                make_directory(directory, MODE)
        except OSError as error:
            raise ConfigurationError(
                f"NIGHTDESK_HOME is {self.root}, which can't be used ({error.strerror}): set it to a directory of yours"
            ) from error

    # ---- users ----

    def use(self) -> AbstractContextManager["Use"]:
        """Counts the caller as a user, so that no command stops its servers; waits while a command is stopping them."""
        return _shared(self.root / "use.lock")

    def use_workers(self) -> AbstractContextManager["Use"]:
        """Counts the caller as a user of workers that it may start, as ``use`` does for servers."""
        return _shared(self._workers_lock)

    @property
    def _workers_lock(self) -> Path:
        return self.root / "workers.lock"

    @property
    def has_user_of_workers(self) -> bool:
        """True if a command runs that started workers, or may start some."""
        if not self._workers_lock.exists():
            return False
        descriptor = open_lock(self._workers_lock)
        try:
            return not try_lock(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def exclusive_use(self, seconds: float) -> Iterator[None]:
        """Makes the caller the only user; raises ``InUse`` when there still are others after ``seconds``."""
        refusal = InUse(
            f"another nightdesk command is using {self.root}, such as 'run' or 'serve': end it first, with Ctrl-C or SIGTERM"
        )
        with exclusive_lock(self.root / "use.lock", seconds, refusal):
            yield

    @contextmanager
    def exclusive_start(self, seconds: float) -> Iterator[None]:
        """Lets only the caller start workers; raises ``InUse`` after ``seconds``."""
        refusal = InUse(f"another nightdesk command has been starting workers of {self.root} for {seconds:g} s")
        with exclusive_lock(self.workers / "lock", seconds, refusal):
            yield

    # ---- ephemeral servers ----

    @property
    def _ephemeral_mark(self) -> Path:
        return self.root / "ends-with-last-user"

    @property
    def servers_are_ephemeral(self) -> bool:
        """True if the last command that uses the embedded servers stops them."""
        return self._ephemeral_mark.exists()

    def mark_servers(self, *, ephemeral: bool) -> None:
        """Stores if the last user stops the servers. The mark outlives a command that is killed."""
        if ephemeral:
            write_atomically(self._ephemeral_mark, "")
        else:
            self._ephemeral_mark.unlink(missing_ok=True)

    def release_servers(self) -> None:
        """Stores that the command which answers for the servers has ended by itself, so that any last user stops them."""
        if self.servers_are_ephemeral:
            write_atomically(self._ephemeral_mark, _RELEASED)

    @property
    def servers_are_released(self) -> bool:
        """True if the last user, whatever it does, stops the servers."""
        return self.servers_are_ephemeral and self._ephemeral_mark.read_text(encoding="utf-8") == _RELEASED


_RELEASED = "released"


@contextmanager
def _shared(lock: Path) -> Iterator["Use"]:
    descriptor = open_lock(lock)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield Use(descriptor)
    finally:
        os.close(descriptor)


def state_of(settings: Settings) -> StateDirectory:
    """The home of these settings."""
    return StateDirectory(settings.home.expanduser().absolute())


@dataclass(frozen=True, slots=True)
class Use:
    """The share of one user in a home, or in its workers."""

    descriptor: int

    def is_last(self) -> bool:
        """Gives the share up; True for the last user, who then is alone until its block ends.

        Of several users that end at once exactly one gets True.
        """
        return try_lock(self.descriptor)
