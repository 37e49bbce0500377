"""A row that makes a statement fail costs nobody else anything: not at a duty, and not at a person's verb."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import orjson
import psycopg
import pytest
from psycopg import sql

from schemas.job import Recheck, SourceContext
from schemas.states import JobState, Step
from tasks.ports import Page, Receipt
from tests.builders import make_request
from tests.contract.conftest import Clock
from tests.contract.situations import ACTOR, HOUR, LEASE, SECOND, finish, finished, generate, states, submit_many, take
from worker.ledger.postgres import PostgresLedger

_RAISE = """
CREATE FUNCTION raise_poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'poison'; END $$;
CREATE TRIGGER poison BEFORE UPDATE OR DELETE ON job FOR EACH ROW WHEN (OLD.id IN ({ids})) EXECUTE FUNCTION raise_poison()
"""
_HEAL = "DROP TRIGGER poison ON job; DROP FUNCTION raise_poison"


def poison(database_url: str, job_ids: Sequence[UUID]) -> None:
    """Make every change of these jobs fail."""
    ids = sql.SQL(", ").join(sql.Literal(str(job_id)) for job_id in job_ids)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(sql.SQL(_RAISE).format(ids=ids))


def occupy_record(database_url: str, job_id: UUID) -> None:
    """Write the record of a run that has not ended, so that its end breaks a unique index."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO generation_record (job_id, run, tenant, message_id, contract_version, answer, output_format, "
            "citations, quality, status, timing_ms) VALUES (%s, 1, 'desk', 'x', 1, '', 'markdown', '[]', '{}', 'failed', '{}')",
            (job_id,),
        )


