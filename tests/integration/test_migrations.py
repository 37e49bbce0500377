"""The migrated database is the one the code describes, and a wrong one is refused with the remedy."""

import asyncio
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from schemas.access import Role
from schemas.record import GenerationRecord, RecordStatus
from schemas.states import HeldReason, JobState, Outcome, Step
from tasks.errors import LedgerUnavailable, SchemaMismatch
from tasks.ports import Purpose
from tests.databases import new_database
from tests.deadlines import until
from tests.deployment import KUBERNETES, objects_of
from tests.servers import Servers
from worker.ledger import schema_version, upgrade
from worker.ledger.postgres import PostgresLedger
from worker.ledger.schema_version import REVISIONS, Schema, Standing, head_revision, migrate, standing
from worker.ledger.views import RECORD_COLUMNS

_SCRIPT = """
from alembic import op
revision, down_revision, branch_labels, depends_on = "{name}", "{before}", None, None
floor = "{floor}"
def upgrade(): op.execute("{statement}")
"""


NEXT = f"{int(REVISIONS[-1]) + 1:04}"
"""The revision of a migration more than there is."""


@pytest.fixture
def next_version(tmp_path: Path, servers: Servers, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the code one migration more than the databases of the tests have; returns its revision."""
    assert servers.databases.prepare(), "made with the real scripts"
    folder = tmp_path / "migrations"
    shutil.copytree(upgrade.SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(upgrade, "SCRIPTS", str(folder))
    monkeypatch.setattr(schema_version, "REVISIONS", (*REVISIONS, NEXT))
    statement = "ALTER TABLE batch ADD COLUMN note text"
    (folder / "versions" / f"{NEXT}_note.py").write_text(
        _SCRIPT.format(name=NEXT, before=REVISIONS[-1], floor=REVISIONS[-1], statement=statement)
    )
    return NEXT


def test_statements_know_the_columns_of_the_record_and_these_are_its_fields(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT attname, typname FROM pg_attribute JOIN pg_type t ON t.oid = atttypid "
            "WHERE attrelid = 'generation_record'::regclass AND attnum > 0 ORDER BY attnum"
        ).fetchall()

    assert [*RECORD_COLUMNS.items(), ("attempt_id", "uuid"), ("frame", "bytea")] == rows
    assert {*RECORD_COLUMNS} == {*GenerationRecord.model_fields}


@pytest.mark.parametrize(
    ("constraint", "kind"),
    [
        ("job_state_known", JobState),
        ("job_step_known", Step),
        ("job_outcome_known", Outcome),
        ("job_held_reason_known", HeldReason),
        ("attempt_purpose_known", Purpose),
        ("generation_record_status_known", RecordStatus),
        ("api_key_role_known", Role),
    ],
)
def test_tables_know_each_word_of_an_enumeration(database_url: str, constraint: str, kind: type[StrEnum]) -> None:
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", [constraint]
        ).fetchone()
    assert row is not None
    assert set(re.findall(r"'(\w+)'", row[0])) == set(kind), "a new word needs a migration"


def test_the_autoscaler_asks_what_the_tables_answer(database_url: str) -> None:
    _, *scalers = objects_of(KUBERNETES / "components" / "autoscale")
    with psycopg.connect(database_url) as connection:
        for scaler in scalers:
            query = scaler["spec"]["triggers"][0]["metadata"]["query"]
            assert connection.execute(query).fetchone() == (0,)


def test_the_code_knows_the_revisions_of_the_scripts() -> None:
    scripts = Path(upgrade.__file__).parent.glob("migrations/versions/0*.py")
    assert tuple(sorted(script.name[:4] for script in scripts)) == REVISIONS


def test_migrating_twice_changes_nothing(database_url: str) -> None:
    assert migrate(database_url) == (head_revision(), head_revision())


def test_an_older_database_is_refused_and_then_brought_up(database_url: str, next_version: str) -> None:
    with pytest.raises(SchemaMismatch, match="run 'nightdesk migrate'"):
        asyncio.run(_open(database_url))

    assert migrate(database_url) == (REVISIONS[-1], next_version)
    asyncio.run(_open(database_url))
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT note FROM batch").fetchall() == []


def test_a_migration_that_fails_changes_nothing(
    servers: Servers, next_version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Path(upgrade.SCRIPTS) / "versions" / "9999_broken.py"
    broken.write_text(
        _SCRIPT.format(name="9999", before=next_version, floor=NEXT, statement="ALTER TABLE nothing ADD COLUMN x int")
    )
    with servers.database(migrated=False) as url:
        with pytest.raises(DBAPIError, match="nothing"):
            migrate(url)
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT to_regclass('job'), to_regclass('alembic_version')").fetchone() == (
                None,
                None,
            )


def test_an_empty_database_is_refused_with_the_remedy(servers: Servers) -> None:
    with servers.database(migrated=False) as url, pytest.raises(SchemaMismatch, match="run 'nightdesk migrate'"):
        asyncio.run(_open(url))


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_holds_not_every_text_is_refused_with_the_remedy(servers: Servers, encoding: str) -> None:
    with (
        new_database(servers.admin_url, encoding) as url,
        pytest.raises(SchemaMismatch, match=f"encoding {encoding}.*make it anew: CREATE DATABASE .* ENCODING 'UTF8'"),
    ):
        migrate(url)


def test_a_database_that_a_newer_version_expanded_is_used_as_it_is(
    database_url: str, next_version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert migrate(database_url) == (REVISIONS[-1], next_version)
    monkeypatch.setattr(schema_version, "REVISIONS", REVISIONS)

    asyncio.run(_open(database_url))
    assert migrate(database_url) == (next_version, next_version)
    assert standing(Schema(next_version, next_version)) is Standing.NEWER, (
        "one that takes something away raises the floor"
    )


def test_a_newer_database_is_refused_by_ledger_and_migration(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("UPDATE schema_floor SET revision = '9999'")

    with pytest.raises(SchemaMismatch, match="upgrade nightdesk"):
        asyncio.run(_open(database_url))
    with pytest.raises(SchemaMismatch, match="upgrade nightdesk"):
        migrate(database_url)


def test_what_a_newer_version_takes_away_from_a_process_is_told_with_the_way_on(database_url: str) -> None:
    async def work() -> None:
        async with PostgresLedger(database_url) as ledger:
            with psycopg.connect(database_url, autocommit=True) as connection:
                connection.execute("UPDATE alembic_version SET version_num = '9999'")
                connection.execute("ALTER TABLE worker DROP COLUMN steps")
            with pytest.raises(SchemaMismatch, match=r"another schema.*'nightdesk doctor'.*to upgrade this process"):
                await ledger.fleet.beat("w")

    asyncio.run(work())


def test_a_database_of_a_development_version_is_refused_with_the_remedy(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0009'")
        connection.execute("UPDATE schema_floor SET revision = '0009'")

    for connect in (migrate, lambda url: asyncio.run(_open(url))):
        with pytest.raises(SchemaMismatch, match="an earlier development version: make a new one"):
            connect(database_url)


@pytest.mark.parametrize("connect", [lambda url: asyncio.run(_open(url)), migrate])
def test_an_unreachable_database_is_named_without_its_password(connect: Callable[[str], object]) -> None:
    with pytest.raises(LedgerUnavailable) as caught:
        connect("postgresql://someone:s3cret-canary@127.0.0.1:1/nightdesk")

    assert "127.0.0.1:1/nightdesk" in str(caught.value)
    assert "NIGHTDESK_DATABASE_URL" in str(caught.value)
    assert "s3cret-canary" not in str(caught.value)


async def _open(url: str) -> None:
    async with PostgresLedger(url):
        pass


@pytest.mark.parametrize("ends", [True, False])
def test_an_upgrade_lets_others_work_while_it_waits_for_a_table(
    database_url: str, next_version: str, monkeypatch: pytest.MonkeyPatch, *, ends: bool
) -> None:
    monkeypatch.setattr(upgrade, "LOCK_S", 0.2)
    before = head_revision_of(database_url)
    with (
        psycopg.connect(database_url) as long,
        psycopg.connect(database_url, autocommit=True, options="-c statement_timeout=30000") as other,
        ThreadPoolExecutor(1) as pool,
    ):
        long.execute("SELECT count(*) FROM batch")
        upgrading = pool.submit(upgrade.upgrade, database_url, 60 if ends else 0)
        if ends:
            waits = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            assert until(lambda: other.execute(waits).fetchone() != (0,), 30)
            assert other.execute("SELECT count(*) FROM batch").fetchone() == (0,)
            assert not upgrading.done()
            long.rollback()
            assert upgrading.result(30) == (before, next_version)
        else:
            with pytest.raises(LedgerUnavailable, match="a transaction uses it"):
                upgrading.result(30)
            assert head_revision_of(database_url) == before


def head_revision_of(database_url: str) -> str:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    assert row is not None
    return str(row[0])
