"""The cost of a large submission into an empty ledger grows with its jobs, not with their square."""

import asyncio

import psycopg
import pytest

from tests.builders import make_batch, make_jobs, make_request
from worker.ledger.postgres import PostgresLedger

CHUNKS = 16
CHUNK = 200


@pytest.mark.parametrize("id_field", ["custom_id", "idempotency_key", "message_id"])
def test_the_ids_of_a_chunk_are_found_without_reading_the_chunks_before(database_url: str, id_field: str) -> None:
    before = _rows_read_and_written(database_url)
    jobs = make_jobs(*(make_request(f"Question {n}?", **{id_field: f"q-{n}"}) for n in range(CHUNKS * CHUNK)))

    async def work() -> None:
        async with PostgresLedger(database_url, connections=1) as ledger:
            chunks = (jobs[at : at + CHUNK] for at in range(0, len(jobs), CHUNK))
            receipt = await ledger.submission.submit(make_batch(), chunks)
            assert len(receipt.job_ids) == len(jobs)

    asyncio.run(work())
    # A backend reports what it read when its connection is closed.
    reads, inserts = (now - then for now, then in zip(_rows_read_and_written(database_url), before, strict=True))
    assert inserts == len(jobs)
    # While the table is small, the whole of it is the quickest way.
    assert reads < 3 * len(jobs)


def _rows_read_and_written(database_url: str) -> tuple[int, int]:
    """Rows of jobs that were read, and that were written, since the statistics began."""
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT seq_tup_read + idx_tup_fetch, n_tup_ins FROM pg_stat_user_tables WHERE relname = 'job'"
        ).fetchone()
    assert row is not None
    return row
