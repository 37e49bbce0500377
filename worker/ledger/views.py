"""Reads jobs, batches and audits from the ledger, as views that results are made of."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import orjson
from pydantic import TypeAdapter

from schemas import CONTRACT_VERSION
from schemas.batch import MOST_UNPRICED, BatchStatus
from schemas.claim_error import ErrorKind
from schemas.failure import Failure, FailureKind
from schemas.generation import OutputFormat
from schemas.job import JobRequest, SourceContext
from schemas.model_call import Prompt, Usage
from schemas.record import GenerationRecord, RecordStatus
from schemas.states import JobState, Outcome, Step
from tasks.errors import NotFound
from tasks.ports import (
    InputLine,
    JobDetail,
    JobView,
    Reading,
    Refused,
    Repeated,
    ResultLine,
    StoredResult,
    UnreadableRow,
)
from worker.ledger.database import Store, fields
from worker.ledger.packing import (
    RECORD_ANSWER,
    RECORD_PARTS,
    whole_completion,
    whole_record,
    whole_request,
)
from worker.ledger.pages import read_apart, walk
from worker.ledger.stored_rows import read_row

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
    "replay_of": "uuid",
    "asks": "jsonb",
}
"""Columns of the table of audit records with the types of their arrays in SQL; a test compares them with the table."""

VIEW_COLUMNS = """
    j.id, j.batch_id, j.tenant, j.position, j.custom_id, j.state, j.step, j.run, j.round, j.outcome, j.held_reason,
    j.created_at, j.scheduled_at, j.started_at, j.finished_at, j.result_published_at, j.erased_at,
    j.replay_of,
    -- The price of a call is unknown, and with it the cost of its job.
    CASE WHEN NOT EXISTS (SELECT FROM attempt u WHERE u.job_id = j.id AND u.cost_usd IS NULL AND u.closed_at IS NOT NULL)
         THEN j.cost_usd END AS cost_usd,
    r.head, r.frame AS request_frame,
    """ + ", ".join([*(f"g.{name} AS record_{name}" for name in RECORD_COLUMNS), RECORD_PARTS])
"""Columns of a view over ``job j``, ``job_request r``, ``generation_record g`` and its answer ``completion c``."""

_NOT_IN_A_RESULT = ("messages_snapshot", "output_raw", "canonical")

_SLIM_REQUEST = """(
    r.head - ARRAY['context', 'conversation_history', 'system_instructions']
    || jsonb_build_object('context', array_fill('{"content": "-", "chunk_id": "-", "document_id": "-"}'::jsonb, ARRAY[
        CASE jsonb_typeof(r.head -> 'context') WHEN 'number' THEN (r.head -> 'context')::int
            WHEN 'array' THEN jsonb_array_length(r.head -> 'context') ELSE 0 END]))
) AS head, NULL::bytea AS request_frame"""

PUBLISHED_COLUMNS = VIEW_COLUMNS.replace("r.head, r.frame AS request_frame", _SLIM_REQUEST)
for _name in _NOT_IN_A_RESULT:
    PUBLISHED_COLUMNS = PUBLISHED_COLUMNS.replace(f"g.{_name} AS", "NULL AS")
PUBLISHED_COLUMNS = PUBLISHED_COLUMNS.replace("c.prompt AS", "NULL::jsonb AS").replace("c.frame AS", "NULL::bytea AS")
"""Columns of a view with only as much as a result is made of: placeholders for sources, no messages, no raw answer."""

_VIEW_JOINS = (
    """
JOIN job_request r ON r.job_id = j.id
LEFT JOIN generation_record g ON g.job_id = j.id AND g.run = j.run AND j.finished_at IS NOT NULL
"""
    + RECORD_ANSWER
)

_VIEWS, _SLIM_VIEWS = (
    f"""
