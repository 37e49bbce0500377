"""Chooses the servers of the settings, or the embedded ones."""

from worker import local
from worker.local import Endpoints
from worker.settings import Settings


def endpoints(settings: Settings) -> Endpoints:
    """Returns the servers of the settings, or the embedded ones, which it starts when they don't run.

    Raises: ConfigurationError, worker.local.LocalServerError.
    """
    if settings.embedded():
        return local.start(settings.home.absolute())
    assert settings.database_url is not None
    assert settings.redis_url is not None
    return Endpoints(settings.database_url.get_secret_value(), settings.redis_url.get_secret_value())
