"""States the schema revision that this code expects, and how a database stands to it; loads no migration library."""

from enum import StrEnum

from tasks.errors import SchemaMismatch

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
