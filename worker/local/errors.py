"""The errors of the embedded servers; each message names the remedy."""

__all__ = ["BinariesError", "HomeError", "LocalServerError", "StartError", "StartTimeoutError", "StopError"]


class LocalServerError(Exception):
    """The base of all errors of the embedded PostgreSQL and Valkey."""


class BinariesError(LocalServerError):
    """A server's program is missing, or the servers' account cannot execute it."""


class HomeError(LocalServerError):
    """The home directory is not usable: wrong owner, locked for too long, secrets lost, data of another home."""


class StartError(LocalServerError):
    """A server refused to start; the message includes the end of its log."""


class StartTimeoutError(StartError):
    """A server is alive but not ready in time; it keeps running, and another ``start`` continues to wait."""


class StopError(LocalServerError):
    """A server did not end in time; the message names its process id."""
