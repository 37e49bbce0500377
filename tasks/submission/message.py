"""Reads what a message to the Redis door carries; whatever it is, the answer is JSON and never an exception. Pure."""

import json
from typing import Any

import orjson

from tasks.errors import InputError, Unstorable

MAX_MESSAGE_BYTES = 1_000_000
"""Most that one ``nightdesk.submit`` message may hold; more goes through the command line or HTTP."""

MAX_MESSAGE_JOBS = 10_000
"""Most jobs that one may hold: each bad one is answered by name."""


def read_message(jobs: Any, batch: Any, key: str) -> tuple[list[Any], dict[str, Any]]:
    """The jobs of a message, and what it says of their batch.

    Args:
        jobs: one job or a list of them.
        batch: an object or None.
        key: the batch's, unless it brings its own; so that a redelivery finds what it already wrote.

    Raises: InputError for the message as a whole.
    """
    raw_jobs = jobs if isinstance(jobs, list) else [jobs]
    if len(raw_jobs) > MAX_MESSAGE_JOBS:
        raise InputError(
            f"the message holds {len(raw_jobs):,} jobs, at most {MAX_MESSAGE_JOBS:,} are taken; send several messages",
            field="jobs",
        )
    if not raw_jobs:
        raise InputError("there is none; send one job or a list of jobs", field="jobs")
    if batch is not None and not isinstance(batch, dict):
        raise InputError("must be an object (key, name, not_before, deadline, max_cost_usd, defaults)", field="batch")
    size = sum(map(_size, raw_jobs)) + len(raw_jobs) + _size(batch)
    if size > MAX_MESSAGE_BYTES:
        raise InputError(
            f"the message holds {size:,} bytes of JSON, at most {MAX_MESSAGE_BYTES:,} are taken; "
            "send several messages, or use 'nightdesk submit'",
            field="jobs",
        )
    said = batch or {}
    return raw_jobs, said if said.get("key") is not None else {**said, "key": key}


def _size(value: Any) -> int:
    """Bytes as JSON; what can't be written counts nothing here, and is refused as the job that it is."""
    try:
        return len(orjson.dumps(value))
    except orjson.JSONEncodeError:
        # Huge integers and half surrogate pairs: the standard library writes them.
        try:
            return len(json.dumps(value))
        except (ValueError, RecursionError):
            return 0


def refusal(error: InputError | Unstorable, jobs: Any) -> dict[str, Any]:
    """The answer to a message that was refused as a whole: nothing of it is in the ledger."""
    count = len(jobs) if isinstance(jobs, list) else 1
    return {
        "batch_id": None,
        "created": False,
        "job_ids": [None] * count,
        "errors": [{"position": None, "field": getattr(error, "field", None) or "jobs", "message": str(error)}],
        "warnings": [],
    }
