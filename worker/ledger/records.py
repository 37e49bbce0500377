"""Writes final states with their audit records."""

from collections.abc import Sequence
from typing import Any, get_type_hints
from uuid import UUID

from pydantic import TypeAdapter

from schemas.record import GenerationRecord
from tasks.ports import FinalJob
from worker.ledger.database import Database

RECORD_COLUMNS = {
    "job_id": "uuid",
    "run": "int2",
    "tenant": "text",
    "message_id": "text",
    "retrieval_record_id": "text",
    "trace_id": "text",
    "request_id": "text",
    "contract_version": "int2",
    "prompt_name": "text",
    "prompt_version": "text",
    "prompt_hash": "text",
    "model_provider": "text",
    "model_name": "text",
    "messages_snapshot": "jsonb",
    "provider_snapshot": "jsonb",
    "output_raw": "text",
    "output_structured": "jsonb",
    "answer": "text",
    "output_format": "text",
    "citations": "jsonb",
    "grounding": "jsonb",
    "quality": "jsonb",
    "status": "text",
    "error_message": "text",
    "failure": "jsonb",
    "usage": "jsonb",
    "timing_ms": "jsonb",
    "created_at": "timestamptz",
    "canonical": "jsonb",
}
"""Columns of the table of audit records with the types of their arrays in SQL; a test compares them with the table."""

_ARRAY_TYPES = {name: kind for name, kind in RECORD_COLUMNS.items() if name != "created_at"}
_ENCODERS: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter[Any](get_type_hints(GenerationRecord)[name])
    for name, kind in _ARRAY_TYPES.items()
    if kind == "jsonb"
}

_RECORD_ARRAYS = ", ".join(f"%({name})b::{kind}[]" for name, kind in _ARRAY_TYPES.items())
_RECORD_NAMES = ", ".join(_ARRAY_TYPES)

_FINISH = f"""
WITH given AS (
    SELECT * FROM unnest(%(token)b::uuid[], %(step)b::text[], %(state)b::text[], %(outcome)b::text[], {_RECORD_ARRAYS})
    AS d(token, step, state, final_outcome, {_RECORD_NAMES})
), held AS (
    SELECT j.id, d.state, d.final_outcome
    FROM given d JOIN job j ON j.id = d.job_id AND j.state = 'running' AND j.lease_token = d.token
                           AND j.step = d.step AND j.run = d.run
    ORDER BY j.id FOR NO KEY UPDATE OF j
), finished AS (
    UPDATE job j SET state = h.state, outcome = h.final_outcome, finished_at = nightdesk_now(), hinted_at = NULL,
                     lease_token = NULL, lease_until = NULL
    FROM held h WHERE j.id = h.id
    RETURNING j.id
), recorded AS (
    INSERT INTO generation_record ({_RECORD_NAMES}, created_at)
    SELECT {", ".join(f"d.{name}" for name in _ARRAY_TYPES)}, nightdesk_now()
    -- Not a join: 50 by 50 wide rows would be compared one with the other.
    FROM given d WHERE d.job_id = ANY (ARRAY(SELECT id FROM finished))
)
SELECT id FROM finished
"""


async def write_finals(db: Database, finals: Sequence[FinalJob]) -> set[UUID]:
    """Write final states with their records; returns the job ids written."""
    columns: dict[str, list[Any]] = {
        "token": [final.token for final in finals],
        "step": [final.step.value for final in finals],
        "state": [final.state.value for final in finals],
        "outcome": [final.outcome.value if final.outcome else None for final in finals],
    }
    for name in _ARRAY_TYPES:
        values = [getattr(final.record, name) for final in finals]
        encoder = _ENCODERS.get(name)
        if encoder is not None:
            values = [None if value is None else encoder.dump_json(value).decode() for value in values]
        columns[name] = values
    return {row.id for row in await db.rows(_FINISH, columns)}
