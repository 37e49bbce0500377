"""Submits one job as a batch of its own."""

from typing import Any

from tasks.errors import IdempotencyConflict, InputError
from tasks.ports import Catalog, Submitter
from tasks.submit import Submitted, new_batch, submit
from worker.ledger.postgres import PostgresLedger
from worker.settings import Settings


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
