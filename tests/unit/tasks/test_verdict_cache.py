"""A claim with the same evidence is asked about once in a batch, by whichever process comes first."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from schemas.failure import FailureKind
from schemas.grounding import Claim, Verdict
from schemas.job import JobRequest
from schemas.model_call import FinishReason
from schemas.states import Outcome, Step
from tasks.check import Check
from tasks.errors import ProviderError
from tasks.grounding.judge.call import Judge
from tasks.grounding.judge.request import key_of
from tasks.ports import Answered, Call, JobView, NewBatch
from tests.builders import make_batch, make_jobs, make_prompt, new_id
from tests.fakes.inline import Inline
from tests.fakes.quiet import paid_calls
from tests.judge_harness import (
    LEASE,
    PARAPHRASE,
    QUOTE,
    SOURCE,
    WRONG,
    JudgeHarness,
    claims_of,
    grounding_of,
    judge_harness,
    supplied_answer,
    verdict,
    verdicts_reply,
)
from tests.scripted_provider import Act, Registry, answers, hangs, raises
from worker.process.journal import LedgerJournal

YES = verdict(1, "supported", QUOTE)
NO = verdict(1, "unsupported")
LATE = "Trucks with papers drive up to the villages very early."
"""Another paraphrase of the same words of the source."""
NEVER = raises(AssertionError("asked again"))


async def judged(harness: JudgeHarness, *requests: JobRequest, batch: NewBatch | None = None) -> list[JobView]:
    """Check a batch job by job, each with a journal and a judging of its own, as if by another process."""
    batch = batch or make_batch()
    await harness.ledger.submission.submit(batch, [make_jobs(*requests, tenant=batch.tenant)])
    return await checked(harness, batch.id)


async def checked(harness: JudgeHarness, batch_id: UUID) -> list[JobView]:
    """Check what is open of a batch; returns all of its jobs."""
    await harness.ledger.duties.promote(10)
    while jobs := await harness.ledger.queue.lease(Step.CHECK, "w", LEASE, 1):
        await harness.check(jobs[0])
    return [view async for view in harness.ledger.reading.batch_views(batch_id)]


def asked_about(harness: JudgeHarness) -> list[int]:
    """The number of statements in each call."""
    return [len(call.prompt.pairs) for call in harness.judge.calls]


def words(view: JobView, claim: Claim) -> str:
    first = claim.evidence[0]
    return view.request.context[first.source_index].content[first.start : first.end]


# ---- what is shared --------------------------------------------------------------------------------------------


async def test_equal_claims_with_equal_evidence_are_one_call_and_the_record_says_whose() -> None:
    harness = judge_harness(verdicts_reply(YES), NEVER)
    views = await judged(harness, *[supplied_answer(PARAPHRASE)] * 3)
    first, *repeats = views

    (claim,) = claims_of(first)
    assert claim.reused_from is None
    ((attempt),) = (await harness.ledger.reading.job_detail(first.job_id)).attempts
    for view in repeats:
        (same,) = claims_of(view)
        assert same.reused_from is not None
        assert (same.reused_from.job_id, str(same.reused_from.attempt_id)) == (first.job_id, str(attempt["id"]))
        assert same.reused_from.number == 1
        assert same.model_copy(update={"reused_from": None}) == claim
        assert words(view, same) == QUOTE
        assert (view.outcome, view.cost_usd) == (Outcome.ANSWERED, Decimal(0))
        assert (await harness.ledger.reading.job_detail(view.job_id)).attempts == ()
        assert grounding_of(view).checkers == grounding_of(first).checkers
        assert grounding_of(view).failed_checkers == {}
    assert harness.judge.calls[1:] == []


async def test_a_partial_overlap_requests_only_the_missing_claims() -> None:
    # The second answer begins with what is new: its number in the question is another than in the first one.
    harness = judge_harness(
        verdicts_reply(YES, verdict(2, "contradicted", "The editor in chief is Ann Lee")),
        verdicts_reply(YES),
        NEVER,
    )
    first, second, third = await judged(
        harness,
        supplied_answer(PARAPHRASE, WRONG),
        supplied_answer(LATE, PARAPHRASE, WRONG),
        supplied_answer(WRONG, LATE),
    )

    assert asked_about(harness) == [2, 1]
    assert [claim.verdict for claim in claims_of(second)] == [
        Verdict.SUPPORTED,
        Verdict.SUPPORTED,
        Verdict.CONTRADICTED,
    ]
    origins = [
        (claim.reused_from.job_id, claim.reused_from.number) if claim.reused_from else None
        for claim in claims_of(second)
    ]
    assert origins == [None, (first.job_id, 1), (first.job_id, 2)]
    origins = [
        (claim.reused_from.job_id, claim.reused_from.number) if claim.reused_from else None
        for claim in claims_of(third)
    ]
    assert origins == [(first.job_id, 2), (second.job_id, 1)]
    assert [words(view, claims_of(view)[-1]) for view in (second, third)] == [
        "The editor in chief is Ann Lee",
        QUOTE,
    ]
    assert [view.cost_usd for view in (first, second, third)] == [Decimal("0.002"), Decimal("0.002"), Decimal(0)]


# ---- what is not -----------------------------------------------------------------------------------------------


def other(**changes: Any) -> JobRequest:
    request = supplied_answer(PARAPHRASE)
    return JobRequest(**{**request.model_dump(), **changes})


@pytest.mark.parametrize(
    "second",
    [
        other(context=({"content": SOURCE.replace("at four", "at five")},)),
        other(context=({"content": SOURCE, "title": "Fairy tales"},)),
        other(response=PARAPHRASE.replace("villages", "hamlets")),
        supplied_answer(PARAPHRASE, judge="scripted:scripted-2"),
    ],
    ids=["other evidence", "other title", "other claim", "other judge"],
)
async def test_whatever_a_judge_would_read_otherwise_is_asked(second: JobRequest) -> None:
    harness = judge_harness(verdicts_reply(YES))
    _, view = await judged(harness, supplied_answer(PARAPHRASE), second)

    assert asked_about(harness) == [1, 1]
    assert [claim.reused_from for claim in claims_of(view)] == [None]


async def test_batches_and_tenants_do_not_share_verdicts() -> None:
    harness = judge_harness(verdicts_reply(YES))
    for batch in (make_batch(), make_batch(), make_batch("other tenant")):
        await judged(harness, supplied_answer(PARAPHRASE), batch=batch)

    assert asked_about(harness) == [1, 1, 1]


@pytest.mark.parametrize(
    "act",
    [
        verdicts_reply(),
        verdicts_reply(verdict(1, "supported", "these words stand nowhere")),
        verdicts_reply(YES, NO),
        answers("no", finish_reason=FinishReason.REFUSAL, refusal="not me"),
        raises(ProviderError(FailureKind.AUTHENTICATION, "bad key")),
    ],
    ids=["nothing", "lie", "twice", "refused", "failed"],
)
async def test_verdicts_that_do_not_count_are_not_cached(act: Act) -> None:
    harness = judge_harness(act, verdicts_reply(YES), NEVER)
    views = await judged(harness, *[supplied_answer(PARAPHRASE)] * 3)

    assert [claims_of(view)[0].verdict for view in views] == [
        Verdict.UNCHECKED,
        Verdict.SUPPORTED,
        Verdict.SUPPORTED,
    ]
    assert len(harness.judge.calls) == 2


# ---- at the same time ------------------------------------------------------------------------------------------


async def at_once(harness: JudgeHarness, *requests: JobRequest) -> list[JobView]:
    """Check a batch in one process, all jobs at the same time."""
    batch = make_batch()
    await harness.ledger.submission.submit(batch, [make_jobs(*requests)])
    async with one_process(harness) as step:
        jobs = await harness.ledger.queue.lease(Step.CHECK, "w", LEASE, len(requests))
        await asyncio.gather(*map(step.run, jobs))
    return [view async for view in harness.ledger.reading.batch_views(batch.id)]


@asynccontextmanager
async def one_process(harness: JudgeHarness) -> AsyncIterator[Check]:
    journal = LedgerJournal(harness.ledger)
    judge = Judge(harness.ledger.queue, paid_calls(journal), Registry(harness.judge))
    yield Check(harness.ledger.queue, journal, Inline(), judge)
    await journal.close()


def slowly(act: Act) -> Act:
    """Let all others run before the answer comes."""

    async def slow(call: Call) -> Answered:
        for _ in range(200):
            await asyncio.sleep(0)
        return await act(call)

    return slow


async def test_a_simultaneous_request_in_one_process_waits_for_the_first() -> None:
    harness = judge_harness(slowly(verdicts_reply(YES)), NEVER)
    views = await at_once(harness, *[supplied_answer(PARAPHRASE)] * 20)

    assert {claims_of(view)[0].verdict for view in views} == {Verdict.SUPPORTED}
    assert asked_about(harness) == [1]
    assert sum(claims_of(view)[0].reused_from is None for view in views) == 1


async def test_no_job_waits_twice_for_a_verdict_that_does_not_come() -> None:
    harness = judge_harness(slowly(verdicts_reply()), verdicts_reply(YES))
    views = await at_once(harness, *[supplied_answer(PARAPHRASE)] * 5)

    assert sorted(claims_of(view)[0].verdict.value for view in views) == ["supported"] * 4 + ["unchecked"]


async def test_one_that_is_cut_off_lets_the_others_ask() -> None:
    harness = judge_harness(hangs, verdicts_reply(YES))
    await harness.ledger.submission.submit(make_batch(), [make_jobs(*[supplied_answer(PARAPHRASE)] * 2)])
    async with one_process(harness) as step:
        first, second = await harness.ledger.queue.lease(Step.CHECK, "w", LEASE, 2)
        interrupted_run = asyncio.create_task(step.run(first))
        await harness.judge.called.wait()
        waiting = asyncio.create_task(step.run(second))
        for _ in range(100):
            await asyncio.sleep(0)
        assert asked_about(harness) == [1]
        interrupted_run.cancel()
        await waiting
        await asyncio.wait([interrupted_run])

    (view,) = await harness.ledger.reading.views([second.job_id])
    assert (view.outcome, claims_of(view)[0].reused_from, len(harness.judge.calls)) == (Outcome.ANSWERED, None, 2)


# ---- after a crash ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["store_verdicts", "finish"])
async def test_after_a_crash_the_answer_to_a_narrowed_question_is_read_as_it_was_put(verb: str) -> None:
    harness = judge_harness(verdicts_reply(YES), verdicts_reply(NO), NEVER)
    batch = make_batch()
    answers_ = supplied_answer(PARAPHRASE), supplied_answer(PARAPHRASE, WRONG), supplied_answer(WRONG)
    await harness.ledger.submission.submit(batch, [make_jobs(*answers_)])
    await harness.check(await harness.lease())
    await harness.killed_before(verb)
    first, second, third = await checked(harness, batch.id)

    assert asked_about(harness) == [1, 1]
    assert [claim.verdict for claim in claims_of(second)] == [Verdict.SUPPORTED, Verdict.UNSUPPORTED]
    source_jobs = [claim.reused_from.job_id if claim.reused_from else None for claim in claims_of(second)]
    assert source_jobs == [first.job_id, None]
    assert [claim.reused_from.job_id for claim in claims_of(third) if claim.reused_from] == [second.job_id]


# ---- keys ------------------------------------------------------------------------------------------------------


def test_every_part_of_a_key_counts() -> None:
    prompt = make_prompt()
    recheck = new_id()
    keys = [
        key_of("a", "openai:m", prompt, None),
        key_of("b", "openai:m", prompt, None),
        key_of("a", "openai:n", prompt, None),
        key_of("a", "openai:m", prompt, recheck),
        *(
            key_of("a", "openai:m", prompt.model_copy(update={name: "other"}), None)
            for name in ("name", "version", "template_sha256")
        ),
    ]

    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {32}
    assert key_of("a", "openai:m", prompt, recheck) == keys[3]
