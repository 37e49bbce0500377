"""Bounds: the bytes and the risk that a lease brings, and how often a job is taken up again whose worker was lost."""

from datetime import timedelta

import pytest

from schemas.failure import FailureKind
from schemas.states import HeldReason, JobState, Step
from tasks.ports import LAST_RESCUES, LeaseRoom
from tests.builders import later, lease_key, make_batch, make_request
from tests.contract.conftest import Clock
from tests.contract.situations import (
    ACTOR,
    LEASE,
    checking,
    generate,
    open_one,
    state,
    submit,
    submit_many,
    take_one,
    view,
)
from worker.ledger.postgres import PostgresLedger

EASY = LeaseRoom(1_000_000_000)


async def lose(
    ledger: PostgresLedger, clock: Clock, times: int = 1, step: Step = Step.GENERATE, most: int = 100
) -> None:
    """Lease whatever is available and lose its worker, so often."""
    for number in range(times):
        await ledger.queue.lease(step, f"w{number}", LEASE, 100)
        await clock.advance(2 * LEASE)
        await ledger.duties.rescue(100, None, most)


# ---- bytes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idle", [False, True])
async def test_a_lease_brings_no_more_bytes_than_there_is_room_for(ledger: PostgresLedger, *, idle: bool) -> None:
    requests = [make_request(f"{n}?", context=["x" * 1_000]) for n in range(6)]
    receipt = await submit(ledger, *requests)
    size = (await take_one(ledger, receipt.job_ids[0])).request_bytes
    ids = None if idle else receipt.job_ids

    two = await ledger.queue.lease(Step.GENERATE, "w1", LEASE, 10, ids=ids, room=LeaseRoom(2 * size + 10))
    rest = await ledger.queue.lease(Step.GENERATE, "w1", LEASE, 10, ids=ids, room=LeaseRoom(10 * size))

    assert [job.job_id for job in two] == list(receipt.job_ids[1:3])
    assert [job.job_id for job in rest] == list(receipt.job_ids[3:])
    assert size == len(requests[0].model_dump_json())


async def test_a_job_bigger_than_the_room_comes_alone(ledger: PostgresLedger) -> None:
    big, small = make_request("big?", context=["x" * 5_000], priority=1), make_request("small?")
    receipt = await submit(ledger, small, big)

    (first,) = await ledger.queue.lease(Step.GENERATE, "w1", LEASE, 10, room=LeaseRoom(1_000))
    (second,) = await ledger.queue.lease(Step.GENERATE, "w1", LEASE, 10, room=LeaseRoom(1_000))

    assert (first.job_id, second.job_id) == (receipt.job_ids[1], receipt.job_ids[0])


# ---- risk ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idle", [False, True])
async def test_suspects_come_in_ever_smaller_groups(ledger: PostgresLedger, clock: Clock, *, idle: bool) -> None:
    receipt = await submit_many(ledger, 80)
    ids = None if idle else receipt.job_ids
    groups = []
    for _ in range(5):
        leased = await ledger.queue.lease(Step.GENERATE, "w1", LEASE, 100, ids=ids, room=EASY)
        groups.append(len(leased))
        await ledger.queue.hand_back([lease_key(job) for job in leased])
        await lose(ledger, clock)

    assert groups == [80, 64, 16, 4, 1]


async def test_suspects_do_not_keep_others_back(ledger: PostgresLedger, clock: Clock) -> None:
    suspects = await submit_many(ledger, 3)
    await lose(ledger, clock, 4)
    fresh = await submit_many(ledger, 2, make_batch())

    without = await ledger.queue.lease(Step.GENERATE, "w1", LEASE, 1, room=LeaseRoom(1_000_000, risk=0.5))
    both = await ledger.queue.lease(Step.GENERATE, "w1", LEASE, 10, room=EASY)

    assert [job.job_id for job in without] == [fresh.job_ids[0]]
    assert {job.job_id for job in both} == {suspects.job_ids[0], fresh.job_ids[1]}
    assert {job.rescues for job in both} == {0, 4}


# ---- an end to rescues -----------------------------------------------------------------------------------------


async def test_a_job_that_loses_its_worker_again_and_again_fails_with_its_history(
    ledger: PostgresLedger, clock: Clock
) -> None:
    (job_id,) = (await submit(ledger)).job_ids
    await lose(ledger, clock, 3, most=2)

    failed = await view(ledger, job_id)
    detail = await ledger.reading.job_detail(job_id)

    assert failed.state is JobState.FAILED
    assert failed.record is not None
    assert failed.record.failure is not None
    assert failed.record.failure.kind is FailureKind.WORKER_LOST
    assert "lost 3 times" in failed.record.failure.message
    assert "(w0, w1, w2)" in failed.record.failure.message
    assert [event["kind"] for event in detail.events] == ["rescue", "rescue", "given_up"]
    assert await ledger.outbox.unpublished(10, timedelta(0)) != []


async def test_by_policy_a_job_with_an_unknown_call_is_held_at_any_count(ledger: PostgresLedger, clock: Clock) -> None:
    (job_id,) = (await submit(ledger)).job_ids
    await lose(ledger, clock, 2, most=2)
    await open_one(ledger, await take_one(ledger, job_id))
    await clock.advance(2 * LEASE)

    await ledger.duties.rescue(10, HeldReason.UNKNOWN_OUTCOME, 2)

    assert (await view(ledger, job_id)).held_reason == HeldReason.UNKNOWN_OUTCOME


async def test_an_answer_that_was_paid_for_comes_back_to_a_worker_first(ledger: PostgresLedger, clock: Clock) -> None:
    leased = await checking(ledger)
    await ledger.queue.hand_back([lease_key(leased)])
    await lose(ledger, clock, 2, Step.CHECK, most=1)

    again = await take_one(ledger, leased.job_id, Step.CHECK)
    assert (again.rescues, again.stored is not None) == (2, True)
    await ledger.queue.hand_back([lease_key(again)])
    await lose(ledger, clock, LAST_RESCUES, Step.CHECK, most=1)

    assert await state(ledger, leased.job_id) is JobState.FAILED


@pytest.mark.parametrize("how", ["step", "round", "run"])
async def test_the_count_of_rescues_starts_again(ledger: PostgresLedger, clock: Clock, how: str) -> None:
    (job_id,) = (await submit(ledger)).job_ids
    await lose(ledger, clock, 2)
    leased = await take_one(ledger, job_id)
    assert leased.rescues == 2
    step = Step.GENERATE
    if how == "step":
        await generate(ledger, leased)
        step = Step.CHECK
    elif how == "round":
        await ledger.queue.defer(lease_key(leased), later(leased, round=1))
        await clock.advance(LEASE)
        await ledger.duties.promote(10)
    else:
        await ledger.actions.cancel([job_id], ACTOR)
        await ledger.actions.retry([job_id], ACTOR)
        await ledger.duties.promote(10)

    assert (await take_one(ledger, job_id, step)).rescues == 0
