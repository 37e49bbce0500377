"""States what starting and stopping ask of a server; PostgreSQL and Valkey each answer it in their own module."""

import signal
from pathlib import Path
from typing import Protocol

from worker.local.account import Account
from worker.local.process import Identity

__all__ = ["Server"]


class Server(Protocol):
    """One server of one home."""

    @property
    def name(self) -> str:
        """``postgres`` or ``valkey``."""

    @property
    def identity(self) -> Identity:
        """How its process is recognised."""

    @property
    def log(self) -> Path:
        """The file its output goes to."""

    @property
    def stop_signal(self) -> signal.Signals:
        """The signal that makes it save everything and end without waiting for its clients."""

    def prepare(self, port: int, account: Account, guard: int) -> None:
        """Make the data if it is missing and write the configuration; called only while the server is down.

        Programs it runs on the data hold the guard, so that nobody else begins while one is left over.

        Raises: LocalServerError.
        """

    def command(self) -> list[str]:
        """Return the command line that runs it in the foreground."""

    def answers(self, port: int) -> bool:
        """Tell whether it serves clients now; False while it starts or recovers.

        Raises: LocalServerError when waiting longer cannot help, such as a refused password.
        """

    def settle(self, port: int) -> None:
        """Make what clients expect to find in it, if it is missing; called each time it has begun to answer.

        Raises: LocalServerError.
        """
