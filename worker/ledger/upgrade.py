"""Applies the migration scripts with Alembic, which takes long to load: ``migrate`` imports this when it is needed."""

from importlib.resources import files

import psycopg
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from worker.ledger.database import CONNECT_S, not_permitted, unavailable
from worker.ledger.schema_version import refuse_newer

SCRIPTS = str(files("worker.ledger") / "migrations")
"""Folder of the migration scripts."""

MIGRATION_LOCK = 0x6E64_6D67
"""Advisory lock key: two processes that migrate at once do it one after the other."""


def sqlalchemy_url(database_url: str) -> str:
    """The same database for SQLAlchemy's psycopg 3 dialect; accepts ``postgres://`` and ``postgresql://``."""
    return make_url(database_url).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


def script_revisions() -> tuple[str, ...]:
    """Revisions of the migration scripts, oldest first."""
    scripts = ScriptDirectory.from_config(_config()).walk_revisions()
    return tuple(reversed([script.revision for script in scripts]))


def upgrade(database_url: str) -> tuple[str | None, str]:
    """Apply all missing migrations; returns the revision before and after, raises as ``migrate`` does."""
    engine = create_engine(
        sqlalchemy_url(database_url), poolclass=NullPool, connect_args={"connect_timeout": CONNECT_S}
    )
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            before = MigrationContext.configure(connection).get_current_revision()
            refuse_newer(before)
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


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    # A percent sign would be read as interpolation.
    config.set_main_option("script_location", SCRIPTS.replace("%", "%%"))
    if connection is not None:
        config.attributes["connection"] = connection
    return config
