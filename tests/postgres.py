"""A fresh PostgreSQL ledger for a test, on a database that refuses every state change outside the table of edges."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from schemas.states import TRANSITIONS
from tests.servers import Servers, advance_clock
from worker.ledger.postgres import PostgresLedger

__all__ = ["advance_clock", "everything_in", "make_postgres_ledger", "postgres_database_url"]

_GUARD = """
CREATE FUNCTION refuse_unknown_edge() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT (OLD.state || '>' || NEW.state) = ANY ({edges}::text[]) THEN
        RAISE EXCEPTION 'no edge from % to %', OLD.state, NEW.state;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER edges BEFORE UPDATE ON job FOR EACH ROW WHEN (OLD.state IS DISTINCT FROM NEW.state)
EXECUTE FUNCTION refuse_unknown_edge();
CREATE FUNCTION refuse_unknown_start() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a job can''t begin as %', NEW.state;
END $$;
CREATE TRIGGER beginnings BEFORE INSERT ON job FOR EACH ROW WHEN (NEW.state NOT IN ('scheduled', 'available'))
EXECUTE FUNCTION refuse_unknown_start();
"""


def guard_edges(database_url: str) -> None:
    """Make the database raise on a state change that ``TRANSITIONS`` does not have."""
    edges = [f"{old.value}>{new.value}" for old, new in TRANSITIONS]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL(_GUARD).format(edges=sql.Literal(edges)))


def everything_in(database_url: str) -> str:
    """All rows of all tables as text, bytes as what they spell."""
    told = []
    with psycopg.connect(database_url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert {"job", "attempt", "completion", "generation_record", "job_event"} <= {name for (name,) in tables}
        for (name,) in tables:
            for row in connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(name))):
                told += [bytes(v).decode(errors="replace") if isinstance(v, bytes) else repr(v) for v in row]
    return "\n".join(told)


@pytest.fixture
def postgres_database_url(servers: Servers) -> Iterator[str]:
    """A fresh, migrated, guarded database."""
    with servers.database() as url:
        guard_edges(url)
        yield url


def make_postgres_ledger(database_url: str) -> PostgresLedger:
    """A ledger to be opened (``async with``) on the loop that uses it."""
    return PostgresLedger(database_url, connections=3)
