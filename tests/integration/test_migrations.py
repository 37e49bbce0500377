"""The migrated database is the one the code describes, and a wrong one is refused with the remedy."""

import asyncio
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy.exc import DBAPIError

from schemas import CONTRACT_VERSION
from schemas.job import JobRequest, SourceContext
from schemas.record import GenerationRecord
from schemas.states import Step
from tasks.errors import LedgerUnavailable, SchemaMismatch
from tests.builders import make_request, new_id
from tests.deadlines import until
from tests.deployment import KUBERNETES, objects_of
from tests.ledger_tables import generation_record, metadata
from tests.servers import Servers
from worker.ledger import schema_version, upgrade
from worker.ledger.postgres import PostgresLedger
from worker.ledger.schema_version import REVISIONS, Schema, Standing, head_revision, migrate, standing
from worker.ledger.upgrade import engine_of, script_revisions
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


def test_migrations_make_what_the_tables_say(database_url: str) -> None:
    engine = engine_of(database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": False})
        differences = compare_metadata(context, metadata)
    engine.dispose()

    assert differences == []


def test_check_constraints_are_those_of_the_tables(database_url: str) -> None:
    declared = {
        constraint.name
        for table in metadata.tables.values()
        for constraint in table.constraints
        if type(constraint).__name__ == "CheckConstraint"
    }
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT conname FROM pg_constraint WHERE contype = 'c' AND connamespace = 'public'::regnamespace"
        ).fetchall()

    assert {name for (name,) in rows} == declared


def test_storage_settings_are_those_of_the_tables(database_url: str) -> None:
    declared = {
        (table.name, name.removeprefix("toast."), name.startswith("toast."), str(value))
        for table in metadata.tables.values()
        for name, value in (table.dialect_options["postgresql"]["with"] or {}).items()
    }
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            """
            SELECT coalesce(o.relname, c.relname), split_part(p, '=', 1), o.relname IS NOT NULL, split_part(p, '=', 2)
            FROM pg_class c LEFT JOIN pg_class o ON o.reltoastrelid = c.oid CROSS JOIN unnest(c.reloptions) p
            WHERE coalesce(o.relnamespace, c.relnamespace) = 'public'::regnamespace AND c.relkind IN ('r', 't')
            """
        ).fetchall()

    assert set(rows) == declared


def test_record_table_and_schema_have_the_same_fields() -> None:
    parts = {"attempt_id", "packed"}
    assert {column.name for column in generation_record.columns} - parts == set(GenerationRecord.model_fields)


def test_statements_know_the_columns_of_the_record_table(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT attname, typname FROM pg_attribute JOIN pg_type t ON t.oid = atttypid "
            "WHERE attrelid = 'generation_record'::regclass AND attnum > 0 ORDER BY attnum"
        ).fetchall()

    assert [*RECORD_COLUMNS.items(), ("attempt_id", "uuid"), ("packed", "bytea")] == rows


def test_the_autoscaler_asks_what_the_tables_answer(database_url: str) -> None:
    _, *scalers = objects_of(KUBERNETES / "components" / "autoscale")
    with psycopg.connect(database_url) as connection:
        for scaler in scalers:
            query = scaler["spec"]["triggers"][0]["metadata"]["query"]
            assert connection.execute(query).fetchone() == (0,)


def test_the_code_knows_the_revisions_of_the_scripts() -> None:
    assert script_revisions() == REVISIONS


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


@pytest.mark.parametrize("connect", [lambda url: asyncio.run(_open(url)), migrate])
def test_an_unreachable_database_is_named_without_its_password(connect: Callable[[str], object]) -> None:
    with pytest.raises(LedgerUnavailable) as caught:
        connect("postgresql://someone:s3cret-canary@127.0.0.1:1/nightdesk")

    assert "127.0.0.1:1/nightdesk" in str(caught.value)
    assert "NIGHTDESK_DATABASE_URL" in str(caught.value)
    assert "s3cret-canary" not in str(caught.value)


_INLINE_JOB = """
WITH b AS (INSERT INTO batch (id, tenant) VALUES (%(id)s, 'desk')), j AS (
    INSERT INTO job (id, batch_id, position, tenant, state, step, request_bytes, scheduled_at, available_at)
    VALUES (%(id)s, %(id)s, 0, 'desk', 'available', 'generate', 300, now(), now())
)
INSERT INTO job_request (job_id, request, request_hash, contract_version)
VALUES (%(id)s, %(request)s::jsonb, '', %(version)s)
"""


def test_a_job_that_was_accepted_before_the_migrations_is_read_and_leased(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = make_request(context=(SourceContext(content="The copy is ready at nine. " * 200),))
    job_id = new_id()
    with servers.database(migrated=False) as url:
        with monkeypatch.context() as first:
            folder = tmp_path / "first"
            shutil.copytree(upgrade.SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
            for script in (folder / "versions").glob("000[2-9]_*.py"):
                script.unlink()
            first.setattr(upgrade, "SCRIPTS", str(folder))
            first.setattr(schema_version, "REVISIONS", REVISIONS[:1])
            migrate(url)
        with psycopg.connect(url) as connection:
            row = {"id": job_id, "request": request.model_dump_json(), "version": CONTRACT_VERSION}
            connection.execute(_INLINE_JOB, row)

        assert migrate(url) == ("0001", head_revision())

        async def read() -> tuple[JobRequest, JobRequest]:
            async with PostgresLedger(url) as ledger:
                (view,) = await ledger.reading.views([job_id])
                (leased,) = await ledger.queue.lease(Step.GENERATE, "w1", timedelta(seconds=60), 1)
            return view.request, leased.request

        assert asyncio.run(read()) == (request, request)


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
