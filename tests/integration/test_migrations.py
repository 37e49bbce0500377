"""The migrated database is the one the code describes, and a wrong one is refused with the remedy."""

import asyncio
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import orjson
import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from schemas import CONTRACT_VERSION
from schemas.job import JobRequest, SourceContext
from schemas.record import GenerationRecord
from schemas.states import Step
from tasks.errors import LedgerUnavailable, SchemaMismatch
from tests.builders import make_request, new_id
from tests.databases import new_database
from tests.deadlines import until
from tests.deployment import KUBERNETES, objects_of
from tests.servers import Servers
from worker.ledger import schema_version, upgrade
from worker.ledger.packing import decompress
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
        _migrate_to(1, url, tmp_path / "first", monkeypatch)
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


CONFIG = {"mode": "grounded", "timeout_s": 30.0, "max_tokens": 77, "checkers": ["structure"]}
FRAMES_OF_BEFORE = {
    # Each frame of a table with what it holds: with the dictionary of the versions before, and, where it is long, without.
    "job_request": (
        (
            (
                "000000210128b52ffd204dbd0000283337375d7d0500bc85207e1c728076488571f0007d800128b52ffd6090076d0100d8547079206973"
                "207265616479206174206e696e652e206331227d5d04005d7564500a3e3d87db11ce9d070c02"
            ),
            {"context": [{"content": "The copy is ready at nine. " * 80, "chunk_id": "c1"}], "config": CONFIG},
        ),
        (
            (
                "000000190128b52ffd20247d00002833302e307d0200488506f0007d8028b52ffd60f448250200b4035b7b22636f6e74656e74223a2254"
                "686520636f7079206973207265616479206174206e696e652e20222c226368756e6b5f6964223a226331227d5d0100b04d7c9f65"
            ),
            {
                "context": [{"content": "The copy is ready at nine. " * 700, "chunk_id": "c1"}],
                "config": {"mode": "grounded", "timeout_s": 30.0},
            },
        ),
    ),
    "completion": (
        (
            "0128b52ffd20341d0100c80000000f000000136e6f6f6e227d7dff007261770a6e6f6f6e020038045f000aca05",
            b'{"text":"noon"}\n{"name":"grounded"}\n\xff\x00raw\nnoon',
        ),
    ),
    "generation_record": (
        ("0128b52ffd2024a50000500000001c5d7d6e756c6c0200040507d0933311", b'{"citations":[],"claims":[]}\nnull'),
        (
            (
                "28b52ffd602d51ad0100c402000052257b226369746174696f6e73223a5b5d2c22636c61696d73223a5b226e6f6f6e222c315d7d6e756c"
                "6c0100f58fb49727"
            ),
            b'{"citations":[],"claims":[%b1]}\nnull' % (b'"noon",' * 3_000),
        ),
        ("deadbeef", None),
    ),
}
_ROWS_OF_BEFORE = {
    "job_request": "INSERT INTO job_request (job_id, head, request_hash, contract_version, sources) VALUES (%s, '{}', '', 1, %s)",
    "completion": """
        INSERT INTO completion (attempt_id, job_id, run, round, purpose, won, finish_reason, parsed, prompt, packed)
        VALUES (%s, gen_random_uuid(), 1, 0, 'generate', true, 'stop', '{}', '{}', %s)""",
    "generation_record": """
        INSERT INTO generation_record (job_id, run, tenant, message_id, contract_version, answer, output_format, quality, status,
                                       timing_ms, packed)
        VALUES (%s, 2, 'desk', '', 1, '', 'plain', '{}', 'success', '{}', %s)""",
}


def test_frames_of_before_are_written_anew(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with servers.database(migrated=False) as url:
        _migrate_to(6, url, tmp_path / "before", monkeypatch)
        ids = {table: [new_id() for _ in frames] for table, frames in FRAMES_OF_BEFORE.items()}
        with psycopg.connect(url, autocommit=True) as connection:
            # Rows without the jobs that they are of.
            connection.execute("SET session_replication_role = replica")
            for table, frames in FRAMES_OF_BEFORE.items():
                for row_id, (frame, _) in zip(ids[table], frames, strict=True):
                    connection.execute(_ROWS_OF_BEFORE[table].encode(), (row_id, bytes.fromhex(frame)))

            assert migrate(url) == ("0006", head_revision())

            for table, frames in FRAMES_OF_BEFORE.items():
                key = "attempt_id" if table == "completion" else "job_id"
                stored = dict(connection.execute(f"SELECT {key}, frame FROM {table}".encode()).fetchall())
                for row_id, (before, content) in zip(ids[table], frames, strict=True):
                    frame = stored[row_id]
                    if content is None:
                        assert frame.hex() == before, "what can't be read is left as it is"
                    elif isinstance(content, dict):
                        assert orjson.loads(decompress(frame)) == content
                    else:
                        assert decompress(frame) == content


def test_answers_of_before_have_their_place_in_the_queue(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groundings = {
        '{"grounding_score": 0.5, "counts": {"supported": 1, "contradicted": 1}}': 0.5,
        '{"grounding_score": 0.25, "counts": {"supported": 1, "undecided": 3}}': 2.25,
        '{"grounding_score": 0.75, "counts": {"supported": 3}}': 1.75,
        '{"grounding_score": 1.0, "counts": {"supported": 3}}': 5.0,
        '{"grounding_score": null, "counts": {"not_checkable": 1}}': None,
    }
    with servers.database(migrated=False) as url:
        _migrate_to(9, url, tmp_path / "before", monkeypatch)
        ids = {new_id(): grounding for grounding in groundings}
        with psycopg.connect(url, autocommit=True) as connection:
            # Rows without the batch and the request that they are of.
            connection.execute("SET session_replication_role = replica")
            for job_id, grounding in ids.items():
                connection.execute(_FINAL_JOB, {"id": job_id, "grounding": grounding})

            migrate(url)

            stored = dict(connection.execute("SELECT id, standing FROM job").fetchall())
    assert stored == {job_id: groundings[grounding] for job_id, grounding in ids.items()}


_FINAL_JOB = """
WITH j AS (
    INSERT INTO job (id, batch_id, position, tenant, state, step, request_bytes, scheduled_at, finished_at, outcome)
    VALUES (%(id)s, %(id)s, 0, 'desk', 'completed', 'check', 300, now(), now(), 'partial')
)
INSERT INTO generation_record (job_id, run, tenant, message_id, contract_version, answer, output_format, quality, status,
                               timing_ms, grounding)
VALUES (%(id)s, 1, 'desk', %(id)s::text, 1, '', 'plain', '{}', 'success', '{}', %(grounding)s)
"""


def _migrate_to(count: int, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Migrate as a version did that had so many scripts."""
    shutil.copytree(upgrade.SCRIPTS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for script in sorted((folder / "versions").glob("0*.py"))[count:]:
        script.unlink()
    with monkeypatch.context() as before:
        before.setattr(upgrade, "SCRIPTS", str(folder))
        before.setattr(schema_version, "REVISIONS", REVISIONS[:count])
        migrate(url)


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
