"""The interface of a server for starting and stopping; PostgreSQL and Valkey each implement it in their own module."""

import signal
from pathlib import Path
from typing import Protocol

from worker.local.account import Account
from worker.supervise.processes import Identity

__all__ = ["Server"]


class Server(Protocol):
    """One server of one home."""

    @property
    def name(self) -> str:
        """``postgres`` or ``valkey``."""

    @property
    def identity(self) -> Identity:
        """The identity of its process."""

    @property
    def log(self) -> Path:
        """The file with its output."""

    @property
    def stop_signal(self) -> signal.Signals:
        """The signal that makes it save everything and end without waiting for its clients."""

    def prepare(self, port: int, account: Account, guard: int) -> None:
        """Creates the data if it is missing and writes the configuration; called only while the server is down.

        Programs that it runs on the data hold the guard, so that no other start begins before they end.

        Raises: LocalServerError.
        """

    def command(self) -> list[str]:
        """Returns the command line that runs it in the foreground."""

    def answers(self, port: int) -> bool:
        """Tells whether it serves clients now; False while it starts or recovers.

        Raises: LocalServerError if a longer wait cannot help, for example after a refused password.
        """

    def settle(self, port: int) -> None:
        """Creates the objects that clients expect in it if they are missing; called each time it begins to answer.

        Raises: LocalServerError.
        """