SELECT {columns}
FROM unnest(%(ids)b::uuid[]) WITH ORDINALITY AS d(id, ord) JOIN job j ON j.id = d.id {_VIEW_JOINS}
ORDER BY d.ord
"""
    for columns in (VIEW_COLUMNS, PUBLISHED_COLUMNS)
)

# Of a job whose other rows the server itself can't read.
_BARE_VIEWS = f"""
SELECT {VIEW_COLUMNS} FROM job j LEFT JOIN job_request r ON false LEFT JOIN generation_record g ON false
LEFT JOIN completion c ON false WHERE j.id = ANY(%(ids)b::uuid[])
"""

_BATCH_JOBS = """
SELECT id, position FROM job
WHERE batch_id = %(batch_id)s AND position > %(after_position)s ORDER BY position LIMIT %(page)s
"""

FEW = 2_000
"""Calls of an uncommon kind in the whole ledger up to which the batch is looked up of each, instead of its jobs being read."""


def _of_batch(table: str, uncommon: str, more: str = "true", most_a_job: str = "ALL") -> str:
    """A query of the jobs of a batch b by their rows in a table u of calls, of a kind that has an index of its own.

    A million jobs without such a call cost nothing while there are few in the ledger.
    """
    return f"""(
        SELECT u.job_id FROM {table} u
        WHERE (SELECT count(*) FROM (SELECT FROM {table} u WHERE {uncommon} LIMIT {FEW + 1}) f) <= {FEW}
          AND {uncommon} AND (SELECT k.batch_id FROM job k WHERE k.id = u.job_id) = b.id AND {more}
        UNION ALL
        SELECT k.id FROM job k
        CROSS JOIN LATERAL (SELECT * FROM {table} u WHERE u.job_id = k.id AND {uncommon} LIMIT {most_a_job} OFFSET 0) u
        WHERE (SELECT count(*) FROM (SELECT FROM {table} u WHERE {uncommon} LIMIT {FEW + 1}) f) > {FEW}
          AND k.batch_id = b.id AND {more}
    )"""


# As many as are counted: where most prices are unknown, no job beyond them is read.
_UNPRICED = f"""(
    SELECT job_id FROM {_of_batch("attempt", "u.cost_usd IS NULL AND u.closed_at IS NOT NULL", most_a_job="1")} n
    LIMIT {MOST_UNPRICED}
)"""
_CALLED_AGAIN = _of_batch(
    "attempt",
    "u.outcome = 'unknown'",
    """u.cost_usd IS DISTINCT FROM 0 AND EXISTS (SELECT FROM attempt n WHERE n.job_id = u.job_id AND n.run = u.run AND n.round = u.round
                           AND n.purpose = u.purpose AND n.id <> u.id AND n.shared_from IS NULL
                           AND (n.opened_at > u.opened_at OR n.outcome = 'ok'))""",
)
_LATE = _of_batch(
    "completion",
    "NOT u.won",
    "EXISTS (SELECT FROM attempt late WHERE late.id = u.attempt_id AND late.outcome = 'ok' AND late.cost_usd IS DISTINCT FROM 0)",
)

STATUS = f"""
SELECT b.id AS batch_id, b.key, b.name, b.tenant, b.created_at, b.not_before, b.call_window AS window, b.opens_at, b.closes_at, b.deadline, b.paused, b.cancelled_at,
       b.cancelling_by IS NOT NULL AS cancelling, b.erased_at, b.max_cost_usd, b.reserved_usd, j.*, (
           SELECT jsonb_build_object(
               'url', split_part(c.url, '?', 1), 'tries', c.tries, 'last_error', c.last_error,
               'next_at', CASE WHEN c.ended_at IS NULL THEN c.next_at END,
               'state', CASE WHEN c.ended_at IS NULL THEN 'waiting' WHEN c.last_error IS NULL THEN 'delivered' ELSE 'given_up' END)
           FROM callback c WHERE c.batch_id = b.id) AS callback,
       CASE WHEN NOT b.pruned_unpriced AND p.jobs = 0 THEN b.spent_usd END AS spent_usd,
       b.spent_usd AS priced_usd, p.jobs AS unpriced_jobs,
       (SELECT count(*) FROM {_CALLED_AGAIN} n) + (SELECT count(*) FROM {_LATE} n) AS possibly_billed_twice
