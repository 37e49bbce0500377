"""Logging of a process: one line an event on standard error, without secrets."""

import logging
import sys
from urllib.parse import urlsplit


class WithoutSecrets(logging.Filter):
    """Replaces what must never be logged, wherever in a record it stands."""

    def __init__(self, secrets: frozenset[str]) -> None:
        super().__init__()
        self._secrets = sorted((secret for secret in secrets if secret), key=len, reverse=True)

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every record, changed where it holds a secret."""
        message = record.getMessage()
        clean = message
        for secret in self._secrets:
            clean = clean.replace(secret, "***")
        if clean is not message:
            record.msg, record.args = clean, ()
        return True


def passwords_of(*urls: str) -> frozenset[str]:
    """The passwords in connection URLs."""
    return frozenset(password for url in urls if (password := urlsplit(url).password))


def configure_logging(level: str, secrets: frozenset[str] = frozenset()) -> None:
    """Log to standard error from ``level`` up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(WithoutSecrets(secrets))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # A line a message received and succeeded, a line a provider call: with thousands of them they say nothing.
    for chatty in ("celery.worker.strategy", "celery.app.trace", "kombu", "httpx2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
