"""Real servers for tests: one embedded PostgreSQL and Valkey per test run, a freshly cloned database per test."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from worker import local
from worker.ledger.migrate import migrate

TEMPLATE = "nightdesk_template"


@dataclass(frozen=True)
class Servers:
    """The servers of one test run, and databases made on them."""

    admin_url: str
    redis_url: str
    serial: Iterator[int]

    def url(self, database: str) -> str:
        """The admin URL with another database."""
        return urlunsplit(urlsplit(self.admin_url)._replace(path=f"/{database}"))

    @cached_property
    def template(self) -> str:
        """A migrated, empty database that is never connected to again, so that it can be cloned."""
        self._admin(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
        migrate(self.url(TEMPLATE))
        return TEMPLATE

    @contextmanager
    def database(self, *, migrated: bool = True) -> Iterator[str]:
        """The URL of a new database that is dropped afterwards, whoever is still connected."""
        name = sql.Identifier(f"nightdesk_test_{os.getpid()}_{next(self.serial)}")
        template = sql.Identifier(self.template if migrated else "template0")
        self._admin(sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(name, template))
        try:
            yield self.url(name._obj[0])
        finally:
            self._admin(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))

    def _admin(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            connection.execute(statement)


def relax_durability(admin_url: str) -> None:
    """Let a PostgreSQL acknowledge commits before they are on disk: for tests whose subject is no crash of the machine.

    A crash of the server's processes still loses nothing, for what was written is with the operating system.
    """
    with psycopg.connect(admin_url, autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes"):
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
        connection.execute("SELECT pg_reload_conf()")


@contextmanager
def running_servers() -> Iterator[Servers]:
    """Embedded servers in a directory of their own, or those that the environment names; ended afterwards."""
    named = os.environ.get("NIGHTDESK_TEST_DATABASE_URL"), os.environ.get("NIGHTDESK_TEST_REDIS_URL")
    if named[0] and named[1]:
        yield Servers(named[0], named[1], count())
        return
    with tempfile.TemporaryDirectory(prefix="nightdesk-test-") as directory:
        home = Path(directory) / "home"
        endpoints = local.start(home)
        relax_durability(endpoints.admin_database_url)
        try:
            yield Servers(endpoints.admin_database_url, endpoints.redis_url, count())
        finally:
            local.stop(home)
            local.remove(home)


def advance_clock(database_url: str, by: timedelta) -> None:
    """Move the ledger's clock of a database; adds to earlier moves."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        row = connection.execute("SELECT nightdesk_now() - now()").fetchone()
        assert row is not None
        offset = row[0] + by
        connection.execute(
            sql.SQL("CREATE OR REPLACE FUNCTION nightdesk_now() RETURNS timestamptz LANGUAGE sql STABLE AS {}").format(
                sql.Literal(f"SELECT now() + interval '{offset.total_seconds()} s'")
            )
        )
