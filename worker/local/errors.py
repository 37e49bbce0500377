"""Names what can go wrong with the embedded servers; each message says what to do about it."""

__all__ = ["BinariesError", "HomeError", "LocalServerError", "StartError", "StartTimeoutError", "StopError"]


class LocalServerError(Exception):
    """Any failure of the embedded PostgreSQL or Valkey; catch this one to catch them all."""


class BinariesError(LocalServerError):
    """A server's program is missing, or the account the servers run under cannot execute it."""


class HomeError(LocalServerError):
    """The home directory cannot be used: wrong owner, locked for too long, secrets lost, data of another home."""


class StartError(LocalServerError):
    """A server refused to start; carries the end of its log."""


class StartTimeoutError(StartError):
    """A server is alive but not ready in time; it was left running, so calling ``start`` again goes on waiting."""


class StopError(LocalServerError):
    """A server did not end in time; the message names its process id."""
