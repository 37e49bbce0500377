"""Compares a database with the schema that this code expects, and migrates it; loads the migration library only for that."""

from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from typing import NamedTuple

import psycopg

from tasks.errors import SchemaMismatch
from worker.ledger.database import CONNECT_S, not_permitted, unavailable

REVISIONS = ("0010",)
"""All revisions this code knows, oldest first; a test compares them with the migration scripts."""


TABLES = (
    "SELECT to_regclass('alembic_version') IS NOT NULL AS revision, to_regclass('schema_floor') IS NOT NULL AS floor"
)
"""Tells which tables about the schema there are, for ``schema_query``."""


def schema_query(*, revision: bool, floor: bool) -> str | None:
    """The statement that reads the schema of a database with these tables; None: it has no schema."""
    if not revision:
        return None
    column = "(SELECT revision FROM schema_floor)" if floor else "NULL"
    return f"SELECT version_num AS revision, {column} AS floor FROM alembic_version"


class Standing(StrEnum):
    """Relation of a database's schema to the one this code expects."""

    CURRENT = "current"
    EMPTY = "empty"
    BEHIND = "behind"
    EXPANDED = "expanded"
    """By migrations of a newer version, which leave all that this one needs."""
    NEWER = "newer"
    FORMER = "former"
    """Made by a development version from before the first script that there is."""


def head_revision() -> str:
    """The revision this code expects."""
    return REVISIONS[-1]


class Schema(NamedTuple):
    """The revision of a database (None: without a schema), and the oldest whose code may work on it."""

    revision: str | None
    floor: str | None = None


def standing(schema: Schema) -> Standing:
    """Compare the schema of a database with the one this code expects."""
    revision = schema.revision
    if revision is None:
        return Standing.EMPTY
    if revision == head_revision():
        return Standing.CURRENT
    if revision in REVISIONS:
        return Standing.BEHIND
    if schema.floor in REVISIONS:
        return Standing.EXPANDED
    return Standing.FORMER if revision < REVISIONS[0] else Standing.NEWER


ORIGINS = {
    Standing.NEWER: ("it was migrated by a newer version", "upgrade nightdesk"),
    Standing.FORMER: ("it was made by an earlier development version", "make a new one, and submit again"),
}
"""Origins of a database at a revision that this code does not know, each with its remedy."""


def refuse_unknown(schema: Schema) -> None:
    """Raise ``SchemaMismatch`` for a database at a revision that this code does not know."""
    if (origin := ORIGINS.get(standing(schema))) is not None:
        raise SchemaMismatch(
            f"the database is at revision {schema.revision}, which this version of nightdesk does not know; "
            f"{': '.join(origin)}"
        )


def is_ready(schema: Schema) -> bool:
    """Tell whether this code may work on a database: it is at its revision, or expanded beyond it."""
    return standing(schema) in {Standing.CURRENT, Standing.EXPANDED}


def require_fit(schema: Schema) -> None:
    """Raise ``SchemaMismatch`` unless this code may work on a database."""
    refuse_unknown(schema)
    if not is_ready(schema):
        raise SchemaMismatch(
            f"the database is at revision {schema.revision or 'none (empty)'}, this version needs {head_revision()}: "
            "run 'nightdesk migrate'"
        )


def migrate(database_url: str) -> tuple[str | None, str]:
    """Apply all missing migrations in one transaction; safe to run from several processes at once.

    A database that a newer version expanded stays as it is.

    Returns: the revision before (None: empty database) and after.
    Raises: LedgerUnavailable, SchemaMismatch when the database is newer than this code, LedgerError when the role may
    not change it.
    """
    before = _schema(database_url)
    refuse_unknown(before)
    if is_ready(before):
        assert before.revision is not None
        return before.revision, before.revision
    upgrade: Callable[[str], tuple[str | None, str]] = import_module("worker.ledger.upgrade").upgrade
    return upgrade(database_url)


def _schema(database_url: str) -> Schema:
    try:
        with psycopg.connect(database_url, connect_timeout=CONNECT_S, autocommit=True) as connection:
            tables = connection.execute(TABLES).fetchone()
            assert tables is not None
            encoding = connection.info.parameter_status("server_encoding")
            if not tables[0] and encoding != "UTF8":
                raise SchemaMismatch(
                    f"the database has the encoding {encoding}, which can't hold every text; make it anew: "
                    "CREATE DATABASE name TEMPLATE template0 ENCODING 'UTF8'"
                )
            query = schema_query(revision=tables[0], floor=tables[1])
            row = connection.execute(query.encode()).fetchone() if query else None
            return Schema(*row) if row else Schema(None)
    except psycopg.OperationalError as error:
        raise unavailable(database_url, error) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise not_permitted(error) from error