def heal(database_url: str) -> None:
    """Take the poison away."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(_HEAL)


def quarantined(database_url: str) -> dict[UUID, tuple[str, int]]:
    """Duty and tries of the jobs in quarantine."""
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT job_id, duty, tries FROM quarantine").fetchall()
    return {job_id: (duty, tries) for job_id, duty, tries in rows}


# ---- promote ---------------------------------------------------------------------------------------------------


async def test_a_job_that_cannot_be_promoted_keeps_no_other_from_it(
    ledger: PostgresLedger, clock: Clock, postgres_database_url: str
) -> None:
    ids = (await submit_many(ledger, 7, scheduled_at=clock.now() + SECOND)).job_ids
    poison(postgres_database_url, ids[:2])
    await clock.advance(HOUR)

    promoted = [await ledger.duties.promote(3) for _ in range(4)]

    assert sum(promoted) == 5
    assert await states(ledger, ids) == [JobState.SCHEDULED] * 2 + [JobState.AVAILABLE] * 5
    assert quarantined(postgres_database_url) == dict.fromkeys(ids[:2], ("promote", 1))
    heal(postgres_database_url)
    await clock.advance(HOUR)
    assert await ledger.duties.promote(9) == 2


# ---- publish ---------------------------------------------------------------------------------------------------


async def test_a_record_that_cannot_be_read_keeps_no_other_result_back(
    ledger: PostgresLedger, postgres_database_url: str
) -> None:
    ids = [await finished(ledger) for _ in range(4)]
    with psycopg.connect(postgres_database_url, autocommit=True) as connection:
        connection.execute(
            """UPDATE generation_record SET citations = '[{"no": "citation"}]' WHERE job_id = ANY(%s)""", (ids[:2],)
        )

    pages = [await ledger.outbox.unpublished(2, 0 * SECOND) for _ in range(2)]

    assert [[view.job_id for view in page] for page in pages] == [[], ids[2:]]
    assert quarantined(postgres_database_url) == dict.fromkeys(ids[:2], ("publish", 1))


# ---- lease -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["deadline", "started_at", "created_at"])
async def test_a_time_that_python_has_not_keeps_no_other_job_from_its_lease(
    ledger: PostgresLedger, postgres_database_url: str, column: str
) -> None:
    ids = (await submit_many(ledger, 3)).job_ids
    with psycopg.connect(postgres_database_url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("UPDATE job SET {} = 'infinity' WHERE id = %s").format(sql.Identifier(column)), (ids[1],)
        )

    leased = await ledger.queue.lease(Step.GENERATE, "w", LEASE, 3)

    assert {ids[0], ids[2]} <= {job.job_id for job in leased}


# ---- expire ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["trigger", "record"])
async def test_a_job_that_cannot_expire_keeps_no_other_from_it(
    ledger: PostgresLedger, clock: Clock, postgres_database_url: str, kind: str
) -> None:
    ids = (await submit_many(ledger, 9, deadline=clock.now() + SECOND)).job_ids
    if kind == "trigger":
        poison(postgres_database_url, [ids[4]])
    else:
        occupy_record(postgres_database_url, ids[4])
    await clock.advance(HOUR)

    assert set(await ledger.duties.expire(100)) == {*ids} - {ids[4]}

    assert await states(ledger, ids) == [JobState.EXPIRED] * 4 + [JobState.AVAILABLE] + [JobState.EXPIRED] * 4
    assert quarantined(postgres_database_url) == {ids[4]: ("expire", 1)}


async def test_a_job_in_quarantine_is_tried_again_ever_later_until_it_expires(
    ledger: PostgresLedger, clock: Clock, postgres_database_url: str
) -> None:
    (job_id,) = (await submit_many(ledger, 1, deadline=clock.now() + SECOND)).job_ids
    poison(postgres_database_url, [job_id])
    await clock.advance(HOUR)
    await ledger.duties.expire(10)

    await ledger.duties.expire(10)
    assert quarantined(postgres_database_url) == {job_id: ("expire", 1)}, "it was tried again at once"
    await clock.advance(timedelta(minutes=1, seconds=1))
    await ledger.duties.expire(10)
    assert quarantined(postgres_database_url) == {job_id: ("expire", 2)}
    await clock.advance(timedelta(minutes=1, seconds=1))
    await ledger.duties.expire(10)
    assert quarantined(postgres_database_url) == {job_id: ("expire", 2)}, "the second wait is not longer than the first"

    heal(postgres_database_url)
    await clock.advance(HOUR)
    assert await ledger.duties.expire(10) == [job_id]


# ---- rescue ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_rescues", [5, 0])
async def test_a_job_that_cannot_be_rescued_keeps_no_other_from_it(
    ledger: PostgresLedger, clock: Clock, postgres_database_url: str, max_rescues: int
) -> None:
    ids = (await submit_many(ledger, 9)).job_ids
    await take(ledger, ids)
    if max_rescues:
        poison(postgres_database_url, [ids[4]])
    else:
        occupy_record(postgres_database_url, ids[4])
    await clock.advance(2 * LEASE)

    await ledger.duties.rescue(100, None, max_rescues)

    after = JobState.AVAILABLE if max_rescues else JobState.FAILED
    assert await states(ledger, ids) == [after] * 4 + [JobState.RUNNING] + [after] * 4
    assert quarantined(postgres_database_url) == {ids[4]: ("rescue", 1)}


# ---- a person's verbs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["cancel", "cancel_batch"])
async def test_a_job_that_cannot_be_cancelled_keeps_no_other_from_it(
    ledger: PostgresLedger, postgres_database_url: str, verb: str
) -> None:
    receipt = await submit_many(ledger, 7)
    bad = receipt.job_ids[2]
    occupy_record(postgres_database_url, bad)
    pages: list[Page] = []

    if verb == "cancel":
        cancelled = await ledger.actions.cancel(receipt.job_ids, ACTOR, pages.append)
    else:
        cancelled = await ledger.actions.cancel_batch(receipt.batch_id, ACTOR, pages.append)

    assert set(cancelled) == {*receipt.job_ids} - {bad}
    assert [list(page.refused) for page in pages] == [[bad]]
    assert "generation_record_pkey" in pages[0].refused[bad]
    if verb == "cancel_batch":
        # It is no more called than the others.
        assert await take(ledger, [bad]) == []


@pytest.mark.parametrize("verb", ["retry", "recheck", "erase", "delete"])
async def test_a_final_job_that_cannot_be_changed_keeps_no_other_from_it(
    ledger: PostgresLedger, postgres_database_url: str, verb: str
) -> None:
    ids = [await finished(ledger, make_request(f"Question {n}?")) for n in range(5)]
    poison(postgres_database_url, [ids[3]])
    pages: list[Page] = []

    if verb == "retry":
        changed = await ledger.actions.retry(ids, ACTOR, pages.append)
    elif verb == "recheck":
        changed = await ledger.actions.recheck(ids, Recheck(), ACTOR, pages.append)
    elif verb == "erase":
        changed = list(await ledger.erasure.erase(ids, ACTOR, pages.append))
    else:
        changed = list((await ledger.erasure.delete(ids, pages.append)).runs)

    assert set(changed) == {*ids} - {ids[3]}
    assert {job_id: why for page in pages for job_id, why in page.refused.items()} == {ids[3]: "poison"}
    heal(postgres_database_url)
    assert await ledger.inspection.violations() == []


async def test_a_held_job_that_cannot_be_released_keeps_no_other_from_it(
    ledger: PostgresLedger, postgres_database_url: str
) -> None:
    receipt = await submit_many(ledger, 5)
    await ledger.actions.pause_batch(receipt.batch_id, ACTOR, paused=True)
    poison(postgres_database_url, receipt.job_ids[:1])

    assert await ledger.actions.pause_batch(receipt.batch_id, ACTOR, paused=False) == 4

    assert await states(ledger, receipt.job_ids) == [JobState.SCHEDULED] + [JobState.AVAILABLE] * 4


# ---- leases ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["by ids", "by priority"])
async def test_a_job_that_cannot_be_leased_keeps_no_other_from_it(
    ledger: PostgresLedger, postgres_database_url: str, way: str
) -> None:
    ids = (await submit_many(ledger, 7)).job_ids
    poison(postgres_database_url, ids[:1])

    if way == "by ids":
        leased_ids = [job.job_id for job in await take(ledger, ids)]
    else:
        # One at a time, so that the bad one stands alone at the head.
        leased_ids = [job.job_id for _ in range(6) for job in await ledger.queue.lease(Step.GENERATE, "w1", LEASE, 1)]

    assert set(leased_ids) == {*ids} - {ids[0]}
    assert quarantined(postgres_database_url) == {ids[0]: ("lease", 1)}


# ---- rows that no reader understands ---------------------------------------------------------------------------

LONG = "The copy is ready on Monday. " * 200
"""A source that is long enough to be packed."""

DAMAGED_REQUESTS = {
    "bytes": r"UPDATE job_request SET frame = '\xdeadbeefdeadbeef' WHERE job_id = %s",
    "cut": "UPDATE job_request SET frame = substr(frame, 1, 40) WHERE job_id = %s",
    "no object": "UPDATE job_request SET head = '[1]' WHERE job_id = %s",
    "number": "UPDATE job_request SET head = jsonb_set(head, '{custom_id}', '1e400') WHERE job_id = %s",
}


def damage(database_url: str, statement: str, job_ids: Sequence[UUID]) -> None:
    """Damage what the ledger holds of some jobs."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        for job_id in job_ids:
            connection.execute(statement.encode(), (job_id,))


