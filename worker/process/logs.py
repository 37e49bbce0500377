"""Logging of a process: one line an event on standard error, without secrets."""

import logging
import sys
from urllib.parse import urlsplit


class WithoutSecrets(logging.Filter):
    """Replaces secrets anywhere in a record."""

    def __init__(self, secrets: frozenset[str]) -> None:
        super().__init__()
        self._secrets = sorted((secret for secret in secrets if secret), key=len, reverse=True)

    def filter(self, record: logging.LogRecord) -> bool:
        """Keeps every record, changed where it holds a secret."""
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
    """Logs to standard error from ``level`` up."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(WithoutSecrets(secrets))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # They log a line for each message and each provider call, thousands of them.
    for chatty in ("celery.worker.strategy", "celery.app.trace", "kombu", "httpx2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
