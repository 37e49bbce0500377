"""The Celery application, started by ``worker.process.main``."""

from typing import Any

from celery import Celery
from kombu import Queue

from worker.settings import Settings

QUEUES = ("generate", "check", "local", "submit")

INCLUDE = ("tasks.celery_tasks",)


def make_app(settings: Settings, redis_url: str) -> Celery:
    """Makes the application over one Redis, as broker and as result backend."""
    app = Celery("nightdesk", broker=redis_url, backend=redis_url, include=list(INCLUDE), set_as_current=False)
    # A loader of its own has each application.
    loader: Any = app.loader
    loader.override_backends = dict.fromkeys(("redis", "rediss"), "worker.process.message_replies:TenantsBackend")
    transport = _transport(settings)
    app.conf.update(
        # Messages carry ids and short JSON only; nothing that could execute.
        task_serializer="json",
        result_serializer="json",
        event_serializer="json",
        accept_content=["json"],
        task_queues=[Queue(name) for name in dict.fromkeys((*QUEUES, *settings.submit_queues))],
        task_create_missing_queues=False,
        task_default_queue="submit",
        task_routes={
            "nightdesk.generate": {"queue": "generate"},
            "nightdesk.check": {"queue": "check"},
            "nightdesk.local": {"queue": "local"},
            "nightdesk.submit": {"queue": "submit"},
            "nightdesk.poll": {"queue": "submit"},
        },
        # The rows are the truth: a lost message of a step is sent again, a second one finds no job.
        task_acks_late=False,
        task_ignore_result=True,
        result_expires=int(settings.results_kept_s),
        # A message taken early would wait here while another process has free slots.
        worker_disable_prefetch=True,
        worker_prefetch_multiplier=1,
        # Remote control stays on: without it a worker at its prefetch limit stalls for good when Redis restarts.
        worker_enable_remote_control=True,
        worker_send_task_events=False,
        # Redis may be away for hours; meanwhile workers look for jobs by themselves.
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_transport_options=transport,
        result_backend_transport_options=dict(transport),
        redis_socket_timeout=10,
        redis_socket_connect_timeout=5,
        worker_consumer="worker.process.intake:GuardedConsumer",
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        # One thread sends hints, the tasks answer through the backend: few connections, kept open.
        broker_pool_limit=4,
        timezone="UTC",
    )
    return app


def _transport(settings: Settings) -> dict[str, Any]:
    """Options of the connections to Redis, as broker and as result backend."""
    options: dict[str, Any] = {
        # A dead peer must not block a thread for ever.
        "socket_timeout": 10,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 10,
        # A submission is acknowledged after its commit: of a worker that died meanwhile another one takes it so much later. One
        # that takes longer is done twice, and found the second time by the id of its message. Steps acknowledge at once.
        "visibility_timeout": settings.visibility_timeout_s,
        # Looked for every third time: a tenth of the timeout later at most.
        "unacked_restore_interval": min(10.0, settings.visibility_timeout_s / 30),
        "unacked_restore_throttle": 3,
        # kombu's default of 10 connections breaks under as many threads.
        "max_connections": settings.threads + 20,
    }
    if settings.key_prefix:
        options["global_keyprefix"] = settings.key_prefix
    return options