async def failures(ledger: PostgresLedger, batch_id: UUID) -> dict[str, int]:
    """Failed jobs by cause."""
    return {cause.kind: cause.jobs for cause in await ledger.figures.failure_causes(batch_id)}


@pytest.mark.parametrize("how", DAMAGED_REQUESTS)
@pytest.mark.parametrize("way", ["by ids", "by priority"])
async def test_a_request_that_cannot_be_read_fails_alone(
    ledger: PostgresLedger, postgres_database_url: str, way: str, how: str
) -> None:
    receipt = await submit_many(ledger, 7, context=(SourceContext(content=LONG),))
    bad = receipt.job_ids[2:5:2]
    damage(postgres_database_url, DAMAGED_REQUESTS[how], bad)

    ids = receipt.job_ids if way == "by ids" else None
    leased = await ledger.queue.lease(Step.GENERATE, "w1", LEASE, 10, ids=ids)

    assert {job.job_id for job in leased} == {*receipt.job_ids} - {*bad}
    assert await failures(ledger, receipt.batch_id) == {"unreadable": 2}
    assert await ledger.inspection.violations() == []


async def test_an_answer_that_cannot_be_read_fails_its_job_alone(
    ledger: PostgresLedger, postgres_database_url: str
) -> None:
    receipt = await submit_many(ledger, 3, context=(SourceContext(content=LONG),))
    for job in await take(ledger, receipt.job_ids):
        await generate(ledger, job)
    bad = receipt.job_ids[:1]
    damage(postgres_database_url, r"UPDATE completion SET frame = '\x00', parsed = '{}' WHERE job_id = %s", bad)

    leased = await take(ledger, receipt.job_ids, Step.CHECK)

    assert {job.job_id for job in leased} == {*receipt.job_ids[1:]}
    assert await failures(ledger, receipt.batch_id) == {"unreadable": 1}


