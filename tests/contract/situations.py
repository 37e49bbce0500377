"""Short ways to bring a ledger into a situation, through its public verbs only."""

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from schemas.job import JobRequest
from schemas.states import JobState, Step
from tasks.ports import (
    CacheStatus,
    JobView,
    Leased,
    NewAttempt,
    NewBatch,
    NewVerdicts,
    Opened,
    Receipt,
    ResultLine,
)
from tests.builders import (
    SHARED_REQUEST,
    closed_ok,
    make_answer,
    make_attempt,
    make_batch,
    make_final,
    make_jobs,
    make_request,
    make_terms,
    make_wanted,
    to_check,
)
from worker.ledger.postgres import PostgresLedger

LEASE = timedelta(seconds=60)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
ACTOR = "ada"


async def submit(ledger: PostgresLedger, *requests: JobRequest, batch: NewBatch | None = None) -> Receipt:
    """Submit the requests (one question unless given) as one chunk of a batch."""
    batch = batch or make_batch()
    jobs = make_jobs(*(requests or (make_request(),)), tenant=batch.tenant)
    return await ledger.submission.submit(batch, [jobs])


async def submit_many(ledger: PostgresLedger, number: int, batch: NewBatch | None = None, **changes: Any) -> Receipt:
    """Submit so many questions with the same changes."""
    return await submit(ledger, *(make_request(f"Question {n}?", **changes) for n in range(number)), batch=batch)


async def take(
    ledger: PostgresLedger, ids: Sequence[UUID], step: Step = Step.GENERATE, worker: str = "w1"
) -> list[Leased]:
    """Lease those of the ids that can be had."""
    return await ledger.queue.lease(step, worker, LEASE, max(1, len(ids)), ids=ids)


async def take_one(ledger: PostgresLedger, job_id: UUID, step: Step = Step.GENERATE, worker: str = "w1") -> Leased:
    """Lease a job that must be available."""
    (leased,) = await take(ledger, [job_id], step, worker)
    return leased


async def submit_and_take(
    ledger: PostgresLedger, request: JobRequest | None = None, batch: NewBatch | None = None
) -> Leased:
    """Submit one question and lease it."""
    receipt = await submit(ledger, request or make_request(), batch=batch)
    return await take_one(ledger, receipt.job_ids[0])


async def open_one(ledger: PostgresLedger, leased: Leased, **changes: Any) -> NewAttempt:
    """Open an attempt that must be allowed."""
    attempt = make_attempt(leased, **changes)
    assert await ledger.attempts.open_attempts([attempt]) == [Opened.OPENED]
    return attempt


async def generate(ledger: PostgresLedger, leased: Leased, **changes: Any) -> NewAttempt:
    """Answer a leased job and send it on to its check."""
    attempt = await open_one(ledger, leased)
    closed = closed_ok(leased, attempt, then=to_check(leased), **changes)
    assert await ledger.attempts.close_attempts([closed]) == {leased.job_id}
    return attempt


async def checking(ledger: PostgresLedger, batch: NewBatch | None = None) -> Leased:
    """A job of a new batch (or that one) whose answer is stored, leased for its check."""
    leased = await submit_and_take(ledger, batch=batch)
    await generate(ledger, leased)
    return await take_one(ledger, leased.job_id, Step.CHECK)


async def store_judge_reply(ledger: PostgresLedger, leased: Leased, *words: str, reply: str = "verdicts") -> NewAttempt:
    """Have a judge reply to a job in its check, and note one word after the other under these keys."""
    attempt = await open_one(ledger, leased)
    await ledger.attempts.close_attempts([closed_ok(leased, attempt, reply)])
    numbers = tuple((key(word), number) for number, word in enumerate(words, start=1))
    await ledger.cache.store_verdicts([NewVerdicts(attempt.id, numbers)])
    return attempt


def key(word: str) -> bytes:
    """A key of what a judge says, as long as real ones."""
    return hashlib.sha256(word.encode()).digest()


async def finish(ledger: PostgresLedger, leased: Leased, **changes: Any) -> None:
    """Finish a leased job."""
    assert await ledger.queue.finish([make_final(leased, **changes)]) == {leased.job_id}


async def finished(ledger: PostgresLedger, request: JobRequest | None = None, batch: NewBatch | None = None) -> UUID:
    """Take one question the whole way; returns its id."""
    leased = await submit_and_take(ledger, request, batch)
    await generate(ledger, leased)
    await finish(ledger, await take_one(ledger, leased.job_id, Step.CHECK))
    return leased.job_id


async def lines_of(ledger: PostgresLedger, batch_id: UUID) -> list[ResultLine]:
    """The lines of all pages of a batch's results."""
    return [line async for page in ledger.reading.batch_results(batch_id) for line in page]


async def view(ledger: PostgresLedger, job_id: UUID) -> JobView:
    """The view of a job that must exist."""
    (job_view,) = await ledger.reading.views([job_id])
    return job_view


async def state(ledger: PostgresLedger, job_id: UUID) -> JobState:
    """The state a job is in."""
    return (await view(ledger, job_id)).state


async def states(ledger: PostgresLedger, job_ids: Sequence[UUID]) -> list[JobState]:
    """The states of jobs that must exist, in order."""
    job_views = await ledger.reading.views(job_ids)
    assert [job_view.job_id for job_view in job_views] == list(job_ids)
    return [job_view.state for job_view in job_views]


async def answered(ledger: PostgresLedger, leased: Leased | None = None, **answer: Any) -> tuple[Leased, NewAttempt]:
    """A job whose call was answered under the usual terms for sharing; a later run takes and waits for nothing."""
    leased = leased or await submit_and_take(ledger)
    own = {"within_s": 0, "wait_s": 0} if leased.run > 1 else {}
    attempt = await open_one(ledger, leased, share=make_terms(**own), request_hash=SHARED_REQUEST)
    paid_answer = make_answer("It is ready.", **answer)
    await ledger.attempts.close_attempts([closed_ok(leased, attempt, answer=paid_answer, then=to_check(leased))])
    return leased, attempt


async def look(ledger: PostgresLedger, leased: Leased, **terms: Any) -> CacheStatus:
    """Look for the answer of an identical call."""
    (reply,) = await ledger.cache.share([make_wanted(leased, make_terms(**terms))])
    return reply.status


async def sound(ledger: PostgresLedger) -> None:
    """The check that every invariant of the ledger holds."""
    if isinstance(ledger, PostgresLedger):
        assert await ledger.inspection.violations() == []
