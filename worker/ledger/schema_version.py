"""Compares a database with the schema that this code expects, and migrates it; loads the migration library only for that."""

from collections.abc import Callable
from enum import StrEnum
from importlib import import_module

import psycopg

from tasks.errors import SchemaMismatch
from worker.ledger.database import CONNECT_S, not_permitted, unavailable

REVISIONS = ("0001",)
"""All revisions this code knows, oldest first; a test compares them with the migration scripts."""


class Standing(StrEnum):
    """Relation of a database's schema to the one this code expects."""

    CURRENT = "current"
    EMPTY = "empty"
    BEHIND = "behind"
    NEWER = "newer"


def head_revision() -> str:
    """The revision this code expects."""
    return REVISIONS[-1]


def standing(revision: str | None) -> Standing:
    """Compare the revision of a database (None: without a schema) with the one this code expects."""
    if revision is None:
        return Standing.EMPTY
    if revision == head_revision():
        return Standing.CURRENT
    return Standing.BEHIND if revision in REVISIONS else Standing.NEWER


def refuse_newer(revision: str | None) -> None:
    """Raise ``SchemaMismatch`` for a database that a newer version migrated."""
    if standing(revision) is Standing.NEWER:
        raise SchemaMismatch(
            f"the database is at revision {revision}, which this version of nightdesk does not know; "
            "it was migrated by a newer version: upgrade nightdesk"
        )


def require_current(revision: str | None) -> None:
    """Raise ``SchemaMismatch`` unless a database at ``revision`` fits this code."""
    refuse_newer(revision)
    if revision != head_revision():
        raise SchemaMismatch(
            f"the database is at revision {revision or 'none (empty)'}, this version needs {head_revision()}: "
            "run 'nightdesk migrate'"
        )


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
