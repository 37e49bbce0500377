"""Reads the results of jobs: PostgreSQL puts the columns of a result together, and only others are made of whole views."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from struct import Struct
from typing import Any
from uuid import UUID

from schemas.record import JobResult
from tasks.errors import LedgerError
from tasks.ports import JobView, ResultLine, StoredResult, UnreadableRow
from worker.ledger.database import Database
from worker.ledger.document_query import BATCH_RESULTS, RESULTS
from worker.ledger.packing import visible_parts
from worker.ledger.pages import PAGE_ROWS, read_apart, row_at_fault
from worker.ledger.stored_documents import error_counts, line_of_document
from worker.ledger.stored_rows import read_row

_LAST_POSITION = "SELECT max(position) AS position FROM job WHERE batch_id = %s"

_PAGE = """
SELECT id FROM job WHERE batch_id = %(batch_id)s AND position BETWEEN %(first)s AND %(last)s ORDER BY position
"""

_TURN = 100
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
        results: dict[UUID, StoredResult] = {}
        rows, rest = await read_apart(self._db, RESULTS, job_ids)
        for number, row in enumerate(rows, start=1):
            result = read_row(_result_of_row, row, row.id)
            if isinstance(result, StoredResult):
                results[row.id] = result
            else:
                rest.append(row.id)
            if not number % _TURN:
                await asyncio.sleep(0)
        for view in await self._views(rest) if rest else ():
            results[view.job_id] = _from_view(view)
        return [results[job_id] for job_id in job_ids if job_id in results]

    async def of_batch(self, batch_id: UUID) -> AsyncIterator[list[ResultLine]]:
        """The results of all jobs of a batch by position, page by page; reads pages ahead."""
        pages: deque[asyncio.Task[list[ResultLine]]] = deque()
        try:
            async for reading in self._pages(batch_id):
                pages.append(asyncio.create_task(reading))
                if len(pages) > _PAGES_AHEAD and (lines := await pages.popleft()):
                    yield lines
            while pages:
                if lines := await pages.popleft():
                    yield lines
        finally:
            for page in pages:
                page.cancel()
            await asyncio.gather(*pages, return_exceptions=True)

    async def _pages(self, batch_id: UUID) -> AsyncIterator[Coroutine[Any, Any, list[ResultLine]]]:
        """The reading of each page of a batch, also of jobs that come meanwhile."""
        first = 0
        while (last := (await self._db.rows(_LAST_POSITION, [batch_id]))[0].position) is not None and first <= last:
            for start in range(first, last + 1, PAGE_ROWS):
                end = min(start + PAGE_ROWS - 1, last)
                yield self._page(batch_id, start, end)
            first = last + 1

    async def _page(self, batch_id: UUID, first: int, last: int) -> list[ResultLine]:
        """The lines of the jobs at these positions; job by job where the server can't put one of their rows together."""
        try:
            return await self._lines(
                await self._db.copied_rows(BATCH_RESULTS.format(batch_id=batch_id, first=first, last=last))
            )
        except LedgerError as error:
            if not row_at_fault(error):
                raise
        rows = await self._db.rows(_PAGE, {"batch_id": batch_id, "first": first, "last": last})
        return [stored.line() for stored in await self.of_jobs([row.id for row in rows])]

    async def _lines(self, rows: Sequence[memoryview]) -> list[ResultLine]:
        """The lines of rows in their order; those that no row makes are made of results by id."""
        lines: list[ResultLine | None] = []
        for start in range(0, len(rows), _TURN):
            lines += map(_readable_line, rows[start : start + _TURN])
            await asyncio.sleep(0)
        rest = {_id_of_row(row): place for place, row in enumerate(rows) if lines[place] is None}
        for stored in await self.of_jobs(list(rest)) if rest else ():
            lines[rest[stored.result.job_id]] = stored.line()
        return [line for line in lines if line is not None]


def _from_view(view: JobView) -> StoredResult:
    grounding = view.record.grounding if view.record is not None else None
    # Most commands read no view, and the steps of an answer come along.
    from tasks.results import result_of  # noqa: PLC0415

    return StoredResult(result_of(view), grounding.errors if grounding is not None else {})


def _result_of_row(row: Any) -> StoredResult | None:
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
    return StoredResult(result, error_counts(row.errors))


def _whole(row: Any) -> str:
    """The result as JSON, with the parts that are packed behind their empty ones: of two fields the last one counts."""
    result: str = row.result
    return result if row.packed is None else f"{result[:-1]},{visible_parts(row.packed)[1:].decode()}"


# ---- rows as they are copied -----------------------------------------------------------------------------------------

_LENGTH = Struct(">i")
"""Stands before each field; negative: the field is null."""

_ID = slice(6, 22)
"""Behind the number of fields and its own length."""

_DOCUMENT_AT = 26


def _id_of_row(row: memoryview) -> UUID:
    return UUID(bytes=bytes(row[_ID]))


def _readable_line(row: memoryview) -> ResultLine | None:
    line = read_row(_line_of_row, row, _id_of_row(row))
    return None if isinstance(line, UnreadableRow) else line


def _line_of_row(row: memoryview) -> ResultLine | None:
    """The line of a row; None where it takes a whole view, or the model."""
    (length,) = _LENGTH.unpack_from(row, _DOCUMENT_AT - _LENGTH.size)
    if length < 0:
        return None
    end = _DOCUMENT_AT + length
    (packed_length,) = _LENGTH.unpack_from(row, end)
    packed = None if packed_length < 0 else visible_parts(row[end + _LENGTH.size :])
    return line_of_document(row[_DOCUMENT_AT:end], packed)
