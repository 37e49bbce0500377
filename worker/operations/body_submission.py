"""Submits one job, or the lines of a request's body, and tells of it no more than an answer takes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tasks.errors import IdempotencyConflict, InputError
from tasks.ports import Catalog, Refused, Submitter
from tasks.submit import Submitted, new_batch, submit
from worker.ledger.postgres import PostgresLedger
from worker.operations.file_intake import InputBounds, InputOrder
from worker.operations.file_submission import Accepted, Submission
from worker.settings import Settings

MOST_REFUSED = 10_000
"""Lines that may be refused of a body: with more, it is hardly what its sender meant, and nothing is accepted."""

MOST_NAMED = 1_000
"""Refused lines that an answer names one by one."""

MOST_WARNINGS = 100


class LinesOutcome(NamedTuple):
    """The outcome of a body of lines."""

    accepted: Accepted
    """With the first of its refused lines, and without the repeated ones."""
    refused: int
    repeated: int
    warnings: Sequence[str]


async def submit_lines(ledger: PostgresLedger, settings: Settings, order: InputOrder) -> LinesOutcome:
    """Writes the jobs of a body in one transaction; raises ``InputError``, with the first refused lines, where none is accepted."""
    refused: list[Refused] = []
    warnings: list[str] = []
    try:
        order = replace(order, bounds=InputBounds(settings.http_max_lines, MOST_REFUSED))
        submission = Submission(order, settings, on_refused=refused.append, warn=warnings.append)
        accepted = await _write(submission, ledger)
    except InputError as error:
        error.refused = tuple(refused[:MOST_NAMED])
        raise
    first = replace(accepted, refused=accepted.refused[:MOST_NAMED], repeated=())
    return LinesOutcome(first, len(accepted.refused), len(accepted.repeated), warnings[:MOST_WARNINGS])


async def _write(submission: Submission, ledger: PostgresLedger) -> Accepted:
    accepted = None if submission.empty else await submission.write(ledger)
    if accepted is None or not accepted.jobs:
        raise InputError(f"none of {submission.intake.lines:,} lines can be accepted; nothing was submitted")
    return accepted


async def submit_job(
    ledger: PostgresLedger,
    settings: Settings,
    catalog: Catalog,
    raw: Any,
    *,
    tenant: str,
    key: str | None = None,
    submitter: Submitter | None = None,
) -> Submitted:
    """Validates a raw job and writes it.

    Args:
        ledger: open.
        settings: tell how many jobs may be queued.
        catalog: of the installation.
        raw: the job as it came.
        tenant: whose job it is.
        key: an idempotency key for a job that brings none.
        submitter: the key of the HTTP service that the job came with.

    Raises: InputError naming the field; IdempotencyConflict where another job has one of its ids.
    """
    if isinstance(raw, dict) and "job_id" in raw:
        # Whether another tenant has a job with this id is nothing to tell.
        raise InputError("is given by the service; send an Idempotency-Key to find the job again", field="job_id")
    if key is not None and isinstance(raw, dict):
        own_key = raw.get("idempotency_key")
        if own_key is not None and own_key != key:
            raise InputError("differs from the header Idempotency-Key; send one of them", field="idempotency_key")
        raw = {**raw, "idempotency_key": key}
    batch = new_batch(None, tenant=tenant, max_queued=settings.most_queued(tenant), submitter=submitter)
    submitted = await submit(ledger.submission, [raw], batch=batch, catalog=catalog)
    for refused in submitted.refused:
        kind = IdempotencyConflict if refused in submitted.conflicts else InputError
        raise kind(refused.message, field=refused.field)
    return submitted
