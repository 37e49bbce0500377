"""A job that is cancelled or expires while a call of either step is open: the money is recorded, nothing else changes."""

from decimal import Decimal

import pytest

from schemas.states import JobState, Step
from tasks.ports import Opened, Purpose
from tests.builders import (
    closed_ok,
    lease_key,
    make_attempt,
    make_batch,
    make_config,
    make_final,
    make_request,
    to_check,
)
from tests.contract.conftest import Clock
from tests.contract.situations import ACTOR, HOUR, LEASE, generate, open_one, state, submit_and_take, take_one, view
from worker.ledger.postgres import PostgresLedger


@pytest.mark.parametrize("verb", ["cancel", "cancel_batch", "expire"])
@pytest.mark.parametrize("step", list(Step))
async def test_ending_a_job_in_flight_keeps_its_money_and_drops_its_work(
    ledger: PostgresLedger, clock: Clock, step: Step, verb: str
) -> None:
    batch = make_batch(max_cost_usd=Decimal(1))
    config = make_config(checkers=("local",) if step is Step.LOCAL else ("lexical",))
    leased = await submit_and_take(ledger, make_request(deadline=clock.now() + HOUR, config=config), batch)
    paid_before = Decimal(0)
    if step is not Step.GENERATE:
        await generate(ledger, leased)
        paid_before = Decimal("0.002")
        leased = await take_one(ledger, leased.job_id, step)
    purpose = Purpose.GENERATE if step is Step.GENERATE else Purpose.JUDGE
    attempt = await open_one(ledger, leased, purpose=purpose, reserved_usd=Decimal("0.5"))

    if verb == "expire":
        await clock.advance(HOUR)
        assert await ledger.duties.expire(10) == [leased.job_id]
    elif verb == "cancel":
        assert await ledger.actions.cancel([leased.job_id], ACTOR) == [leased.job_id]
    else:
        assert await ledger.actions.cancel_batch(leased.batch_id, ACTOR) == [leased.job_id]

    ended = JobState.EXPIRED if verb == "expire" else JobState.CANCELLED
    assert await state(ledger, leased.job_id) is ended
    assert (await ledger.queue.renew([lease_key(leased)], LEASE)).lost == {leased.job_id}
    assert await ledger.attempts.open_attempts([make_attempt(leased, purpose=purpose)]) == [Opened.LOST]
    assert await ledger.queue.finish([make_final(leased)]) == set()
    # What was reserved stays so until it is known what the call cost.
    assert (await ledger.reading.batch_status(batch.id)).reserved_usd == Decimal("0.5")
    assert await ledger.attempts.close_attempts([closed_ok(leased, attempt, then=to_check(leased))]) == set()
    status = await ledger.reading.batch_status(batch.id)
    assert (status.reserved_usd, status.spent_usd) == (Decimal(0), paid_before + Decimal("0.002"))
    final = await view(ledger, leased.job_id)
    assert (final.state, final.cost_usd) == (ended, paid_before + Decimal("0.002"))