FROM batch b
CROSS JOIN LATERAL (SELECT count(DISTINCT job_id) AS jobs FROM {_UNPRICED} u) p
CROSS JOIN LATERAL (
    -- From the counts that triggers keep: no job is read.
    SELECT coalesce(sum(n) FILTER (WHERE kind = 'state'), 0) AS jobs,
           coalesce(jsonb_object_agg(state, n) FILTER (WHERE kind = 'state'), '{{}}') AS states,
           coalesce(jsonb_object_agg(outcome, n) FILTER (WHERE kind = 'outcome'), '{{}}') AS outcomes,
           coalesce(jsonb_object_agg(held_reason, n) FILTER (WHERE kind = 'held'), '{{}}') AS held,
           coalesce(sum(unpublished) FILTER (WHERE kind = 'state'), 0) AS unpublished
    FROM (
        SELECT CASE WHEN grouping(state) = 0 THEN 'state' WHEN grouping(outcome) = 0 THEN 'outcome' ELSE 'held' END
                   AS kind, state, outcome, held_reason, sum(jobs) AS n,
               coalesce(sum(jobs) FILTER (WHERE unpublished), 0) AS unpublished
        FROM job_count WHERE batch_id = b.id AND folded = ANY ('{{false,true}}')
        GROUP BY GROUPING SETS ((state), (outcome), (held_reason)) HAVING sum(jobs) <> 0
    ) g
    WHERE kind = 'state' OR (kind = 'outcome' AND outcome IS NOT NULL) OR (kind = 'held' AND held_reason IS NOT NULL)
) j
"""
_BATCH_STATUS = STATUS + "WHERE b.id = %(batch_id)s"
_BATCHES = (
    # An array: joined with a subquery, every batch there is would be compared with those of the list.
    STATUS
    + """WHERE b.id = ANY (ARRAY(
    SELECT id FROM batch
    WHERE %(before)s::uuid IS NULL OR (created_at, id) < (SELECT created_at, id FROM batch WHERE id = %(before)s)
    ORDER BY created_at DESC, id DESC LIMIT %(limit)s
)) ORDER BY b.created_at DESC, b.id DESC"""
)

_ERROR_KINDS = """
SELECT e.key AS kind, sum(e.value::int) AS n
FROM job j CROSS JOIN LATERAL jsonb_each_text(CASE jsonb_typeof(j.errors) WHEN 'object' THEN j.errors END) e
WHERE j.batch_id = %(batch_id)s AND e.value ~ '^[0-9]{1,9}$'
GROUP BY e.key ORDER BY n DESC, e.key
"""

_ATTEMPTS = """
SELECT a.id, run, round, purpose, number, a.lane, a.provider, a.model, encode(request_hash, 'hex') AS request_hash, lease_token,
       opened_at, closed_at, outcome, spent, provider_request_id, usage, reserved_usd, cost_usd, timing_ms, failure,
       a.provider_batch_id, shared_from, b.remote_id AS provider_batch_name, c.call ->> 'lane_reason' AS lane_reason
