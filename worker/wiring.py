"""Chooses the servers of the settings, or the embedded ones."""

from tasks.errors import ConfigurationError
from worker import local
from worker.local import Endpoints
from worker.settings import Settings


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
    if embedded(settings):
        return local.start(settings.home.absolute())
    assert settings.database_url is not None
    assert settings.redis_url is not None
    return Endpoints(settings.database_url.get_secret_value(), settings.redis_url.get_secret_value())
