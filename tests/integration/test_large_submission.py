"""The cost of a large submission into an empty ledger grows with its jobs, not with their square."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import psycopg
import pytest

from tasks.errors import SameInputSubmitted
from tasks.ports import Content, NewJob
from tests.builders import make_batch, make_jobs, make_request
from tests.lent_ledger import KeptLedger
from worker.ledger import submission

CHUNK = 200


@pytest.fixture(autouse=True)
def _page_is_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each chunk is written by itself, so that statistics may change between any two of them."""
    monkeypatch.setattr(submission, "PAGE_JOBS", CHUNK)


async def test_a_batch_is_found_by_its_content_until_its_answers_are_gone(database_url: str) -> None:
    async with KeptLedger(database_url) as ledger:

        async def submit(content: Content, tenant: str = "default") -> UUID:
            batch = replace(make_batch(tenant=tenant), content=lambda: content)
            await ledger.submission.submit(batch, [make_jobs(make_request("Why?"), tenant=tenant)])
            return batch.id

        same, other = Content(b"head", b"whole", b"basis"), Content(b"head", b"other", b"basis")
        first = await submit(same)
        assert await ledger.contents.find("default", same) == first
        assert await ledger.contents.find("default", other) is None
        assert await ledger.contents.find("another", same) is None
        assert await ledger.contents.begins_like("default", b"head")
        with pytest.raises(SameInputSubmitted, match="same command again"):
            await submit(same)
        assert await submit(same, "another") != first
        second = await submit(same._replace(replaces=True))
        assert await ledger.contents.find("default", same) == second
        await ledger.actions.cancel_batch(second, "operator")
        assert await ledger.contents.find("default", same) is None
        last = await submit(same)
        jobs = [view.job_id async for view in ledger.reading.batch_views(last)]
        await ledger.actions.cancel(jobs, "operator")
        assert await ledger.contents.find("default", same) == last
        await ledger.erasure.erase(jobs, "operator")
        assert await ledger.contents.find("default", same) is None


def _submit(database_url: str, jobs: list[NewJob], *, analyze: bool) -> tuple[int, int]:
    """Submit in chunks, with new statistics before each of them; returns the rows of jobs read and written."""
    before = _rows_read_and_written(database_url)

    def chunks() -> Iterator[list[NewJob]]:
        for at in range(0, len(jobs), CHUNK):
            if analyze:
                _analyze(database_url)
            yield jobs[at : at + CHUNK]

    async def work() -> None:
        async with KeptLedger(database_url) as ledger:
            receipt = await ledger.submission.submit(make_batch(), chunks())
            assert len(receipt.job_ids) + len(receipt.refused) == len(jobs)

    asyncio.run(work())
    _await_end_of_backends(database_url)
    reads, inserts = (now - then for now, then in zip(_rows_read_and_written(database_url), before, strict=True))
    return reads, inserts


def _await_end_of_backends(database_url: str) -> None:
    """A backend reports what it read when it ends, which is a moment after its connection is closed."""
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    deadline = time.monotonic() + 30
    with psycopg.connect(database_url, autocommit=True) as connection:
        while connection.execute(f"{count} AND application_name = 'nightdesk'").fetchone() != (0,):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def _analyze(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("ANALYZE job, job_request")


def _rows_read_and_written(database_url: str) -> tuple[int, int]:
    """Rows of jobs that were read, and that were written, since the statistics began."""
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "SELECT seq_tup_read + idx_tup_fetch, n_tup_ins FROM pg_stat_user_tables WHERE relname = 'job'"
        ).fetchone()
    assert row is not None
    return row
