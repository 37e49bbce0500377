"""Brings a database to the schema this code expects, and tells whether it is there."""

from enum import StrEnum
from importlib.resources import files

import psycopg
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from tasks.errors import SchemaMismatch
from worker.ledger.database import CONNECT_S, not_permitted, sqlalchemy_url, unavailable

SCRIPTS = str(files("worker.ledger") / "migrations")
"""Folder of the migration scripts."""

MIGRATION_LOCK = 0x6E64_6D67
"""Advisory lock key: two processes that migrate at once do it one after the other."""


class Standing(StrEnum):
    """How a database's schema stands to the one this code expects."""

    CURRENT = "current"
    EMPTY = "empty"
    BEHIND = "behind"
    NEWER = "newer"


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    # A percent sign would be read as interpolation.
    config.set_main_option("script_location", SCRIPTS.replace("%", "%%"))
    if connection is not None:
        config.attributes["connection"] = connection
    return config


def head_revision() -> str:
    """The revision this code expects."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def migrate(database_url: str) -> tuple[str | None, str]:
    """Apply all missing migrations in one transaction; safe to run from several processes at once.

    Returns: the revision before (None: empty database) and after.
    Raises: LedgerUnavailable, SchemaMismatch when the database is newer than this code, LedgerError when the role may
    not change it.
    """
    engine = create_engine(
        sqlalchemy_url(database_url), poolclass=NullPool, connect_args={"connect_timeout": CONNECT_S}
    )
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            before = MigrationContext.configure(connection).get_current_revision()
            _refuse_newer(before)
            command.upgrade(_config(connection), "head")
            after = MigrationContext.configure(connection).get_current_revision()
    except Exception as error:
        if isinstance(getattr(error, "orig", None), psycopg.OperationalError):
            raise unavailable(database_url, error) from error
        if isinstance(getattr(error, "orig", None), psycopg.errors.InsufficientPrivilege):
            raise not_permitted(error.orig) from error  # type: ignore[attr-defined]
        raise
    finally:
        engine.dispose()
    assert after is not None
    return before, after


def standing(revision: str | None) -> Standing:
    """How a database at ``revision`` (None: without a schema) stands to this code."""
    if revision is None:
        return Standing.EMPTY
    if revision == head_revision():
        return Standing.CURRENT
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    return Standing.BEHIND if revision in known else Standing.NEWER


def _refuse_newer(revision: str | None) -> None:
    if standing(revision) is Standing.NEWER:
        raise SchemaMismatch(
            f"the database is at revision {revision}, which this version of nightdesk does not know; "
            "it was migrated by a newer version: upgrade nightdesk"
        )


def require_current(revision: str | None) -> None:
    """Raise ``SchemaMismatch`` unless a database at ``revision`` fits this code."""
    _refuse_newer(revision)
    if revision != head_revision():
        raise SchemaMismatch(
            f"the database is at revision {revision or 'none (empty)'}, this version needs {head_revision()}: "
            "run 'nightdesk migrate'"
        )
