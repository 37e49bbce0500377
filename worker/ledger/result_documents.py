"""Reads the results of jobs: PostgreSQL puts the columns of a result together, and only others are made of whole views."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from decimal import Decimal
from functools import cache
from typing import Any, TypeVar
from uuid import UUID

from schemas.claim_error import ErrorKind
from schemas.model_call import plain_usd
from schemas.record import JobResult
from tasks.ports import JobView, ResultLine, StoredResult
from worker.ledger.database import Database
from worker.ledger.packing import visible_parts
from worker.ledger.pages import PAGE_ROWS

# A result as JSON, of a final job with a record whose content was not erased. What is stored out of line is read out once a job:
# by any other way each of its parts fetches the whole of it again, a request with all its sources.
COLUMNS = """
    j.id, j.position, j.errors,
    CASE WHEN g.job_id IS NOT NULL AND j.erased_at IS NULL THEN (
        SELECT row_to_json(f)::text FROM (SELECT
            j.id AS job_id, j.custom_id, j.position, j.batch_id, coalesce(q.message_id, j.id::text) AS message_id, q.trace_id,
            j.state, j.outcome, j.held_reason, q.query, g.answer AS response, g.output_format, coalesce(g.citations, '[]') AS citations,
            CASE jsonb_typeof(q.context) WHEN 'number' THEN q.context::int WHEN 'array' THEN jsonb_array_length(q.context) ELSE 0 END
                AS sources_provided,
            n.grounding_score, n.confidence, a.answer_quality, a.sufficient_context, coalesce(a.reasoning, '') AS reasoning,
            a.abstain_reason, coalesce(a.warnings, '[]') AS warnings, coalesce(n.claims, '[]') AS claims,
            coalesce(n."values", '[]') AS "values", g.output_structured AS structured, coalesce(g.usage, c.parsed -> 'usage') AS usage,
            -- The price of a call is unknown, and with it the cost of its job. As text no digit is lost.
            CASE WHEN NOT EXISTS (SELECT FROM attempt u WHERE u.job_id = j.id AND u.cost_usd IS NULL
                                                           AND u.closed_at IS NOT NULL) THEN j.cost_usd::text END AS cost_usd,
            g.prompt_version, g.timing_ms, coalesce(g.provider_snapshot, c.parsed -> 'snapshot') AS provider_snapshot, g.failure, q.metadata,
            j.replay_of, coalesce(g.asks, '[]') AS asks
        ) f
    ) END AS result, g.packed
"""

# Row by row by the keys: a join may read whole tables, by statistics of a time when they were small.
_JOINS = """
CROSS JOIN LATERAL (SELECT head FROM job_request WHERE job_id = j.id LIMIT 1) r
CROSS JOIN LATERAL jsonb_to_record(r.head)
    AS q(query text, message_id text, trace_id text, metadata jsonb, context jsonb)
LEFT JOIN LATERAL (
    SELECT * FROM generation_record WHERE job_id = j.id AND run = j.run AND j.finished_at IS NOT NULL LIMIT 1
) g ON true
LEFT JOIN LATERAL (SELECT parsed FROM completion WHERE attempt_id = g.attempt_id LIMIT 1) c ON true
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

# A range and no limit, so that the next page can be read before the last row of this one is known.
_BATCH_RESULTS = f"""
SELECT {COLUMNS}
FROM (SELECT * FROM job WHERE batch_id = %(batch_id)s AND position BETWEEN %(first)s AND %(last)s ORDER BY position) j
{_JOINS} ORDER BY j.position
"""

_LAST_POSITION = "SELECT max(position) AS position FROM job WHERE batch_id = %s"

DERIVED = {"sources_used", "tokens_used", "shared_from", "latency_ms"}
"""Fields of a result that are made of its others; each other field has a column, as a test makes sure."""

Result = TypeVar("Result", StoredResult, ResultLine)

_TURN = 50
"""Results made between two turns of the event loop, which meanwhile receives the next pages."""

