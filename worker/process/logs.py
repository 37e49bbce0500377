"""Logging of a process: one line an event on standard error, for people or as JSON, without secrets."""

import logging
import re
import sys
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tasks.masking import masked
from worker.variables import Variables

if TYPE_CHECKING:
    from worker.local import Endpoints
    from worker.settings import Settings

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
DATE = "%Y-%m-%d %H:%M:%S%z"

CHATTY = ("celery.worker.strategy", "celery.app.trace", "celery.apps.worker", "kombu", "httpx2")
"""Loggers with a line for each message and each provider call, thousands of them, or for what we log ourselves."""


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda character: character[0].encode("unicode_escape").decode(), text)


class Lines(logging.Formatter):
    """Formats for people: text from outside makes no line of its own, and steers no terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        """The first line."""
        return _escaped(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the library's name
        """The lines of a traceback, indented."""
        return "\n".join(f"    {_escaped(line)}" for line in super().formatException(ei).split("\n"))


class WithoutSecrets(logging.Formatter):
    """Formats by another formatter and masks secrets anywhere in its line, a traceback included."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return masked(self._inner.format(record))


REPEATED_S = 60.0
"""Seconds in which a line of trouble is written once."""

MOST_LINES = 1_000
"""Lines that are remembered."""

_NUMBER = re.compile(r"\b\d+\b")


class OncePerMinute(logging.Filter):
    """Lets a warning or an error pass that is not the last minute's, whatever numbers its error has; the next one counts those between.

    What is tried again each second while a server is away would fill a disk in a night.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lines: dict[tuple[str, ...], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Tells whether the line is to be written."""
        if record.levelno < logging.WARNING:
            return True
        parts = record.args if isinstance(record.args, tuple) else (record.args,)
        key = (record.name, str(record.msg), *map(_likeness, parts), _likeness(record.exc_info and record.exc_info[1]))
        now = self._clock()
        at, unwritten = self._lines.get(key, (float("-inf"), 0))
        if now - at < REPEATED_S:
            self._lines[key] = at, unwritten + 1
            return False
        if len(self._lines) >= MOST_LINES:
            self._lines.clear()
        self._lines[key] = now, 0
        if unwritten:
            record.msg = f"{record.getMessage()} ({unwritten} times more since the last such line)"
            record.args = None
        return True


def _likeness(part: object) -> str:
    """A part of a line without what differs from one try to the next; a name keeps its numbers: an address, a model."""
    if isinstance(part, int | float):
        return "#"
    return _NUMBER.sub("#", repr(part)) if isinstance(part, BaseException) else str(part)


def secrets_of(settings: "Settings", where: "Endpoints") -> frozenset[str]:
    """The secrets of the settings, the connection URLs and the environment; ``ConfiguredProviders`` hides its keys itself."""
    callback = settings.callback_secret
    own = set() if callback is None else {callback.get_secret_value()}
    return Variables().secrets.union(own, *map(_passwords_of, (where.database_url, where.redis_url)))


def _passwords_of(url: str) -> set[str]:
    """The passwords of a URL, as they stand there and as a server is told them."""
    parts = urlsplit(url)
    query = {value for name, value in parse_qsl(parts.query) if "password" in name}
    return {parts.password, unquote(parts.password), *query} if parts.password else query


def configure_logging(level: str, *, log_format: str = "text", worker: str = "") -> None:
    """Logs to standard error from ``level`` up.

    Args:
        level: name of a level.
        log_format: ``text``; ``json``; or ``auto``, which is text on a terminal and JSON elsewhere.
        worker: name of this process in each JSON line.
    """
    as_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(WithoutSecrets(_json(worker) if as_json else Lines(TEXT, DATE)))
    handler.addFilter(OncePerMinute())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in CHATTY:
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _json(worker: str) -> logging.Formatter:
    # Commands, and workers that log for people, start without it.
    from pythonjsonlogger.core import RESERVED_ATTRS  # noqa: PLC0415
    from pythonjsonlogger.orjson import OrjsonFormatter  # noqa: PLC0415

    return OrjsonFormatter(
        ["levelname", "name", "message"],
        timestamp="time",
        rename_fields={"levelname": "level", "name": "logger", "exc_info": "error"},
        static_fields={"worker": worker} if worker else {},
        # Celery puts the arguments of a message there: all its jobs with their sources.
        reserved_attrs=[*RESERVED_ATTRS, "data"],
    )
