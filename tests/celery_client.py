"""A producer's own Celery app, whose connections are closed at the end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery


@contextmanager
def celery_client(redis_url: str, **transport: Any) -> Iterator[Celery]:
    """An app with broker and result backend; ``Celery.close`` leaves the sockets of the backend to the garbage collector."""
    app = Celery(broker=redis_url, backend=redis_url, set_as_current=False)
    app.conf.update(broker_transport_options=transport, result_backend_transport_options=dict(transport))
    try:
        yield app
    finally:
        close_client(app)


def close_client(app: Celery) -> None:
    """Close all connections of an app."""
    backend: Any = app.backend
    backend.result_consumer.stop()
    # A result that goes later would connect again to leave its channel.
    backend.result_consumer._pubsub = None
    # Its client was given the pool, so it does not close it.
    backend.client.connection_pool.disconnect()
    app.close()