FROM attempt a LEFT JOIN provider_batch b ON b.id = a.provider_batch_id
LEFT JOIN provider_batch_call c ON c.attempt_id = a.id
WHERE a.job_id = %(id)s ORDER BY opened_at, a.id
"""
_COMPLETIONS = """
SELECT attempt_id, run, round, purpose, won, stored_at, finish_reason, parsed, prompt, frame
FROM completion WHERE job_id = %(id)s ORDER BY stored_at, attempt_id
"""
_EVENTS = "SELECT at, run, kind, actor, detail FROM job_event WHERE job_id = %(id)s ORDER BY id"
_LABELS = """
SELECT run, claim, verdict, note, actor, at FROM label WHERE job_id = %(id)s ORDER BY run, coalesce(claim, 0), at, id
"""
_REPLAYS = "SELECT id FROM job WHERE replay_of = %(id)s ORDER BY id"
_RECORDS = f"""
SELECT {", ".join(f"g.{name}" for name in RECORD_COLUMNS)}, {RECORD_PARTS} FROM generation_record g {RECORD_ANSWER}
WHERE g.job_id = %(id)s ORDER BY g.run
"""

_INPUT_LINES = """
SELECT position, job_id, place, field, message, custom_id FROM input_line
WHERE batch_id = %(batch_id)s AND position > %(after_position)s ORDER BY position LIMIT %(page)s
"""

_BY_CUSTOM_ID = "SELECT id FROM job WHERE batch_id = %(batch_id)s AND custom_id = %(name)s"
_BY_POSITION = "SELECT id FROM job WHERE batch_id = %(batch_id)s AND position = %(position)s"
_ERASED_JOBS = """
SELECT EXISTS (SELECT FROM job WHERE batch_id = %(batch_id)s AND erased_at IS NOT NULL) AS erased
"""

_PLACE = re.compile(r"(?P<line>line ?)?(?P<number>[0-9]{1,20})")

MOST_POSITION = 2**31 - 1

RESULT_ROWS = 100
"""Results whose rows are read by one statement, between two turns of the event loop."""

PAGE_BYTES = 1_000_000
"""Of results from which on no more are added to a page."""

MOST_SOURCES = 10_000
"""Empty sources in the place of those that can't be read."""


