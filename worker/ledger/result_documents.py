"""Reads the results of jobs: PostgreSQL puts the columns of a result together, and only others are made of whole views."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from schemas.claim_error import ErrorKind
from schemas.record import JobResult
from tasks.ports import JobView, StoredResult
from worker.ledger.database import Database
from worker.ledger.packing import visible_parts
from worker.ledger.pages import read_apart
from worker.ledger.stored_rows import read_row

COLUMNS = {
    "job_id": "j.id",
    "custom_id": "j.custom_id",
    "position": "j.position",
    "batch_id": "j.batch_id",
    "message_id": "coalesce(q.message_id, j.id::text)",
    "trace_id": "q.trace_id",
    "state": "j.state",
    "outcome": "j.outcome",
    "held_reason": "j.held_reason",
    "query": "q.query",
    "response": "g.answer",
    "output_format": "g.output_format",
    "citations": "coalesce(g.citations, '[]')",
    "sources_provided": """CASE jsonb_typeof(q.context) WHEN 'number' THEN q.context::int
                                WHEN 'array' THEN jsonb_array_length(q.context) ELSE 0 END""",
    "grounding_score": "n.grounding_score",
    "confidence": "n.confidence",
    "decided": "coalesce(n.decided, '{}')",
    "answer_quality": "a.answer_quality",
    "sufficient_context": "a.sufficient_context",
    "reasoning": "coalesce(a.reasoning, '')",
    "abstain_reason": "a.abstain_reason",
    "warnings": "coalesce(a.warnings, '[]')",
    "claims": "coalesce(n.claims, '[]')",
    "values": "coalesce(n.\"values\", '[]')",
    "structured": "g.output_structured",
    "usage": "coalesce(g.usage, c.parsed -> 'usage')",
    # The price of a call is unknown, and with it the cost of its job. As text no digit is lost.
    "cost_usd": """CASE WHEN (SELECT true FROM attempt WHERE job_id = j.id AND cost_usd IS NULL AND closed_at IS NOT NULL LIMIT 1)
                             IS NULL THEN j.cost_usd::text END""",
    "asks": "coalesce(g.asks, '[]')",
    "prompt_version": "g.prompt_version",
    "replay_of": "j.replay_of",
    "timing_ms": "g.timing_ms",
    "provider_snapshot": "coalesce(g.provider_snapshot, c.parsed -> 'snapshot')",
    "failure": "g.failure",
    "metadata": "q.metadata",
}
"""The fields of a result that have a column, with the parts of a record taken apart, and with what it has from its answer.

What comes from the request (``q.``) is named in ``_RESULTS``, too.
"""

# Row by row by the keys: a join may read whole tables, by statistics of a time when they were small. What is stored out of line is
# read out once a job: by any other way each of its parts fetches the whole of it again, a request with all its sources.
_RESULTS = f"""
SELECT j.id, j.errors, g.frame, CASE WHEN g.job_id IS NOT NULL AND j.erased_at IS NULL THEN (
    SELECT row_to_json(f)::text FROM (SELECT {", ".join(f'{column} AS "{name}"' for name, column in COLUMNS.items())}) f
) END AS result
FROM unnest(%(ids)b::uuid[]) WITH ORDINALITY AS d(id, ord) CROSS JOIN LATERAL (SELECT * FROM job WHERE id = d.id LIMIT 1) j
CROSS JOIN LATERAL (SELECT head FROM job_request WHERE job_id = j.id LIMIT 1) r
CROSS JOIN LATERAL jsonb_to_record(r.head)
    AS q(query text, message_id text, trace_id text, metadata jsonb, context jsonb)
LEFT JOIN LATERAL (
    SELECT * FROM generation_record WHERE job_id = j.id AND run = j.run AND j.finished_at IS NOT NULL LIMIT 1
) g ON true
LEFT JOIN LATERAL (SELECT parsed FROM completion WHERE attempt_id = g.attempt_id LIMIT 1) c ON true
LEFT JOIN LATERAL jsonb_to_record(g.grounding)
    AS n(grounding_score jsonb, confidence jsonb, decided jsonb, claims jsonb, "values" jsonb) ON true
LEFT JOIN LATERAL jsonb_to_record(g.quality)
    AS a(answer_quality jsonb, sufficient_context jsonb, reasoning text, abstain_reason text, warnings jsonb) ON true
ORDER BY d.ord
"""

_PART = 100
"""Results whose rows are read by one statement, between two turns of the event loop."""

_KINDS = frozenset(ErrorKind)
"""A later version may tell further kinds apart."""


Form = TypeVar("Form")


async def read_results(
    db: Database,
    job_ids: Sequence[UUID],
    views: Callable[[Sequence[UUID]], Awaitable[list[JobView]]],
    form: Callable[[StoredResult], Form],
) -> AsyncIterator[Form]:
    """Read the results of the jobs that exist among some, in that order.

    Args:
        db: where they are.
        job_ids: of the jobs.
        views: reads what the statement does not put together.
        form: makes of each result what is kept. A row is a hundredth of its result, so only one is made at a time.
    """

    async def viewed(ids: Sequence[UUID]) -> dict[UUID, Form]:
        # Most commands read no view, and the steps of an answer come along.
        from tasks.results import result_of  # noqa: PLC0415

        return {view.job_id: form(rendered(view, result_of)) for view in await views(ids)}

    for at in range(0, len(job_ids), _PART):
        part = job_ids[at : at + _PART]
        rows, refused = await read_apart(db, _RESULTS, part)
        stored = {row.id: row for row in rows if row.result is not None}
        rest_ids = [*refused, *(row.id for row in rows if row.result is None)]
        rendered_forms = await viewed(rest_ids) if rest_ids else {}
        for job_id in part:
            if (row := stored.get(job_id)) is not None:
                if (done := _formed(row, form)) is not None:
                    yield done
                    continue
                rendered_forms |= await viewed([job_id])
            if job_id in rendered_forms:
                yield rendered_forms[job_id]


def _formed(row: Any, form: Callable[[StoredResult], Form]) -> Form | None:
    """The form of the result of a row, which itself is gone while a slow reader takes it; None where it takes a view."""
    result = read_row(_result_of_row, row, row.id)
    return form(result) if isinstance(result, StoredResult) else None


def rendered(view: JobView, render: Callable[[JobView], JobResult]) -> StoredResult:
    """The result that is made of a view."""
    grounding = view.record.grounding if view.record is not None else None
    return StoredResult(render(view), grounding.errors if grounding is not None else {})


def _result_of_row(row: Any) -> StoredResult | None:
    """The result of a row; None where it takes a whole view: of a job that is not final, was erased or has no answer."""
    if row.result is None:
        return None
    # The parts that are packed stand behind their empty ones: of two fields the last one counts.
    packed = "" if row.frame is None else "," + visible_parts(row.frame)[1:-1].decode()
    result = JobResult.model_validate_json(f"{row.result[:-1]}{packed}}}")
    if not result.response.strip():
        return None
    return StoredResult(result.with_derived(), error_counts(row.errors))


def error_counts(stored: Mapping[str, int] | None) -> dict[ErrorKind, int]:
    """Claims by the kind of their error, as their job has them."""
    return {ErrorKind(kind): count for kind, count in stored.items() if kind in _KINDS} if stored else {}
