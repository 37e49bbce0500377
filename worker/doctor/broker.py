"""Checks Redis: reached, let in, never dropping messages, keeping them over a restart, with room left."""

from collections.abc import Iterator, Mapping
from typing import Any

import redis
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError

from worker.doctor.finding import Finding, Severity
from worker.ledger.database import safe_url

PATIENCE_S = 5

OLDEST_SUPPORTED = 7

FULL_AT = 0.8
"""Share of ``maxmemory`` from which on it is worth a word."""


def look(redis_url: str) -> dict[str, Any] | Finding:
    """What the server says of itself, or why it can't be asked."""
    where = safe_url(redis_url)
    try:
        with redis.Redis.from_url(redis_url, socket_timeout=PATIENCE_S, socket_connect_timeout=PATIENCE_S) as client:
            told: dict[str, Any] = client.info()
            return told
    except (AuthenticationError, AuthorizationError) as error:
        return Finding(
            "redis_password",
            Severity.UNREACHABLE,
            f"Redis at {where} does not let us in ({error})",
            "correct user and password in NIGHTDESK_REDIS_URL",
        )
    except (RedisError, OSError) as error:
        return Finding(
            "redis",
            Severity.UNREACHABLE,
            f"Redis at {where} can't be reached ({error}); jobs go on without it, submissions and results over it wait",
            "check that it runs, host and port in NIGHTDESK_REDIS_URL, and the network between",
        )


def check_server(told: Mapping[str, Any]) -> Iterator[Finding]:
    """A Redis that answers is set up for a queue. Asks no CONFIG, which managed services refuse."""
    version = str(told["redis_version"])
    if int(version.partition(".")[0]) < OLDEST_SUPPORTED:
        yield Finding(
            "redis_version",
            Severity.WARNING,
            f"this is Redis {version}; {OLDEST_SUPPORTED} is the oldest that is tested",
            f"upgrade it to {OLDEST_SUPPORTED} or newer",
        )
    policy = told.get("maxmemory_policy")
    if policy != "noeviction":
        yield Finding(
            "redis_eviction",
            Severity.WARNING,
            f"Redis drops keys when it is full (maxmemory-policy {policy}): hints, submissions and results among them",
            "set 'maxmemory-policy noeviction' in its configuration",
        )
    if not told.get("aof_enabled"):
        yield Finding(
            "redis_durability",
            Severity.WARNING,
            "Redis keeps no append-only file: submissions that wait in its queue are gone when it restarts",
            "set 'appendonly yes' in its configuration; jobs in the ledger and their results are safe either way",
        )
    most, used = int(told.get("maxmemory") or 0), int(told["used_memory"])
    if most and used >= FULL_AT * most:
        yield Finding(
            "redis_memory",
            Severity.WARNING,
            f"Redis uses {used / most:.0%} of its maxmemory ({used >> 20} of {most >> 20} MiB); full, it takes nothing",
            "raise maxmemory, or lower NIGHTDESK_RESULTS_KEPT_S so that results go sooner",
        )
