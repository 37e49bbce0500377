"""Checks the environment: settings, providers' keys, embedded servers, disk and spool, PostgreSQL, Redis."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from importlib import import_module
from typing import Any

import redis
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError

from tasks.errors import ConfigurationError
from tasks.ports import Turn
from worker.doctor.finding import Finding, note, problem, unreachable, warning
from worker.ledger.addresses import safe_url
from worker.ledger.inspection import OLDEST_SUPPORTED, Connected, Refusal, Refused
from worker.ledger.schema_version import ORIGINS, Standing, head_revision
from worker.local import LocalStatus, ServerStatus
from worker.operations.free_disk import full_disk_line, low_disk_line
from worker.process.spool import Retention, abandoned_segments, batches_of, lost_answers
from worker.providers.registry import ConfiguredProviders
from worker.settings import Settings

CLOCK_TOLERANCE = timedelta(seconds=1)

RESET_CLOCK = "CREATE OR REPLACE FUNCTION nightdesk_now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT now()'"

REDIS_ANSWER_S = 5

OLDEST_REDIS = 7

FULL_AT = 0.8
"""Share of ``maxmemory`` from which on a finding warns of it."""


def check_settings(error: ConfigurationError) -> Finding:
    """A finding about settings that can't be read."""
    return problem("settings", str(error), "correct the variable, or the file of NIGHTDESK_CONFIG")


