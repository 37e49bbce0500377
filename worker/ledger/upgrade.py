"""Applies the migration scripts with Alembic, which takes long to load: ``migrate`` imports this when it is needed."""

import time
from importlib.resources import files

import psycopg
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg.conninfo import make_conninfo
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from tasks.errors import LedgerUnavailable
from worker.ledger.database import CONNECT_S, not_permitted, only_writable, unavailable
from worker.ledger.schema_version import TABLES, Schema, is_ready, refuse_unknown, schema_query

SCRIPTS = str(files("worker.ledger") / "migrations")
"""Folder of the migration scripts."""

MIGRATION_LOCK = 0x6E64_6D67
"""Advisory lock key: two processes that migrate at once do it one after the other."""


LOCK_S = 2.0
"""Seconds that a change of a table waits for its lock, and those between two tries."""

PATIENCE_S = 120.0
"""Seconds of tries, after which an upgrade is given up."""


def engine_of(database_url: str) -> Engine:
    """An engine whose connections are made by the driver itself, so that every URL of the driver's works."""
    target = make_conninfo(database_url, connect_timeout=CONNECT_S, **only_writable(database_url))
    return create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(target, prepare_threshold=None), poolclass=NullPool
    )


def upgrade(database_url: str, patience_s: float = PATIENCE_S) -> tuple[str | None, str]:
    """Apply all missing migrations; returns the revision before and after, raises as ``migrate`` does.

    A change of a table waits at most ``LOCK_S`` for its lock, since whatever comes after it, such as a lease, waits behind it; then all
    is undone and tried again.
    """
    engine = engine_of(database_url)
    deadline = time.monotonic() + patience_s
    try:
        while True:
            try:
                return _upgrade(engine)
            except OperationalError as error:
                if not isinstance(error.orig, psycopg.errors.LockNotAvailable):
                    raise
                if time.monotonic() >= deadline:
                    raise LedgerUnavailable(
                        f"a table could not be changed for {patience_s:.0f} s, because a transaction uses it "
                        f"({str(error.orig).splitlines()[0]}); nothing was changed: wait for its end, or end it (pg_stat_activity "
                        "shows it), then migrate again"
                    ) from error
            time.sleep(LOCK_S)
    except Exception as error:
        if isinstance(getattr(error, "orig", None), psycopg.OperationalError):
            raise unavailable(database_url, error) from error
        if isinstance(getattr(error, "orig", None), psycopg.errors.InsufficientPrivilege):
            raise not_permitted(error.orig) from error  # type: ignore[attr-defined]
        raise
    finally:
        engine.dispose()


def _upgrade(engine: Engine) -> tuple[str | None, str]:
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        before = _schema(connection)
        refuse_unknown(before)
        if before.revision is not None and is_ready(before):
            return before.revision, before.revision
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_S * 1_000:.0f}ms'")
        command.upgrade(_config(connection), "head")
        after = MigrationContext.configure(connection).get_current_revision()
        _set_floor(connection)
    assert after is not None
    return before.revision, after


def _schema(connection: Connection) -> Schema:
    tables = connection.exec_driver_sql(TABLES).one()
    query = schema_query(revision=tables.revision, floor=tables.floor)
    row = connection.exec_driver_sql(query).one_or_none() if query else None
    return Schema(row.revision, row.floor) if row else Schema(None)


def _set_floor(connection: Connection) -> None:
    """Write the oldest revision whose code may go on, as the newest script names it in ``floor``."""
    scripts = ScriptDirectory.from_config(_config())
    head = scripts.get_revision("head")
    assert head is not None
    connection.exec_driver_sql("DELETE FROM schema_floor")
    connection.exec_driver_sql("INSERT INTO schema_floor VALUES (%s)", (head.module.floor,))


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    # A percent sign would be read as interpolation.
    config.set_main_option("script_location", SCRIPTS.replace("%", "%%"))
    if connection is not None:
        config.attributes["connection"] = connection
    return config
