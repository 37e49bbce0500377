"""Real servers for tests: one embedded PostgreSQL and Valkey per test process, an empty database per test."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

import psycopg
from psycopg import sql

from schemas.states import TRANSITIONS
from tests.databases import Pool, forget_all, new_database, on, session
from tests.left_homes import remove, watch
from tests.run_directory import home_directory
from tests.seeded_homes import seed
from worker import local
from worker.ledger.schema_version import migrate
from worker.local.postgres_server import DATABASE

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


@dataclass(frozen=True)
class Servers:
    """The servers of one test process, and databases on them."""

    admin_url: str
    redis_url: str
    base: str = "template1"
    """A database that the first of each kind is a copy of, before its migration."""

    def url(self, database: str) -> str:
        """The admin URL with another database."""
        return on(self.admin_url, database)

    @cached_property
    def databases(self) -> Pool:
        """Migrated, empty databases."""
        return Pool(self.admin_url, _migrate, self.base)

    @cached_property
    def guarded(self) -> Pool:
        """Migrated, empty databases that refuse every state change outside the table of edges."""
        return Pool(self.admin_url, _migrate_guarded, self.base)

    @contextmanager
    def database(self, *, migrated: bool = True, guarded: bool = False) -> Iterator[str]:
        """The URL of an empty database for the caller alone, with or without the schema."""
        if not migrated:
            with new_database(self.admin_url) as url:
                yield url
            return
        with (self.guarded if guarded else self.databases).lend() as url:
            yield url


def _migrate(database_url: str) -> None:
    migrate(database_url)


def _migrate_guarded(database_url: str) -> None:
    migrate(database_url)
    guard_edges(database_url)


def guard_edges(database_url: str) -> None:
    """Make the database raise on a state change that ``TRANSITIONS`` does not have."""
    edges = [f"{old.value}>{new.value}" for old, following in TRANSITIONS.items() for new in following]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL(_GUARD).format(edges=sql.Literal(edges)))


@contextmanager
def running_servers() -> Iterator[Servers]:
    """Embedded servers in a directory of their own, or those that the environment names; ended afterwards."""
    named = os.environ.get("NIGHTDESK_TEST_DATABASE_URL"), os.environ.get("NIGHTDESK_TEST_REDIS_URL")
    if named[0] and named[1]:
        yield Servers(named[0], named[1])
        return
    with home_directory() as directory:
        home = directory / "home"
        watch(home)
        base = DATABASE if seed(home) else "template1"
        try:
            endpoints = local.start(home)
            yield Servers(str(endpoints.admin_database_url), endpoints.redis_url, base)
        finally:
            forget_all()
            local.stop(home)
            remove(home)


def advance_clock(database_url: str, by: timedelta) -> None:
    """Move the ledger's clock of a database; adds to earlier moves."""
    connection = session(database_url)
    row = connection.execute("SELECT nightdesk_now() - now()").fetchone()
    assert row is not None
    offset = row[0] + by
    set_clock(database_url, f"now() + interval '{offset.total_seconds()} s'")


def set_clock(database_url: str, now: str) -> None:
    """Replace the ledger's clock of a database by an expression in SQL."""
    statement = sql.SQL("CREATE OR REPLACE FUNCTION nightdesk_now() RETURNS timestamptz LANGUAGE sql STABLE AS {}")
    session(database_url).execute(statement.format(sql.Literal(f"SELECT {now}")), prepare=False)
