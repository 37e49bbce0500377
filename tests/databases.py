"""Lends databases to tests: emptied after each one and lent again, made again where a test changed the schema."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, LiteralString
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import AsyncConnection, sql

END_S = 10
"""How long a session that a test left behind may take to end."""

_SHAPE = """
SELECT string_agg(part, E'\\n' ORDER BY part) FROM (
    SELECT concat_ws(' ', 'table', oid, relname, relkind, reloptions, relacl) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace
    UNION ALL
    SELECT concat_ws(' ', 'column', attrelid, attname, atttypid, attnotnull, attisdropped, attacl) FROM pg_attribute
    WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace) AND attnum > 0
    UNION ALL
    SELECT concat_ws(' ', 'function', oid, proname, prosrc, proacl) FROM pg_proc
    WHERE pronamespace = 'public'::regnamespace
    UNION ALL
    SELECT concat_ws(' ', 'trigger', oid, tgname, tgenabled) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL
    SELECT concat_ws(' ', 'constraint', oid, conname, convalidated) FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace
    UNION ALL
    SELECT concat_ws(' ', 'setting', setrole, setconfig) FROM pg_db_role_setting
    WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    UNION ALL
    SELECT concat_ws(' ', 'revision', version_num, (SELECT revision FROM schema_floor)) FROM alembic_version
    UNION ALL
    SELECT concat_ws(' ', 'database', datacl, datconnlimit, datallowconn) FROM pg_database
    WHERE datname = current_database()
) shape(part)
"""

_SIZES = """
SELECT relname, pg_relation_size(oid) FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname NOT IN ('alembic_version', 'schema_floor') ORDER BY 1
"""

TRUNCATION_BYTES = 1 << 20
"""The size of all tables from which on new files are less work than deleted rows, which stay in the way of later tests."""

_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT IN ('alembic_version', 'schema_floor') ORDER BY 1"

_CLOCK = "SELECT pg_get_functiondef('nightdesk_now'::regproc)"
"""The function that tests replace to move the clock."""

_END_OTHERS = """
SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND pid <> ALL (%s)
"""

_names = count()

CONNECTIONS: defaultdict[str, list[AsyncConnection[Any]]] = defaultdict(list)
"""Idle connections by the URL of their database, for the next test that is lent it: half of the server's work for a short
test is to read the catalog and to plan for new ones."""
_SESSIONS: dict[str, psycopg.Connection] = {}


def session(database_url: str) -> psycopg.Connection:
    """The one connection of the test process by which it prepares, reads and empties a database."""
    own = _SESSIONS.get(database_url)
    if own is None or own.closed:
        own = _SESSIONS[database_url] = psycopg.connect(database_url, autocommit=True, prepare_threshold=0)
    return own


def forget(database_url: str) -> None:
    """Close all connections that are kept to a database."""
    for connection in CONNECTIONS.pop(database_url, ()):
        close(connection)
    if (own := _SESSIONS.pop(database_url, None)) is not None:
        own.close()


def forget_all() -> None:
    """Close all connections that are kept."""
    for database_url in {*CONNECTIONS, *_SESSIONS}:
        forget(database_url)


def close(connection: AsyncConnection[Any]) -> None:
    """Close a connection, whose loop may have ended; nothing is awaited for it."""
    with suppress(StopIteration):
        connection.close().send(None)


def on(admin_url: str, database: str) -> str:
    """The URL of another database of the same server."""
    return urlunsplit(urlsplit(admin_url)._replace(path=f"/{database}"))


@dataclass
class Pool:
    """Databases of one shape: ``make`` migrates the first, a template that is cloned and never used itself."""

    admin_url: str
    make: Callable[[str], None]
    base: str = "template1"
    """A database that the first is a copy of."""
    idle: list[str] = field(default_factory=list)
    shapes: dict[str, str] = field(default_factory=dict)
    seeds: dict[str, str] = field(default_factory=dict)
    """Rows that the migrations write, as JSON by table."""
    clock: str = ""
    """The statement that sets the clock right."""
    template: str | None = None

    @contextmanager
    def lend(self) -> Iterator[str]:
        """The URL of an empty database for the caller alone."""
        name = self.idle.pop() if self.idle else self._clone()
        try:
            yield on(self.admin_url, name)
        finally:
            if self._clean(name):
                self.idle.append(name)
            else:
                self._drop(name)

    def prepare(self) -> str:
        """The name of the template."""
        if self.template is None:
            name = _new_name()
            statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
            say(self.admin_url, statement.format(sql.Identifier(name), sql.Identifier(self.base)))
            self.make(on(self.admin_url, name))
            with psycopg.connect(on(self.admin_url, name)) as connection:
                self.seeds = {table: _rows(connection, table) for table in _used(connection)}
            self.template = name
        return self.template

    def _clone(self) -> str:
        name, template = _new_name(), self.prepare()
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        say(self.admin_url, statement.format(sql.Identifier(name), sql.Identifier(template)))
        connection = session(on(self.admin_url, name))
        self.shapes[name], self.clock = _shape(connection), _text(connection, _CLOCK)
        return name

    def _clean(self, name: str) -> bool:
        """Empty a database; False when a test changed more than rows."""
        url = on(self.admin_url, name)
        spared = [connection.info.backend_pid for connection in CONNECTIONS[url] if not connection.closed]
        try:
            connection = session(url)
            connection.execute(_END_OTHERS, (END_S * 1000, spared))
            connection.execute("SET default_transaction_read_only = off")
            if _text(connection, _CLOCK) != self.clock:
                connection.execute(self.clock.encode())  # much less work than a new database
            unchanged = _shape(connection) == self.shapes[name]
            if unchanged:
                self._empty(connection)
        except (psycopg.OperationalError, psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction):
            return False  # refuses connections, or lost its tables or its clock
        return unchanged

    def _empty(self, connection: psycopg.Connection) -> None:
        sizes = {name: size for name, size in connection.execute(_SIZES) if size}
        names = [sql.Identifier(name) for name in sizes]
        if sum(sizes.values()) > TRUNCATION_BYTES:
            truncation = sql.SQL("TRUNCATE {} RESTART IDENTITY CASCADE")
            connection.execute(truncation.format(sql.SQL(", ").join(names)))
        elif names:
            connection.execute("SET session_replication_role = replica")  # no trigger, no foreign key
            deletions = sql.SQL("; ").join(sql.SQL("DELETE FROM {}").format(name) for name in names)
            connection.execute(deletions, prepare=False)
            connection.execute("SELECT setval(seqrelid, seqstart, false) FROM pg_sequence")
        for table, rows in self.seeds.items():
            statement = sql.SQL(
                "INSERT INTO {0} OVERRIDING SYSTEM VALUE SELECT * FROM jsonb_populate_recordset(NULL::{0}, %s)"
            )
            connection.execute(statement.format(sql.Identifier(table)), (rows,))

    def _drop(self, name: str) -> None:
        forget(on(self.admin_url, name))
        say(self.admin_url, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        del self.shapes[name]


@contextmanager
def new_database(admin_url: str, encoding: str = "UTF8") -> Iterator[str]:
    """The URL of a new database without a schema, dropped afterwards in spite of open connections."""
    name = _new_name()
    statement = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING {} LOCALE_PROVIDER libc LOCALE 'C'")
    say(admin_url, statement.format(sql.Identifier(name), sql.Literal(encoding)))
    try:
        yield on(admin_url, name)
    finally:
        say(admin_url, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def say(admin_url: str, statement: sql.Composed) -> None:
    """Run a statement as the superuser, outside of a transaction."""
    session(admin_url).execute(statement, prepare=False)


def _new_name() -> str:
    return f"nightdesk_test_{os.getpid()}_{next(_names)}"


def _shape(connection: psycopg.Connection) -> str:
    return _text(connection, _SHAPE)


def _text(connection: psycopg.Connection, query: LiteralString) -> str:
    """The single value of a query."""
    row = connection.execute(query).fetchone()
    assert row is not None
    return str(row[0])


def _used(connection: psycopg.Connection) -> list[str]:
    """Tables that hold rows."""
    probe = sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {})")
    names = [name for (name,) in connection.execute(_TABLES)]
    probes = [probe.format(sql.Literal(name), sql.Identifier(name)) for name in names]
    return [str(name) for (name,) in connection.execute(sql.SQL(" UNION ALL ").join(probes))]


def _rows(connection: psycopg.Connection, table: str) -> str:
    row = connection.execute(sql.SQL("SELECT jsonb_agg(t)::text FROM {} t").format(sql.Identifier(table))).fetchone()
    assert row is not None
    return str(row[0])