async def test_the_failure_of_an_unreadable_row_says_what_to_do_and_repeats_nothing_of_it(
    ledger: PostgresLedger, postgres_database_url: str
) -> None:
    receipt = await submit_many(ledger, 1)
    damage(
        postgres_database_url,
        """UPDATE job_request SET head = '{"secret": "swordfish"}' WHERE job_id = %s""",
        receipt.job_ids,
    )

    assert await take(ledger, receipt.job_ids) == []

    (cause,) = await ledger.figures.failure_causes(receipt.batch_id)
    assert "can't be read" in cause.example
    assert "submit" in cause.example
    assert "swordfish" not in cause.example


# ---- reading what can't be read --------------------------------------------------------------------------------

DAMAGED_RECORDS = {
    "packed": r"UPDATE generation_record SET frame = '\xdeadbeef' WHERE job_id = %s",
    "fields": """UPDATE generation_record SET frame = NULL, citations = '[{"no": "citation"}]' WHERE job_id = %s""",
    "no object": "UPDATE generation_record SET grounding = '[1]' WHERE job_id = %s",
}


async def end_all(ledger: PostgresLedger, number: int) -> Receipt:
    """A batch of finished jobs."""
    receipt = await submit_many(ledger, number, context=(SourceContext(content=LONG),))
    for job in await take(ledger, receipt.job_ids):
        await generate(ledger, job)
    for job in await take(ledger, receipt.job_ids, Step.CHECK):
        await finish(ledger, job)
    return receipt


@pytest.mark.parametrize("how", DAMAGED_RECORDS)
async def test_a_damaged_record_ends_no_export(ledger: PostgresLedger, postgres_database_url: str, how: str) -> None:
    receipt = await end_all(ledger, 5)
    bad = receipt.job_ids[2]
    damage(postgres_database_url, DAMAGED_RECORDS[how], [bad])

    lines = [
        orjson.loads(line.content) async for page in ledger.reading.batch_results(receipt.batch_id) for line in page
    ]
    results = [stored.result for stored in await ledger.reading.results(receipt.job_ids)]
    views = [view async for view in ledger.reading.batch_views(receipt.batch_id)]

    assert [UUID(line["job_id"]) for line in lines] == list(receipt.job_ids)
    assert [result.job_id for result in results] == list(receipt.job_ids)
    assert [view.job_id for view in views] == list(receipt.job_ids)
    assert [line["failure"] and line["failure"]["kind"] for line in lines] == [None, None, "unreadable", None, None]
    assert [result.failure.kind.value if result.failure else None for result in results].count("unreadable") == 1
    detail = await ledger.reading.job_detail(bad)
    assert detail.view.unreadable is not None