class PostgresReading(Store, Reading):
    """Views by id, and pages of them without a cursor."""

    async def views(self, job_ids: Sequence[UUID]) -> list[JobView]:
        """The jobs that exist among ``job_ids``, in that order."""
        return [view async for view in self._read(_VIEWS, job_ids)]

    async def _read(self, statement: str, job_ids: Sequence[UUID]) -> AsyncIterator[JobView]:
        """The views of jobs in the order of their ids; one that can't be read says so, and keeps no other back."""
        rows, refused = await read_apart(self._db, statement, job_ids)
        if refused:
            rows += await self._db.rows(_BARE_VIEWS, {"ids": refused})
            places = {job_id: place for place, job_id in enumerate(job_ids)}
            rows.sort(key=lambda row: places[row.id])
        # A row is a hundredth of its view, so only one is made at a time.
        for row in rows:
            yield readable_view(row)

    async def results(self, job_ids: Sequence[UUID]) -> list[StoredResult]:
        return [result async for result in self._results(job_ids)]

    async def _results(self, job_ids: Sequence[UUID]) -> AsyncIterator[StoredResult]:
        # Most commands read no result, and the steps of an answer come along.
        from tasks.results import result_of  # noqa: PLC0415

        for at in range(0, len(job_ids), RESULT_ROWS):
            async for view in self._read(_SLIM_VIEWS, job_ids[at : at + RESULT_ROWS]):
                yield StoredResult.of(view, result_of(view))

    async def batch_results(self, batch_id: UUID, after: int = -1) -> AsyncIterator[list[ResultLine]]:
        """The results of the jobs of a batch after a position, as lines of JSON, streamed in pages; none is empty, or large."""
        async for rows in walk(self._db, _BATCH_JOBS, {"batch_id": batch_id}, {"position": after}):
            page, size = list[ResultLine](), 0
            async for result in self._results([row.id for row in rows]):
                line = result.line()
                page.append(line)
                size += len(line.content)
                if size >= PAGE_BYTES:
                    yield page
                    page, size = [], 0
            if page:
                yield page

    async def batch_views(self, batch_id: UUID) -> AsyncIterator[JobView]:
        """All jobs of a batch by position, streamed."""
        # Pages by position: no cursor or transaction stays open.
        async for rows in walk(self._db, _BATCH_JOBS, {"batch_id": batch_id}, {"position": -1}):
            for view in await self.views([row.id for row in rows]):
                yield view

    async def input_lines(self, batch_id: UUID, after: int = -1) -> AsyncIterator[InputLine]:
        """Entries of a batch after a position that are no jobs of it, streamed: refused, or known from before.

        Kept until the batch is erased. Long texts are cut.
        """
        async for rows in walk(self._db, _INPUT_LINES, {"batch_id": batch_id}, {"position": after}):
            for row in rows:
                if row.job_id is not None:
                    yield Repeated(row.position, row.job_id)
                else:
                    yield Refused(row.position, row.message, row.field, row.custom_id, row.place)

    async def batch_status(self, batch_id: UUID) -> BatchStatus:
        """Counts and cost of a batch; raises ``NotFound``."""
        rows = await self._db.rows(_BATCH_STATUS, {"batch_id": batch_id})
        if not rows:
            raise NotFound(f"no batch {batch_id}")
        return BatchStatus(**rows[0]._asdict())

    async def error_kinds(self, batch_id: UUID) -> dict[ErrorKind, int]:
        """The sum of ``grounding.errors`` over the answers of a batch, most frequent first."""
        rows = await self._db.rows(_ERROR_KINDS, {"batch_id": batch_id})
        # A later version may tell further kinds apart.
        return {ErrorKind(row.kind): row.n for row in rows if row.kind in set(ErrorKind)}

    async def batches(self, limit: int, before: UUID | None = None) -> list[BatchStatus]:
        """The newest batches, newest first; with ``before``, the next ones after that batch of the list."""
        rows = await self._db.rows(_BATCHES, {"limit": limit, "before": before})
        return [BatchStatus(**row._asdict()) for row in rows]

    async def job_detail(self, job_id: UUID) -> JobDetail:
        """Everything known of a job; raises ``NotFound``."""
        views = await self.views([job_id])
        if not views:
            raise NotFound(f"no job {job_id}")
        key = {"id": job_id}
        return JobDetail(
            view=views[0],
            attempts=tuple(_readable_attempt(row) for row in await self._db.rows(_ATTEMPTS, key)),
            completions=tuple(_readable_completion(row) for row in await self._db.rows(_COMPLETIONS, key)),
            events=tuple(_readable(row) for row in await self._db.rows(_EVENTS, key)),
            labels=tuple(_readable(row) for row in await self._db.rows(_LABELS, key)),
            replays=tuple(row.id for row in await self._db.rows(_REPLAYS, key)),
            records=tuple(_readable_record(row) for row in await self._db.rows(_RECORDS, key)),
        )

    async def locate(self, batch_id: UUID, name: str) -> UUID:
        """The id of the job of a batch with this custom id, else of this line or position; raises ``NotFound``.

        ``line42`` is the line that screens and pages call so, at the position 41. Without a name the id is the job's own.
        """
        if not name:
            return batch_id
        rows = await self._db.rows(_BY_CUSTOM_ID, {"batch_id": batch_id, "name": name})
        if not rows and (place := _PLACE.fullmatch(name)) is not None:
            position = int(place["number"]) - (1 if place["line"] else 0)
            if 0 <= position <= MOST_POSITION:
                rows = await self._db.rows(_BY_POSITION, {"batch_id": batch_id, "position": position})
        if not rows:
            erased = await self._db.value(_ERASED_JOBS, {"batch_id": batch_id})
            hint = "; the custom ids of erased jobs are gone, their positions are not" if erased else ""
            raise NotFound(f"batch {batch_id} has no job with custom id, line or position {name!r}{hint}")
        job_id: UUID = rows[0].id
        return job_id


def view_of(row: Any) -> JobView:
    """Make a view of a row with ``VIEW_COLUMNS``; raises whatever a damaged record makes of it."""
    return _view(row, None if row.record_job_id is None else _record_of(row, "record_"))


def readable_view(row: Any) -> JobView:
    """Make a view of a row with ``VIEW_COLUMNS``; a damaged record is a failure that says so."""
    view = read_row(view_of, row, row.id)
    if isinstance(view, UnreadableRow):
        return replace(_view(row, _failure(view, row.run, row.tenant)), unreadable=view.message)
    if view.unreadable is not None and view.record is None and view.finished_at is not None:
        return replace(view, record=_failure(UnreadableRow(row.id, "no record"), row.run, row.tenant))
    return view


def _readable_record(row: Any) -> GenerationRecord:
    record = read_row(_record_of, row, row.job_id)
    return _failure(record, row.run, row.tenant) if isinstance(record, UnreadableRow) else record


