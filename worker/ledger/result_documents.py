"""Reads the results of jobs: PostgreSQL puts the columns of a result together, and only others are made of whole views."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

from schemas.claim_error import ErrorKind
from schemas.record import JobResult
from tasks.ports import JobView, StoredResult
from worker.ledger.database import Database
from worker.ledger.pages import walk

# A result as JSON, of a final job with a record whose content was not erased. What is stored out of line is read out once a job:
# by any other way each of its parts fetches the whole of it again, a request with all its sources.
COLUMNS = """
    j.id, j.position, j.errors,
    CASE WHEN g.job_id IS NOT NULL AND j.erased_at IS NULL THEN (
        SELECT row_to_json(f)::text FROM (SELECT
            j.id AS job_id, j.custom_id, j.position, j.batch_id, coalesce(q.message_id, j.id::text) AS message_id, q.trace_id,
            j.state, j.outcome, j.held_reason, q.query, g.answer AS response, g.output_format, g.citations,
            CASE WHEN jsonb_typeof(q.context) = 'array' THEN jsonb_array_length(q.context) ELSE 0 END AS sources_provided,
            n.grounding_score, n.confidence, a.answer_quality, a.sufficient_context, coalesce(a.reasoning, '') AS reasoning,
            a.abstain_reason, coalesce(a.warnings, '[]') AS warnings, coalesce(n.claims, '[]') AS claims,
            coalesce(n."values", '[]') AS "values", g.output_structured AS structured, g.usage,
            -- The price of a call is unknown, and with it the cost of its job. As text no digit is lost.
            CASE WHEN NOT EXISTS (SELECT FROM attempt u WHERE u.job_id = j.id AND u.cost_usd IS NULL
                                                           AND u.closed_at IS NOT NULL) THEN j.cost_usd::text END AS cost_usd,
            g.prompt_version, g.timing_ms, g.provider_snapshot, g.failure, q.metadata,
            j.replay_of, coalesce(g.asks, '[]') AS asks
        ) f
    ) END AS result
"""

# Row by row by the keys: a join may read whole tables, by statistics of a time when they were small.
_JOINS = """
CROSS JOIN LATERAL (SELECT request FROM job_request WHERE job_id = j.id LIMIT 1) r
CROSS JOIN LATERAL jsonb_to_record(r.request)
    AS q(query text, message_id text, trace_id text, metadata jsonb, context jsonb)
LEFT JOIN LATERAL (
    SELECT * FROM generation_record WHERE job_id = j.id AND run = j.run AND j.finished_at IS NOT NULL LIMIT 1
) g ON true
LEFT JOIN LATERAL jsonb_to_record(g.grounding)
    AS n(grounding_score jsonb, confidence jsonb, claims jsonb, "values" jsonb) ON true
LEFT JOIN LATERAL jsonb_to_record(g.quality)
    AS a(answer_quality jsonb, sufficient_context jsonb, reasoning text, abstain_reason text, warnings jsonb) ON true
"""

_RESULTS = f"""
SELECT {COLUMNS}
FROM unnest(%(ids)b::uuid[]) WITH ORDINALITY AS d(id, ord) CROSS JOIN LATERAL (SELECT * FROM job WHERE id = d.id LIMIT 1) j
{_JOINS} ORDER BY d.ord
"""

_BATCH_RESULTS = f"""
SELECT {COLUMNS}
FROM (SELECT * FROM job WHERE batch_id = %(batch_id)s AND (batch_id, position) > (%(batch_id)s, %(after_position)s)
      ORDER BY batch_id, position LIMIT %(page)s) j
{_JOINS} ORDER BY j.position
"""

DERIVED = {"sources_used", "tokens_used", "shared_from", "latency_ms"}
"""Fields of a result that are made of its others; each other field has a column, as a test makes sure."""

_TURN = 50
"""Results made between two turns of the event loop, which meanwhile receives the next page."""


class ResultReader:
    """Results by id, and those of a batch."""

    def __init__(self, database: Database, views: Callable[[Sequence[UUID]], Awaitable[list[JobView]]]) -> None:
        """Make a reader.

        Args:
            database: where to read.
            views: reads what a result is made of, for those that the statement does not put together.
        """
        self._db = database
        self._views = views

    async def of_jobs(self, job_ids: Sequence[UUID]) -> list[StoredResult]:
        """The results of the jobs that exist among some, in that order."""
        return await self._complete(await self._db.rows(_RESULTS, {"ids": list(job_ids)}))

    async def of_batch(self, batch_id: UUID) -> AsyncIterator[StoredResult]:
        """The results of all jobs of a batch by position; reads a page ahead."""
        pages = walk(self._db, _BATCH_RESULTS, {"batch_id": batch_id}, {"position": -1})
        page = asyncio.create_task(_next(pages))
        try:
            while rows := await page:
                page = asyncio.create_task(_next(pages))
                for result in await self._complete(rows):
                    yield result
        finally:
            page.cancel()
            await asyncio.gather(page, return_exceptions=True)

    async def _complete(self, rows: Sequence[Any]) -> list[StoredResult]:
        results: dict[UUID, StoredResult] = {}
        for number, row in enumerate(rows):
            if number % _TURN == 0:
                await asyncio.sleep(0)
            if (result := _from_row(row)) is not None:
                results[row.id] = result
        if len(results) < len(rows):
            rest = [row.id for row in rows if row.id not in results]
            results |= {view.job_id: _from_view(view) for view in await self._views(rest)}
        return [results[row.id] for row in rows if row.id in results]


async def _next(pages: AsyncIterator[list[Any]]) -> list[Any]:
    return await anext(pages, [])


def _from_view(view: JobView) -> StoredResult:
    grounding = view.record.grounding if view.record is not None else None
    # It brings Celery along, which most commands do without.
    from tasks.results import result_of  # noqa: PLC0415

    return StoredResult(result_of(view), grounding.errors if grounding is not None else {})


def _from_row(row: Any) -> StoredResult | None:
    """The result of a row; None where it takes a whole view: of a job that is not final, was erased or has no answer."""
    if row.result is None:
        return None
    result = JobResult.model_validate_json(row.result)
    if not result.response.strip():
        return None
    usage, snapshot, timing = result.usage, result.provider_snapshot, result.timing_ms
    shared = snapshot.shared_from if snapshot else None
    result = result.model_copy(
        update={
            # DERIVED names them.
            "sources_used": tuple(dict.fromkeys(citation.chunk_id for citation in result.citations)),
            "tokens_used": usage.input_tokens + usage.output_tokens if usage else None,
            "shared_from": shared.job_id if shared else None,
            "latency_ms": timing.total if timing else None,
        }
    )
    return StoredResult(result, {ErrorKind(kind): count for kind, count in (row.errors or {}).items()})