def check_provider(settings: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Findings about the default provider, those with settings and the fallbacks, unless they can be built with their keys."""
    try:
        providers = ConfiguredProviders(settings, environment)
    except ConfigurationError as error:
        yield problem("provider", str(error), "correct NIGHTDESK_FALLBACKS")
        return
    fallbacks = (Turn.parse(text).provider for text in settings.fallbacks)
    for name in dict.fromkeys((providers.default, *settings.providers, *fallbacks)):
        try:
            providers.get(name)
        except ConfigurationError as error:
            remedy = "correct NIGHTDESK_PROVIDERS, or set its key where the workers run"
            if name == providers.default:
                remedy = "correct it where the workers run; NIGHTDESK_PROVIDER=extractive works without a key"
            yield problem("provider", f"{error} (looked for here, not in the workers)", remedy)
    if model := providers.lacks_model(providers.default, None):
        yield problem(
            "provider",
            f"NIGHTDESK_MODEL is {model!r}, and the provider {providers.default!r} has no model but its own: jobs that name no other are refused",
            "set NIGHTDESK_PROVIDER and its key where the workers run, or leave NIGHTDESK_MODEL out",
        )


def check_checkers(settings: Settings) -> Iterator[Finding]:
    """Findings about checkers of the settings that can't be used here."""
    for name, entry in settings.checkers.items():
        try:
            # Few installations have one, and it needs all of the check.
            import_module("worker.plugins.claim_checkers").load_checker(name, entry)
        except ConfigurationError as error:
            remedy = (
                "correct NIGHTDESK_CHECKERS, or install its package where the workers run: they don't start without it"
            )
            yield problem("checkers", f"{error} (looked for here, not in the workers)", remedy)


def check_embedded(status: LocalStatus, *, expected: bool = True) -> Iterator[Finding]:
    """Findings about embedded servers that do not answer; a note where nothing is ``expected`` to run."""
    if not (expected or status.postgres.running or status.valkey.running):
        ledger = status.postgres.data.parent.exists()
        yield note(
            "embedded",
            f"the servers of {status.home} are stopped, as 'run' and 'down' leave them: workers and jobs can't be examined"
            if ledger
            else f"there is no ledger in {status.home} yet",
            "'nightdesk status' tells what waits and why; to examine them too: 'nightdesk up'"
            if ledger
            else "'nightdesk run' or 'nightdesk up' makes one",
        )
        return
    for name, server in (("PostgreSQL", status.postgres), ("Valkey", status.valkey)):
        if not server.answering:
            yield unreachable(
                "embedded",
                f"the embedded {name} of {status.home} {_state_of(server)}",
                f"start it with 'nightdesk up'; its log is {server.log}",
            )


def _state_of(server: ServerStatus) -> str:
    return f"runs (process {server.pid}) but does not answer yet" if server.running else "does not run"


def check_disk(settings: Settings) -> Iterator[Finding]:
    """A finding about a disk with too little room for the embedded servers."""
    if line := full_disk_line(settings) or low_disk_line(settings):
        yield warning("disk", line, "make room, or move NIGHTDESK_HOME to a larger disk after 'nightdesk down'")


def check_spool(settings: Settings) -> Iterator[Finding]:
    """Findings about answers on the disk of this home that its ledgers don't have, whatever the addresses of these are."""
    for folder, retentions in abandoned_segments(settings.home).items():
        if waiting := retentions.count(Retention.UNWRITTEN):
            yield warning(
                "spool",
                f"{waiting} files with answers that came while PostgreSQL was away wait in {folder}",
                "start a worker with this NIGHTDESK_HOME: it writes them first; until then their calls count as unknown",
            )
    for path, rows in lost_answers(settings.home).items():
        yield problem(
            "lost_answers",
            f"{len(rows):,} paid answers are in {path} alone: PostgreSQL lost their jobs, which it had accepted "
            f"(batches {', '.join(batches_of(rows))})",
            "submit the batches again, or bring back a PostgreSQL that has them and start a worker with this NIGHTDESK_HOME; "
            "remove the file to give the answers up",
        )


def check_connection(refused: Refused, database_url: str) -> Finding:
    """A finding about the cause of a refused connection to PostgreSQL."""
    where = safe_url(database_url)
    if refused.why is Refusal.PASSWORD:
        return unreachable(
            "postgres_password",
            f"PostgreSQL at {where} refuses the login ({refused.detail})",
            "correct user and password in NIGHTDESK_DATABASE_URL",
        )
    if refused.why is Refusal.DATABASE:
        return unreachable(
            "postgres_database",
            f"PostgreSQL at {where} answers, but {refused.detail}",
            "create it (createdb), then run 'nightdesk migrate'; or correct the name in NIGHTDESK_DATABASE_URL",
        )
    return unreachable(
        "postgres",
        f"PostgreSQL at {where} can't be reached ({refused.detail})",
        "check that it runs, host and port in NIGHTDESK_DATABASE_URL, and the network between",
    )


def check_postgres(server: Connected) -> Iterator[Finding]:
    """Findings about an old server, another schema than this version's, and a ledger's clock that is not the server's."""
    if server.version < OLDEST_SUPPORTED:
        yield problem(
            "postgres_version",
            f"this is PostgreSQL {server.version}; {OLDEST_SUPPORTED} is the oldest that is supported",
            f"upgrade the server to {OLDEST_SUPPORTED} or newer",
        )
    if server.standing in {Standing.EMPTY, Standing.BEHIND}:
        at = "has no schema yet" if server.revision is None else f"is at revision {server.revision}"
        yield problem(
            "migration",
            f"the database {at}, this version needs {head_revision()}",
            "run 'nightdesk migrate'",
        )
    if (origin := ORIGINS.get(server.standing)) is not None:
        cause, remedy = origin
        yield problem(
            "migration",
            f"the database is at revision {server.revision}, which this version does not know: {cause}",
            remedy,
        )
    if server.standing is Standing.EXPANDED:
        yield note(
            "migration",
            f"a newer version migrated the database to revision {server.revision}; this one goes on with it",
            "an upgrade is under way: bring the processes here to the version that runs elsewhere, too",
        )
    yield from _check_promises(server)


def _check_promises(server: Connected) -> Iterator[Finding]:
    """Findings about commits that a crash or a fail-over loses, and about the ledger's clock."""
    if server.standbys and not server.waits_for_standby:
        yield note(
            "standby",
            "PostgreSQL confirms commits before a standby has them: a fail-over loses the last ones. Workers put back what they "
            "know of them (NIGHTDESK_ANSWERS_KEPT_S), but not batches that were just submitted",
            "set synchronous_standby_names, or let producers submit again under the same keys after a fail-over",
        )
    if not server.has_identity:
        yield note(
            "failover",
            "workers would not notice a fail-over that loses commits, and put nothing back: their role may not call "
            "pg_control_system()",
            "as a superuser: GRANT EXECUTE ON FUNCTION pg_control_system() TO that role; where the provider of the database "
            "refuses it, set synchronous_standby_names",
        )
    if server.loses_commits:
        yield warning(
            "durability",
            f"PostgreSQL has {server.loses_commits}: a crash of the server loses commits that it confirmed",
            "set fsync and synchronous_commit to on",
        )
    if abs(server.clock_ahead) > CLOCK_TOLERANCE:
        yield problem(
            "clock",
            f"the ledger's clock is {server.clock_ahead.total_seconds():+,.0f} s from the server's: its function "
            "nightdesk_now() was replaced, as tests do",
            f"run in the database: {RESET_CLOCK}",
        )


def redis_info(redis_url: str) -> dict[str, Any] | Finding:
    """The server's INFO, or a finding that it can't be asked."""
    where = safe_url(redis_url)
    try:
        with redis.Redis.from_url(
            redis_url, socket_timeout=REDIS_ANSWER_S, socket_connect_timeout=REDIS_ANSWER_S
        ) as client:
            info: dict[str, Any] = client.info()
            return info
    except (AuthenticationError, AuthorizationError) as error:
        return unreachable(
            "redis_password",
            f"Redis at {where} refuses the login ({error})",
            "correct user and password in NIGHTDESK_REDIS_URL",
        )
    except (RedisError, OSError) as error:
        return unreachable(
            "redis",
            f"Redis at {where} can't be reached ({error}); jobs go on without it, submissions and results over it wait",
            "check that it runs, host and port in NIGHTDESK_REDIS_URL, and the network between",
        )


def check_redis(info: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about a Redis that is not set up for a queue. Asks no CONFIG, which managed services refuse."""
    version = str(info["redis_version"])
    if int(version.partition(".")[0]) < OLDEST_REDIS:
        yield warning(
            "redis_version",
            f"this is Redis {version}; {OLDEST_REDIS} is the oldest that is tested",
            f"upgrade it to {OLDEST_REDIS} or newer",
        )
    policy = info.get("maxmemory_policy")
    if policy != "noeviction":
        yield warning(
            "redis_eviction",
            f"Redis drops keys when it is full (maxmemory-policy {policy}): hints, submissions and results among them",
            "set 'maxmemory-policy noeviction' in its configuration",
        )
    if not info.get("aof_enabled"):
        yield warning(
            "redis_durability",
            "Redis keeps no append-only file: submissions that wait in its queue are gone when it restarts",
            "set 'appendonly yes' in its configuration; jobs in the ledger and their results are safe either way",
        )
    most, used = int(info.get("maxmemory") or 0), int(info["used_memory"])
    if most and used >= FULL_AT * most:
        yield warning(
            "redis_memory",
            f"Redis uses {used / most:.0%} of its maxmemory ({used >> 20} of {most >> 20} MiB); when it is full, it refuses writes",
            "raise maxmemory, or lower NIGHTDESK_RESULTS_KEPT_S so that results go sooner",
        )
