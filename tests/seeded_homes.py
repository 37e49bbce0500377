"""Seeds homes with a data directory that one test process has initialised and migrated: a copy instead of an initdb.

Outside of pytest, and where a test's subject is the first start, homes are not seeded.
"""

import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.run_directory import exclusive, shared_directory
from worker import local
from worker.ledger.schema_version import migrate
from worker.local.home import Home

_OVERRIDES = "postgresql.auto.conf"


def seed(home: Path, *, durable: bool = False, options: local.LocalOptions | None = None) -> bool:
    """Fill an empty home with a migrated database; False outside of pytest, where it stays empty.

    Args:
        durable: let PostgreSQL wait for the disk, for tests of a crash.
        options: those that the home is started with later.
    """
    directory = shared_directory()
    if directory is None:
        return False
    origin = Home.at(_origin(directory))
    place = Home.at(home)
    place.create()
    place.prepare_data(options or local.LocalOptions())
    target = place.data.resolve() / "postgres"
    # Keeps owners and modes, and is one process where shutil makes a thousand calls.
    subprocess.run(["/bin/cp", "-a", origin.data.resolve() / "postgres", target], check=True)
    shutil.copy2(origin.local / "secrets.json", place.local)
    if durable:
        (target / _OVERRIDES).write_text("")
    return True


def _origin(directory: Path) -> Path:
    """The home that seeds are copies of; made by the first who asks."""
    home = directory / "home"
    done = directory / "home.done"
    with exclusive("home"):
        if not done.exists():
            endpoints = local.start(home)
            _hurry(endpoints)
            migrate(endpoints.database_url)
            local.stop(home)
            done.touch()
    return home


def _hurry(endpoints: local.Endpoints) -> None:
    """Let a PostgreSQL acknowledge commits before they are on disk, and clients prove passwords with little work.

    A crash of the server's processes still loses nothing, for what was written is with the operating system. Autovacuum would
    look at the tables in the midst of what a test writes.
    """
    urls = [url for url in (endpoints.admin_database_url, endpoints.database_url) if url]
    with psycopg.connect(urls[0], autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes", "autovacuum"):
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(setting)))
        connection.execute("SET scram_iterations = 1")
        for url in map(urlsplit, urls):
            statement = sql.SQL("ALTER ROLE {} PASSWORD {}")
            connection.execute(statement.format(sql.Identifier(url.username or ""), sql.Literal(url.password)))
