"""The migrated database is the one the code describes, and a wrong one is refused with the remedy."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from schemas.generation import Recheck
from schemas.record import GenerationRecord
from schemas.states import Step
from tasks.errors import LedgerUnavailable, SchemaMismatch
from tests.builders import make_batch, make_config, make_final, make_jobs, make_request
from tests.contract.driving import finished
from tests.servers import Servers
from worker.ledger.database import sqlalchemy_url
from worker.ledger.invariants import Violation
from worker.ledger.migrate import _config, head_revision, migrate
from worker.ledger.postgres import PostgresLedger
from worker.ledger.tables import generation_record, metadata

LEASE = timedelta(seconds=60)


def test_migrations_make_what_the_tables_say(database_url: str) -> None:
    engine = create_engine(sqlalchemy_url(database_url))
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


def test_record_table_and_schema_have_the_same_fields() -> None:
    assert {column.name for column in generation_record.columns} == set(GenerationRecord.model_fields)


def test_migrating_twice_changes_nothing(database_url: str) -> None:
    assert migrate(database_url) == (head_revision(), head_revision())


def test_money_of_jobs_pruned_before_the_migration_is_accounted(database_url: str) -> None:
    asyncio.run(_two_finished_one_pruned(database_url))
    _once_more(database_url, "_pruned_usd.py")

    with psycopg.connect(database_url) as connection:
        pruned = connection.execute("SELECT pruned_usd FROM batch WHERE pruned_usd > 0").fetchall()
    assert pruned == [(Decimal("0.002"),)]
    assert asyncio.run(_violations(database_url)) == []


def test_checks_that_wait_are_sorted_by_who_can_do_them_and_running_ones_stay(database_url: str) -> None:
    words, read = make_config(), make_config(checkers=("lexical", "local"))
    asked = [(words, None), (read, None), (read, words.checkers), (words, read.checkers)]
    jobs = make_jobs(*(make_request(response="It is ready.", config=config) for config, _ in [*asked, (read, None)]))
    ids = [job.id for job in jobs]

    async def prepare() -> None:
        async with PostgresLedger(database_url, connections=1) as ledger:
            await ledger.submit(make_batch(), [jobs])
            for job_id, (_, named) in zip(ids, asked, strict=False):
                if named is not None:
                    (job,) = [one for step in Step for one in await ledger.lease(step, "w", LEASE, 1, ids=[job_id])]
                    await ledger.finish([make_final(job)])
                    await ledger.recheck([job_id], Recheck(checkers=named), "me")
            assert len(await ledger.lease(Step.LOCAL, "w", LEASE, 1, ids=ids[-1:])) == 1

    def steps() -> list[str]:
        with psycopg.connect(database_url) as connection:
            rows = connection.execute("SELECT step FROM job ORDER BY position").fetchall()
        return [step for (step,) in rows]

    asyncio.run(prepare())
    assert steps() == ["check", "local", "check", "local", "local"]
    between = _once_more(database_url, "_local.py", steps)
    assert between == ["check"] * 5
    assert steps() == ["check", "local", "check", "local", "check"]


def test_an_empty_database_is_refused_with_the_remedy(servers: Servers) -> None:
    with servers.database(migrated=False) as url, pytest.raises(SchemaMismatch, match="run 'nightdesk migrate'"):
        asyncio.run(_open(url))


def test_a_newer_database_is_refused_by_ledger_and_migration(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

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


def _once_more(url: str, ending: str, look: Callable[[], list[str]] = list) -> list[str]:
    """Take back the migration whose file ends so, and apply it again; returns what is seen in between."""
    scripts = ScriptDirectory.from_config(_config()).walk_revisions()
    migration = next(script for script in scripts if script.path.endswith(ending)).module
    engine = create_engine(sqlalchemy_url(url))
    with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
        migration.downgrade()
    between = look()
    with engine.begin() as connection, Operations.context(MigrationContext.configure(connection)):
        migration.upgrade()
    engine.dispose()
    return between


async def _two_finished_one_pruned(url: str) -> None:
    async with PostgresLedger(url, connections=1) as ledger:
        await finished(ledger)
        await ledger.delete([await finished(ledger)])


async def _violations(url: str) -> list[Violation]:
    async with PostgresLedger(url, connections=1) as ledger:
        return await ledger.violations()


async def _open(url: str) -> None:
    async with PostgresLedger(url):
        pass