_PAGES_AHEAD = 2
"""Pages that are read at once, over a connection each: the server takes longer for a page than the lines of one take here."""


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
        return await self._complete(await self._db.rows(_RESULTS, {"ids": list(job_ids)}), _from_row, _from_view)

    async def of_batch(self, batch_id: UUID) -> AsyncIterator[ResultLine]:
        """The results of all jobs of a batch by position; reads pages ahead."""
        pages: deque[asyncio.Task[list[Any]]] = deque()
        try:
            async for reading in self._pages(batch_id):
                pages.append(asyncio.create_task(reading))
                if len(pages) > _PAGES_AHEAD:
                    for line in await self._lines(await pages.popleft()):
                        yield line
            while pages:
                for line in await self._lines(await pages.popleft()):
                    yield line
        finally:
            for page in pages:
                page.cancel()
            await asyncio.gather(*pages, return_exceptions=True)

    async def _pages(self, batch_id: UUID) -> AsyncIterator[Coroutine[Any, Any, list[Any]]]:
        """The reading of each page of a batch, also of jobs that come meanwhile."""
        first = 0
        while (last := (await self._db.rows(_LAST_POSITION, [batch_id]))[0].position) is not None and first <= last:
            for start in range(first, last + 1, PAGE_ROWS):
                page = {"batch_id": batch_id, "first": start, "last": min(start + PAGE_ROWS - 1, last)}
                yield self._db.rows(_BATCH_RESULTS, page)
            first = last + 1

    async def _lines(self, rows: Sequence[Any]) -> list[ResultLine]:
        return await self._complete(rows, _line_from_row, lambda view: _from_view(view).line())

    async def _complete(
        self, rows: Sequence[Any], from_row: Callable[[Any], Result | None], from_view: Callable[[JobView], Result]
    ) -> list[Result]:
        """The results of rows in their order; those that no row makes are made of views."""
        results: list[Result | None] = []
        for number, row in enumerate(rows):
            if number % _TURN == 0:
                await asyncio.sleep(0)
            results.append(from_row(row))
        if rest := [row.id for row, result in zip(rows, results, strict=True) if result is None]:
            views = {view.job_id: view for view in await self._views(rest)}
            results = [
                from_view(views[row.id]) if result is None and row.id in views else result
                for row, result in zip(rows, results, strict=True)
            ]
        return [result for result in results if result is not None]


def _from_view(view: JobView) -> StoredResult:
    grounding = view.record.grounding if view.record is not None else None
    # Most commands read no view, and the steps of an answer come along.
    from tasks.results import result_of  # noqa: PLC0415

    return StoredResult(result_of(view), grounding.errors if grounding is not None else {})


def _from_row(row: Any) -> StoredResult | None:
    """The result of a row; None where it takes a whole view: of a job that is not final, was erased or has no answer."""
    if row.result is None:
        return None
    result = JobResult.model_validate_json(_whole(row))
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
    return StoredResult(result, _errors(row))


def _whole(row: Any) -> str:
    """The result as JSON, with the parts that are packed behind their empty ones: of two fields the last one counts."""
    result: str = row.result
    return result if row.packed is None else f"{result[:-1]},{visible_parts(row.packed)[1:].decode()}"


def _errors(row: Any) -> dict[ErrorKind, int]:
    return {ErrorKind(kind): count for kind, count in row.errors.items()} if row.errors else {}


# ---- as lines --------------------------------------------------------------------------------------------------------


@cache
def _codec() -> tuple[Callable[[str], Any], Callable[[Any], bytes], type[Exception]]:
    """The reader and the writer of documents, and the error of one that is none; made for the first line."""
    # Most commands read no line.
    import msgspec  # noqa: PLC0415

    from worker.ledger.field_order import ordered_class  # noqa: PLC0415

    document = ordered_class(JobResult, frozenset({*DERIVED, "truncated"}))
    return msgspec.json.Decoder(document).decode, msgspec.json.Encoder().encode, msgspec.DecodeError


def _line_from_row(row: Any) -> ResultLine | None:
    """The same as a line of JSON, byte for byte as the model writes it; most of the time goes without its validation."""
    if row.result is None:
        return None
    read, write, no_document = _codec()
    whole = _whole(row)
    try:
        document = read(whole)
    except no_document:
        # Stored by a version whose models have other fields.
        return _line_of_model(row)
    if document.values and "e+" in whole:
        # A number from 1e16 on that is packed: the model writes its exponent with a sign.
        return _line_of_model(row)
    if not document.response.strip():
        return None
    _derive(document)
    return ResultLine(document.position, document.state, write(document), _errors(row))


def _line_of_model(row: Any) -> ResultLine | None:
    stored = _from_row(row)
    return None if stored is None else stored.line()


def _derive(document: Any) -> None:
    """Set the fields that no column has: ``DERIVED`` and the mark of the cut form."""
    usage, snapshot, timing = document.usage, document.provider_snapshot, document.timing_ms
    document.sources_used = list(dict.fromkeys([citation.chunk_id for citation in document.citations]))
    document.tokens_used = usage.input_tokens + usage.output_tokens if usage else None
    document.shared_from = snapshot.shared_from.job_id if snapshot and snapshot.shared_from else None
    document.latency_ms = timing.total if timing else None
    if document.cost_usd is not None:
        document.cost_usd = plain_usd(Decimal(document.cost_usd))
    document.truncated = False
