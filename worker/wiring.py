"""Builds the real things from the settings: servers, providers, app and runtime."""

import logging
from dataclasses import dataclass

from schemas.states import Step
from tasks.errors import ConfigurationError
from tasks.ports import Provider
from worker import local
from worker.providers.extractive import Extractive
from worker.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the ledger and the doorbell are; ``started`` names the embedded servers that this process started."""

    database_url: str
    redis_url: str
    started: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"Endpoints(started={sorted(self.started)})"


def embedded(settings: Settings) -> bool:
    """Whether the embedded servers are used; raises ``ConfigurationError`` when only one URL is set."""
    given = [settings.database_url, settings.redis_url]
    if all(url is not None for url in given):
        return False
    if any(url is not None for url in given):
        missing = "NIGHTDESK_REDIS_URL" if settings.redis_url is None else "NIGHTDESK_DATABASE_URL"
        raise ConfigurationError(f"{missing} is not set: set both URLs, or neither for the embedded servers")
    return True


def endpoints(settings: Settings) -> Endpoints:
    """The servers to use: those of the settings, or the embedded ones, started when they don't run.

    Raises: ConfigurationError, worker.local.LocalServerError.
    """
    if not embedded(settings):
        assert settings.database_url is not None
        assert settings.redis_url is not None
        return Endpoints(settings.database_url.get_secret_value(), settings.redis_url.get_secret_value())
    running = local.start(settings.home.absolute())
    return Endpoints(running.database_url, running.redis_url, running.started)


class ConfiguredProviders:
    """``tasks.ports.Providers`` of the settings; each is built once, when it is first asked for."""

    def __init__(self, settings: Settings) -> None:
        self._default = settings.provider
        self._build = {"extractive": lambda: Extractive(latency_s=settings.extractive_latency_s)}
        self._built: dict[str, Provider] = {}

    def get(self, name: str | None) -> Provider:
        """See ``tasks.ports.Providers``."""
        name = name or self._default
        provider = self._built.get(name)
        if provider is None:
            build = self._build.get(name)
            if build is None:
                raise ConfigurationError(
                    f"no provider {name!r} is configured; there is {', '.join(sorted(self._build))}"
                )
            provider = self._built[name] = build()
        return provider


STEPS_OF_QUEUE = {"generate": Step.GENERATE, "check": Step.CHECK}
"""The queues that feed a step; the queue ``submit`` feeds the doors."""
