"""Submits one job, or the lines of a request's body, and tells of it no more than an answer takes."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from tasks.errors import IdempotencyConflict, InputError
from tasks.ports import Catalog, HintKey, Refused, Submitter
from tasks.submit import Submitted, new_batch, submit
from worker.ledger.postgres import PostgresLedger
from worker.operations.file_intake import InputBounds, InputOrder
from worker.operations.file_submission import Submission
from worker.settings import Settings

MOST_REFUSED = 10_000
"""Lines that may be refused of a body: with more, it is hardly what its sender meant, and nothing is accepted."""

MOST_NAMED = 1_000
"""Refused lines that an answer names one by one."""

MOST_WARNINGS = 100


@dataclass(slots=True)
class LinesOutcome:
    """The outcome of a body of lines; ``error`` where nothing was accepted."""

    lines: int = 0
    batch_id: UUID | None = None
    created: bool = False
    jobs: int = 0
    refused: int = 0
    refused_lines: tuple[Refused, ...] = ()
    """The first ones."""
    repeated: int = 0
    holders: Mapping[UUID, int] = field(default_factory=dict)
    submitted_at: datetime | None = None
    warnings: tuple[str, ...] = ()
    hints: Collection[HintKey] = ()
    error: InputError | None = None


async def submit_lines(ledger: PostgresLedger, settings: Settings, order: InputOrder) -> LinesOutcome:
    """Writes the jobs of a body in one transaction."""
    refused: list[Refused] = []
    warnings: list[str] = []
    try:
        order = replace(order, bounds=InputBounds(settings.http_max_lines, MOST_REFUSED))
        submission = Submission(order, settings, on_refused=refused.append, warn=warnings.append)
        accepted = None if submission.empty else await submission.write(ledger)
    except InputError as error:
        return LinesOutcome(error=error, refused_lines=tuple(refused[:MOST_NAMED]))
    outcome = LinesOutcome(submission.intake.lines, refused_lines=tuple(refused[:MOST_NAMED]))
    if accepted is not None and accepted.jobs:
        outcome.batch_id, outcome.created, outcome.jobs = accepted.batch_id, accepted.created, accepted.jobs
        outcome.refused, outcome.refused_lines = len(accepted.refused), accepted.refused[:MOST_NAMED]
        outcome.repeated, outcome.holders = len(accepted.repeated), dict(accepted.holders)
        outcome.submitted_at, outcome.warnings = accepted.submitted_at, tuple(warnings[:MOST_WARNINGS])
        outcome.hints = accepted.hints
    return outcome


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
