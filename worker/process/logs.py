"""Logging of a process: one line an event on standard error, for people or as JSON, without secrets."""

import logging
import sys
from urllib.parse import urlsplit

import orjson

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
DATE = "%Y-%m-%d %H:%M:%S%z"

CHATTY = ("celery.worker.strategy", "celery.app.trace", "celery.apps.worker", "kombu", "httpx2")
"""Loggers with a line for each message and each provider call, thousands of them, or for what we log ourselves."""


class WithoutSecrets(logging.Formatter):
    """Formats by another formatter and replaces secrets anywhere in its line, a traceback included."""

    def __init__(self, inner: logging.Formatter, secrets: frozenset[str]) -> None:
        super().__init__()
        self._inner = inner
        # As JSON, a quotation mark of a password is written otherwise.
        forms = {form for secret in secrets if secret for form in (secret, orjson.dumps(secret).decode()[1:-1])}
        self._secrets = sorted(forms, key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = self._inner.format(record)
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line


def passwords_of(*urls: str) -> frozenset[str]:
    """The passwords in connection URLs."""
    return frozenset(password for url in urls if (password := urlsplit(url).password))


def configure_logging(
    level: str, secrets: frozenset[str] = frozenset(), *, log_format: str = "text", worker: str = ""
) -> None:
    """Logs to standard error from ``level`` up.

    Args:
        level: name of a level.
        secrets: texts that no line may hold.
        log_format: ``text``; ``json``; or ``auto``, which is text on a terminal and JSON elsewhere.
        worker: name of this process in each JSON line.
    """
    as_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(WithoutSecrets(_json(worker) if as_json else logging.Formatter(TEXT, DATE), secrets))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in CHATTY:
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _json(worker: str) -> logging.Formatter:
    # Commands, and workers that log for people, start without it.
    from pythonjsonlogger.orjson import OrjsonFormatter  # noqa: PLC0415

    return OrjsonFormatter(
        ["levelname", "name", "message"],
        timestamp="time",
        rename_fields={"levelname": "level", "name": "logger", "exc_info": "error"},
        static_fields={"worker": worker} if worker else {},
    )
