"""Identical calls of a tenant share one paid answer: whose is taken, by whom, and what it leaves behind."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from schemas.model_call import Completion, FinishReason, ProviderSnapshot, SharedFrom, Usage
from schemas.states import JobState, Step
from tasks.ports import CacheResult, CacheStatus, Leased
from tests.builders import (
    closed_ok,
    make_attempt,
    make_batch,
    make_request,
    make_terms,
    make_wanted,
    new_id,
    to_check,
)
from tests.contract.conftest import Clock
from tests.contract.situations import (
    ACTOR,
    HOUR,
    SECOND,
    answered,
    finish,
    finished,
    look,
    open_one,
    sound,
    submit_and_take,
    submit_many,
    take,
    take_one,
    view,
)
from worker.ledger.postgres import PostgresLedger

NONE, LOST, REUSED = CacheStatus.NONE, CacheStatus.LOST, CacheStatus.REUSED


# ---- what is taken ---------------------------------------------------------------------------------------------


async def test_the_answer_of_an_identical_call_is_taken_at_no_cost(ledger: PostgresLedger) -> None:
    snapshot = ProviderSnapshot(
        provider="fake", model_asked="fake-1", model_returned="fake-1b", request_id="req_1", rate_limits={"x": "1"}
    )
    first, paid = await answered(ledger, snapshot=snapshot)
    second = await submit_and_take(ledger)
    lookup = make_wanted(second)

    assert await ledger.cache.share([lookup]) == [CacheResult(REUSED)]

    moved = await view(ledger, second.job_id)
    assert (moved.state, moved.step, moved.cost_usd) == (JobState.AVAILABLE, Step.CHECK, 0)
    detail = await ledger.reading.job_detail(second.job_id)
    (row,) = detail.attempts
    assert (str(row["id"]), row["outcome"], row["purpose"]) == (str(lookup.attempt.id), "ok", "generate")
    assert (row["usage"], Decimal(str(row["cost_usd"])), Decimal(str(row["reserved_usd"]))) == (None, 0, 0)
    assert str(row["shared_from"]) == str(paid.id)
    assert row["timing_ms"] == lookup.timing_ms
    (raw,) = [completion["raw"] for completion in detail.completions]
    assert raw == (await ledger.reading.job_detail(first.job_id)).completions[0]["raw"]

    checking = await take_one(ledger, second.job_id, Step.CHECK)
    assert checking.stored is not None
    completion = checking.stored.completion
    assert completion.text == "It is ready."
    assert (completion.cost_usd, completion.usage) == (0, Usage())
    assert checking.stored.prompt == lookup.prompt
    assert checking.stored.timing_ms == lookup.timing_ms
    snapshot = completion.snapshot
    assert (snapshot.model_returned, snapshot.request_id, snapshot.rate_limits) == ("fake-1b", "req_1", {})
    assert snapshot.parameters_sent == {"max_tokens": 7}
    assert snapshot.shared_from is not None
    assert (snapshot.shared_from.job_id, snapshot.shared_from.attempt_id) == (first.job_id, paid.id)
    assert snapshot.shared_from.answered_at == await closed_at(ledger, first)
    await finish(ledger, checking)
    await sound(ledger)


async def closed_at(ledger: PostgresLedger, leased: Leased) -> datetime:
    (row,) = (await ledger.reading.job_detail(leased.job_id)).attempts
    return SharedFrom(job_id=new_id(), attempt_id=new_id(), answered_at=row["closed_at"]).answered_at


async def test_a_budget_that_is_used_up_does_not_stand_in_the_way(ledger: PostgresLedger) -> None:
    batch = make_batch(max_cost_usd=Decimal("0.002"))
    receipt = await submit_many(ledger, 2, batch=batch)
    first, second = await take(ledger, receipt.job_ids)
    await answered(ledger, first)

    assert await look(ledger, second) is REUSED

    status = await ledger.reading.batch_status(batch.id)
    assert (status.spent_usd, status.reserved_usd) == (Decimal("0.002"), 0)


async def test_a_job_with_a_shared_answer_goes_to_the_step_of_its_checkers(ledger: PostgresLedger) -> None:
    await answered(ledger)
    second = await submit_and_take(ledger, make_request(config={"checkers": ["lexical", "local"]}))

    assert await ledger.cache.share([make_wanted(second)]) == [CacheResult(REUSED)]

    assert (await view(ledger, second.job_id)).step is Step.LOCAL


async def test_the_newest_answer_is_taken_and_never_a_copy_of_one(ledger: PostgresLedger, clock: Clock) -> None:
    await answered(ledger)
    await clock.advance(10 * SECOND)
    _, newest = await answered(ledger, await again_run(ledger))
    await clock.advance(10 * SECOND)
    for _ in range(2):
        leased = await submit_and_take(ledger)
        assert await look(ledger, leased) is REUSED
        (row,) = (await ledger.reading.job_detail(leased.job_id)).attempts
        assert str(row["shared_from"]) == str(newest.id)
        await clock.advance(10 * SECOND)


async def again_run(ledger: PostgresLedger) -> Leased:
    """A job that a person had run again."""
    job_id = await finished(ledger)
    await ledger.actions.retry([job_id], ACTOR)
    await ledger.duties.promote(10)
    return await take_one(ledger, job_id)


@pytest.mark.parametrize(
    "changed",
    [{"what": "something else"}, {"within_s": 50}, {"within_s": 0}],
    ids=["another request", "too old", "a person wants a new one"],
)
async def test_unfit_answers_are_not_shared(ledger: PostgresLedger, clock: Clock, changed: dict[str, Any]) -> None:
    await answered(ledger)
    await clock.advance(60 * SECOND)
    leased = await submit_and_take(ledger)

    assert await look(ledger, leased, **changed) is NONE

    assert (await ledger.reading.job_detail(leased.job_id)).attempts == ()
    await open_one(ledger, leased, share=make_terms(**changed))


async def test_an_answer_never_goes_to_another_tenant(ledger: PostgresLedger) -> None:
    await answered(ledger)
    leased = await submit_and_take(ledger, batch=make_batch(tenant="another"))

    assert await look(ledger, leased) is NONE
    await open_one(ledger, leased, share=make_terms())


async def test_nothing_is_taken_from_calls_that_share_nothing(ledger: PostgresLedger) -> None:
    first = await submit_and_take(ledger)
    attempt = await open_one(ledger, first)
    second = await submit_and_take(ledger)
    assert await look(ledger, second) is NONE
    await ledger.attempts.close_attempts([closed_ok(first, attempt, then=to_check(first))])

    assert await look(ledger, second) is NONE


@pytest.mark.parametrize("reason", [FinishReason.REFUSAL, FinishReason.LENGTH, FinishReason.CONTENT_FILTER])
async def test_refused_and_interrupted_answers_are_neither_shared_nor_awaited(
    ledger: PostgresLedger, reason: FinishReason
) -> None:
    await answered(ledger, finish_reason=reason)
    second, third = await take(ledger, (await submit_many(ledger, 2)).job_ids)
    assert await look(ledger, second) is NONE
    await open_one(ledger, second, share=make_terms())

    assert await look(ledger, third) is NONE
    await open_one(ledger, third, share=make_terms())


# ---- who may take ----------------------------------------------------------------------------------------------


async def test_without_the_lease_nothing_is_taken(ledger: PostgresLedger) -> None:
    await answered(ledger)
    leased = await submit_and_take(ledger)
    stale = make_wanted(leased, attempt=make_attempt(leased, share=make_terms(), token=new_id()))

    assert [reply.status for reply in await ledger.cache.share([stale])] == [LOST]
    await ledger.actions.cancel([leased.job_id], ACTOR)
    assert await look(ledger, leased) is LOST

    assert (await ledger.reading.job_detail(leased.job_id)).attempts == ()


async def test_sharing_again_after_an_unconfirmed_commit_changes_nothing(ledger: PostgresLedger) -> None:
    await answered(ledger)
    leased = await submit_and_take(ledger)
    lookup = make_wanted(leased)
    await ledger.cache.share([lookup])
    before = await ledger.reading.job_detail(leased.job_id)

    assert await ledger.cache.share([lookup]) == [CacheResult(REUSED)]

    assert await ledger.reading.job_detail(leased.job_id) == before


async def test_many_look_at_once_and_each_gets_its_own_word(ledger: PostgresLedger) -> None:
    first, _ = await answered(ledger)
    second, third, fourth = await take(ledger, (await submit_many(ledger, 3)).job_ids)
    terms = [make_terms(), make_terms("something else"), make_terms()]
    lookups = [make_wanted(job, share) for job, share in zip((second, third, fourth), terms, strict=True)]
    lookups.insert(1, make_wanted(first))

    statuses = [reply.status for reply in await ledger.cache.share(lookups)]

    assert statuses == [REUSED, LOST, NONE, REUSED]
    assert await ledger.cache.share([]) == []


# ---- what it leaves behind -------------------------------------------------------------------------------------


async def test_erased_answers_are_not_shared_and_copies_stay_their_jobs_own(
    ledger: PostgresLedger, clock: Clock
) -> None:
    first, _ = await answered(ledger)
    await finish(ledger, await take_one(ledger, first.job_id, Step.CHECK))
    second, third = await take(ledger, (await submit_many(ledger, 2)).job_ids)
    assert await look(ledger, second) is REUSED
    await ledger.erasure.erase([first.job_id], ACTOR)

    assert await look(ledger, third) is NONE
    copies = (await ledger.reading.job_detail(second.job_id)).completions
    assert [Completion.model_validate(completion["parsed"]).text for completion in copies] == ["It is ready."]
    await finish(ledger, await take_one(ledger, second.job_id, Step.CHECK))
    await sound(ledger)
    await ledger.erasure.erase([second.job_id], ACTOR)
    assert (await ledger.reading.job_detail(second.job_id)).completions == ()
    await clock.advance(HOUR)
    await ledger.erasure.delete([first.job_id])
    assert (await ledger.reading.job_detail(second.job_id)).attempts[0]["shared_from"] is not None
    await sound(ledger)