def _failure(row: UnreadableRow, run: int, tenant: str) -> GenerationRecord:
    """A record in place of one that can't be read."""
    return GenerationRecord(
        job_id=row.job_id,
        run=run,
        tenant=tenant,
        message_id=str(row.job_id),
        contract_version=CONTRACT_VERSION,
        output_format=OutputFormat.MARKDOWN,
        status=RecordStatus.FAILED,
        error_message=row.message,
        failure=Failure(kind=FailureKind.UNREADABLE, message=row.message),
    )


def _request_of(row: Any) -> JobRequest:
    return JobRequest.model_validate(whole_request(row.head, row.request_frame))


def _blank_request(head: Any) -> JobRequest:
    """A request in place of one that can't be read, with as many empty sources: records name them by their places."""
    count = head.get("context") if isinstance(head, dict) else None
    sources = min(count, MOST_SOURCES) if isinstance(count, int) else 0
    blank = SourceContext.model_construct(content="", chunk_id="-", document_id="-")
    return JobRequest.model_construct(query="", context=(blank,) * sources)


def _view(row: Any, record: GenerationRecord | None) -> JobView:
    request = read_row(_request_of, row, row.id)
    unreadable = request.message if isinstance(request, UnreadableRow) else None
    return JobView(
        **fields(
            row, "batch_id", "tenant", "position", "custom_id", "run", "round", "held_reason", "cost_usd", "created_at"
        ),
        **fields(row, "scheduled_at", "started_at", "finished_at", "erased_at", "replay_of"),
        job_id=row.id,
        state=JobState(row.state),
        step=Step(row.step),
        outcome=Outcome(row.outcome) if row.outcome else None,
        published_at=row.result_published_at,
        request=_blank_request(row.head) if isinstance(request, UnreadableRow) else request,
        record=record,
        unreadable=unreadable,
    )


def _record_of(row: Any, prefix: str = "") -> GenerationRecord:
    columns = {name: getattr(row, prefix + name) for name in RECORD_COLUMNS}
    return GenerationRecord(**whole_record(columns, row))


_READERS: dict[str, Callable[[Any], object]] = {
    "usage": partial(Usage.model_validate, extra="ignore"),
    "failure": TypeAdapter(dict[str, Any]).validate_python,
    "cost_usd": TypeAdapter(Decimal).validate_python,
}


def _readable_attempt(row: Any) -> dict[str, Any]:
    """An attempt as JSON, without what can't be read of it."""
    values = row._asdict()
    read = {name: read_row(reader, values[name], row.id) for name, reader in _READERS.items() if values[name]}
    unreadable = {name: part.why for name, part in read.items() if isinstance(part, UnreadableRow)}
    if unreadable:
        values["unreadable"] = "; ".join(f"its {name} can't be read: {why}" for name, why in unreadable.items())
    return _json_of(values | dict.fromkeys(unreadable))


def _readable_completion(row: Any) -> dict[str, Any]:
    """A completion as JSON, without what can't be read of it."""
    values = row._asdict()
    del values["frame"]
    texts = read_row(_completion_of, row, row.attempt_id)
    if isinstance(texts, UnreadableRow):
        texts = {"raw": "", "unreadable": f"it can't be read: {texts.why}"}
    return _json_of(values | texts)


def _completion_of(row: Any) -> dict[str, Any]:
    """The texts of a completion. Raw bytes are shown as text, what is not UTF-8 escaped; the ledger keeps the bytes."""
    texts = whole_completion(row)
    Prompt.model_validate(texts.prompt)
    return {
        "parsed": {**texts.parsed, "text": texts.parsed["text"]},
        "prompt": texts.prompt,
        "raw": texts.raw.decode(errors="backslashreplace"),
    }


def _readable(row: Any) -> dict[str, Any]:
    """A row as JSON."""
    return _json_of(row._asdict())


def _json_of(values: dict[str, Any]) -> dict[str, Any]:
    readable: dict[str, Any] = orjson.loads(orjson.dumps(values, default=str))
    return readable
