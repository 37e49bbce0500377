"""Checks PostgreSQL: reached, let in, new enough, at this version's schema, its clock not moved."""

from collections.abc import Iterator
from datetime import timedelta

from worker.doctor.finding import Finding, Severity
from worker.ledger.database import safe_url
from worker.ledger.health import OLDEST_SUPPORTED, Connected, Refusal, Refused
from worker.ledger.schema_version import Standing, head_revision

CLOCK_TOLERANCE = timedelta(seconds=1)

RESET_CLOCK = "CREATE OR REPLACE FUNCTION nightdesk_now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT now()'"


def check_connection(refused: Refused, database_url: str) -> Finding:
    """PostgreSQL can't be connected to."""
    where = safe_url(database_url)
    if refused.why is Refusal.PASSWORD:
        return Finding(
            "postgres_password",
            Severity.UNREACHABLE,
            f"PostgreSQL at {where} does not let us in ({refused.detail})",
            "correct user and password in NIGHTDESK_DATABASE_URL",
        )
    if refused.why is Refusal.DATABASE:
        return Finding(
            "postgres_database",
            Severity.UNREACHABLE,
            f"PostgreSQL at {where} answers, but {refused.detail}",
            "create it (createdb), then run 'nightdesk migrate'; or correct the name in NIGHTDESK_DATABASE_URL",
        )
    return Finding(
        "postgres",
        Severity.UNREACHABLE,
        f"PostgreSQL at {where} can't be reached ({refused.detail})",
        "check that it runs, host and port in NIGHTDESK_DATABASE_URL, and the network between",
    )


def check_server(seen: Connected) -> Iterator[Finding]:
    """The server is new enough, the schema is this version's, the ledger's clock is the server's."""
    if seen.version < OLDEST_SUPPORTED:
        yield Finding(
            "postgres_version",
            Severity.PROBLEM,
            f"this is PostgreSQL {seen.version}; {OLDEST_SUPPORTED} is the oldest that is supported",
            f"upgrade the server to {OLDEST_SUPPORTED} or newer",
        )
    if seen.standing in {Standing.EMPTY, Standing.BEHIND}:
        at = "has no schema yet" if seen.revision is None else f"is at revision {seen.revision}"
        yield Finding(
            "migration",
            Severity.PROBLEM,
            f"the database {at}, this version needs {head_revision()}",
            "run 'nightdesk migrate'",
        )
    if seen.standing is Standing.NEWER:
        yield Finding(
            "migration",
            Severity.PROBLEM,
            f"the database is at revision {seen.revision}, which this version does not know: a newer one migrated it",
            "upgrade nightdesk here to the version that runs elsewhere",
        )
    if abs(seen.clock_ahead) > CLOCK_TOLERANCE:
        yield Finding(
            "clock",
            Severity.PROBLEM,
            f"the ledger's clock is {seen.clock_ahead.total_seconds():+,.0f} s from the server's: its function "
            "nightdesk_now() was replaced, as tests do",
            f"run in the database: {RESET_CLOCK}",
        )
