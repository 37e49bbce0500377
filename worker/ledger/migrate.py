"""Brings a database to the schema this code expects; loads the migration library only for a database behind it."""

from collections.abc import Callable
from importlib import import_module

import psycopg

from worker.ledger.database import CONNECT_S, not_permitted, unavailable
from worker.ledger.schema_version import head_revision, refuse_newer


def migrate(database_url: str) -> tuple[str | None, str]:
    """Apply all missing migrations in one transaction; safe to run from several processes at once.

    Returns: the revision before (None: empty database) and after.
    Raises: LedgerUnavailable, SchemaMismatch when the database is newer than this code, LedgerError when the role may
    not change it.
    """
    head = head_revision()
    before = _revision(database_url)
    refuse_newer(before)
    if before == head:
        return head, head
    upgrade: Callable[[str], tuple[str | None, str]] = import_module("worker.ledger.upgrade").upgrade
    return upgrade(database_url)


def _revision(database_url: str) -> str | None:
    try:
        with psycopg.connect(database_url, connect_timeout=CONNECT_S, autocommit=True) as connection:
            exists = connection.execute("SELECT to_regclass('alembic_version') IS NOT NULL").fetchone()
            if exists is None or not exists[0]:
                return None
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            return str(row[0]) if row else None
    except psycopg.OperationalError as error:
        raise unavailable(database_url, error) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise not_permitted(error) from error
