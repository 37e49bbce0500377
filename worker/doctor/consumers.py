"""Checks that some worker consumes every queue, as far as Redis and the leases can tell."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import redis
from celery import Celery
from kombu.exceptions import KombuError
from redis.exceptions import NoPermissionError, RedisError

from schemas.states import Step
from worker.doctor.finding import Finding, Severity, problem, warning
from worker.ledger.inspection import MANY, LedgerHealth
from worker.operations.counts import count_of
from worker.process.celery_app import QUEUES, make_app
from worker.settings import Settings

ANSWER_S = 2.0
"""Seconds that workers have to answer."""

Consumers = Mapping[str, frozenset[str]]
"""Queues by worker."""


def queues_by_worker(settings: Settings, redis_url: str) -> dict[str, frozenset[str]] | Finding:
    """Asks the workers, over Redis, for the queues they consume; a finding when they can't be asked."""
    with make_app(settings, redis_url) as app:
        try:
            listeners = count_listeners(redis_url)
            if listeners == 0:
                return {}
            replies = app.control.inspect(timeout=ANSWER_S, limit=listeners).active_queues() or {}
        except (RedisError, KombuError, OSError) as error:
            return problem(
                "workers",
                f"the workers can't be asked over Redis ({error})",
                "Redis answers but takes no messages: see what else is found of it, and its log",
            )
    return {node: frozenset(queue["name"] for queue in queues) for node, queues in replies.items()}


def count_listeners(redis_url: str) -> int | None:
    """Counts the connections that a question to all workers reaches; None where Redis may not be asked for its clients.

    With the count no caller waits for absent workers: a Celery worker has one such connection.
    """
    with redis.Redis.from_url(redis_url, socket_timeout=ANSWER_S, socket_connect_timeout=ANSWER_S) as client:
        database = str(client.get_connection_kwargs().get("db", 0))
        try:
            connections: list[dict[str, str]] = client.client_list(_type="pubsub")
        except NoPermissionError:
            return None
    return sum(client["psub"] != "0" and client["db"] == database for client in connections)


def answers_here(settings: Settings, redis_url: str) -> bool:
    """Tells whether the worker of this host answers; True too when Redis is away, because no worker can be asked then.

    For health checks of a container: a worker goes on without Redis, so it must not be ended for that.
    """
    with make_app(settings, redis_url) as app:
        return bool(_ping_here(app))


def _ping_here(app: Celery) -> Any:
    # The type stubs want a function for the matcher; its name goes over Redis.
    inspect: Any = app.control.inspect
    node = f"nightdesk@{os.uname().nodename}:*"
    try:
        return inspect(timeout=ANSWER_S, limit=1, pattern=node, matcher="glob").ping()
    except (RedisError, KombuError, OSError):
        return True


def check_consumers(consumers: Consumers, health: LedgerHealth | None) -> Iterator[Finding]:
    """Findings about queues without a consumer, whose jobs wait."""
    if not consumers:
        yield _no_worker(health)
        return
    consumed = frozenset().union(*consumers.values())
    # Not every installation has a local model: ``check_local`` knows.
    for queue in (queue for queue in QUEUES if queue not in consumed and queue != Step.LOCAL):
        waiting = health.available[Step(queue)] if health and queue in set(Step) else 0
        what = f"no worker listens to the queue {queue}"
        yield Finding(
            f"queue_{queue}",
            Severity.PROBLEM if waiting else Severity.WARNING,
            f"{what}; {count(waiting, 'job waits', 'jobs wait')} for it" if waiting else what,
            f"start one: 'nightdesk worker --queues {queue}', or 'nightdesk up'",
        )


def check_local(health: LedgerHealth, settings: Settings) -> Iterator[Finding]:
    """A finding about a local model, or jobs for it, without a worker that serves it, as the workers themselves report."""
    waiting = health.available[Step.LOCAL]
    if Step.LOCAL in health.served or not health.served or not (waiting or settings.local_model):
        return
    queue = Step.LOCAL.value
    what = f"no worker serves the queue {queue}"
    if waiting:
        after = f"after {settings.local_model_wait_s:g} s" if settings.local_model else "at once"
        what += f"; {count(waiting, 'job waits', 'jobs wait')} for it, to be checked without the local model {after}"
    remedy = f"start one: 'nightdesk worker --queues {queue}', or 'nightdesk up'"
    if settings.local_model is None:
        remedy = f"set NIGHTDESK_LOCAL_MODEL and {remedy}, or leave 'local' out of the jobs' checkers"
    yield Finding(f"queue_{queue}", Severity.PROBLEM if waiting else Severity.WARNING, what, remedy)


def check_urgent(health: LedgerHealth, settings: Settings) -> Iterator[Finding]:
    """Findings about workers of urgent jobs alone: none where there should be, or no others beside them."""
    waiting = sum(health.available.values())
    if health.urgent_workers and not health.served and waiting:
        yield problem(
            "workers",
            f"only workers of urgent jobs are alive; {count(waiting, 'job waits', 'jobs wait')}",
            "start the others: 'nightdesk up', or 'nightdesk worker'",
        )
    if settings.urgent_processes and health.served and not health.urgent_workers:
        yield warning(
            "urgent_workers",
            "no worker takes urgent jobs alone, though NIGHTDESK_URGENT_PROCESSES asks for one: beside much other work they "
            "take longer in the other workers",
            "start it: 'nightdesk up', or 'nightdesk worker --queues urgent'; its log says why it ended",
        )


def _no_worker(health: LedgerHealth | None) -> Finding:
    if health and health.working:
        return warning(
            "workers",
            f"no worker answers over Redis, though {health.working} hold leases: their connection to it is broken, or "
            f"they took longer than {ANSWER_S:g} s",
            "look at their logs; jobs start up to some seconds later, submissions over Redis wait",
        )
    waiting = sum(health.available.values()) if health else 0
    return Finding(
        "workers",
        Severity.PROBLEM if waiting else Severity.WARNING,
        f"no worker is alive; {count(waiting, 'job waits', 'jobs wait')}" if waiting else "no worker is alive",
        "start them: 'nightdesk up', or 'nightdesk worker'",
    )


def count(number: int, noun: str, plural: str = "") -> str:
    """A count with its noun; it stops at ``MANY``."""
    return count_of(number, noun, plural) if number < MANY else f"{MANY:,} or more {plural or noun + 's'}"
