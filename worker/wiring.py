"""Finds the servers that the settings name, or starts the embedded ones."""

import logging
from dataclasses import dataclass

from schemas.states import Step
from tasks.errors import ConfigurationError
from worker import local
from worker.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The URLs of the ledger and of Redis; ``started`` names the embedded servers that this process started."""

    database_url: str
    redis_url: str
    started: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"Endpoints(started={sorted(self.started)})"


def embedded(settings: Settings) -> bool:
    """Tells whether the embedded servers are used; raises ``ConfigurationError`` when only one URL is set."""
    urls = [settings.database_url, settings.redis_url]
    if all(url is not None for url in urls):
        return False
    if any(url is not None for url in urls):
        missing = "NIGHTDESK_REDIS_URL" if settings.redis_url is None else "NIGHTDESK_DATABASE_URL"
        raise ConfigurationError(f"{missing} is not set: set both URLs, or neither for the embedded servers")
    return True


def endpoints(settings: Settings) -> Endpoints:
    """Returns the servers of the settings, or the embedded ones, which it starts when they don't run.

    Raises: ConfigurationError, worker.local.LocalServerError.
    """
    if not embedded(settings):
        assert settings.database_url is not None
        assert settings.redis_url is not None
        return Endpoints(settings.database_url.get_secret_value(), settings.redis_url.get_secret_value())
    running = local.start(settings.home.absolute())
    return Endpoints(running.database_url, running.redis_url, running.started)


STEPS_OF_QUEUE = {step.value: step for step in Step}
"""The queues that feed a step; the queue ``submit`` feeds none."""
