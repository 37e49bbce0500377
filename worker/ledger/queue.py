"""Takes, renews and gives back leases, and ends the jobs that they are on."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, get_type_hints
from uuid import UUID

from pydantic import TypeAdapter
from uuid_utils.compat import uuid7

from schemas import CONTRACT_VERSION
from schemas.job import JobRequest, Recheck
from schemas.model_call import Completion, Correction, Prompt
from schemas.record import GenerationRecord
from schemas.states import Step
from schemas.window import gap_before
from tasks.errors import Unreadable
from tasks.ports import (
    ANY_RESCUES,
    ROUNDS_PER_LEVEL,
    Advance,
    FinalJob,
    Lease,
    Leased,
    LeaseKey,
    LeaseRoom,
    PackedFinal,
    Purpose,
    Queue,
    Renewal,
    Replay,
    StoredCompletion,
    UnreadableRow,
    no_page,
)
from worker.ledger.actions import cancel_pages
from worker.ledger.database import Database, fields
from worker.ledger.fairness import FAIR_IDS, FAIR_ORDER, LEAST_PRIORITY, MOST_PRIORITY, keep_turns
from worker.ledger.packing import split_record, whole_completion, whole_request
from worker.ledger.pages import LOCK_LEASED, each_page, quarantine_bad, row_at_fault
from worker.ledger.rescuing import fail_unreadable
from worker.ledger.stored_rows import read_row
from worker.ledger.views import RECORD_COLUMNS

PURPOSES = {
    Step.GENERATE: [Purpose.GENERATE.value, Purpose.REASK.value, Purpose.CORRECT.value, Purpose.ESCALATE.value],
    Step.CHECK: [Purpose.JUDGE.value],
    Step.LOCAL: [Purpose.JUDGE.value],
}
"""Which attempts count towards a step's limits."""

RISK = "CASE WHEN rescues > 0 THEN least(1, 4.0 ^ rescues / 256) ELSE 0 END"
"""``tasks.ports.risk_of``; a contract test compares the bounds of both."""

# Each row by its key, job by job: joined, a table that was analysed while it was empty comes first, and all jobs again for
# each of its rows.
LEASED_JOBS = f"""
SELECT t.*, nightdesk_now() AS now,
       EXISTS (SELECT FROM attempt u WHERE u.job_id = t.id AND u.cost_usd IS NULL AND u.closed_at IS NOT NULL) AS unpriced,
       b.not_before, b.call_window, b.max_cost_usd, b.cancelling_by, EXISTS (
           SELECT FROM tenant_budget u WHERE u.tenant = t.tenant AND (u.key_id IS NULL OR u.key_id = t.key_id)
       ) AS has_budget, r.head, r.frame AS request_frame, r.contract_version,
       r.prompt AS replay_prompt, a.*, w.*, v.*
FROM new_lease t
CROSS JOIN LATERAL (SELECT * FROM batch WHERE id = t.batch_id LIMIT 1) b
CROSS JOIN LATERAL (SELECT * FROM job_request WHERE job_id = t.id LIMIT 1) r
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE spent AND round / {ROUNDS_PER_LEVEL} = t.round / {ROUNDS_PER_LEVEL}) AS spent,
           count(*) FILTER (WHERE NOT spent AND outcome LIKE 'error:%%'
                              AND round / {ROUNDS_PER_LEVEL} = t.round / {ROUNDS_PER_LEVEL}) AS snoozes,
           count(*) FILTER (WHERE outcome = 'unknown' AND round = t.round) AS unknown,
           count(*) FILTER (WHERE round = t.round) AS attempts,
           min(opened_at) FILTER (WHERE round = t.round) AS first_opened_at
    FROM attempt WHERE job_id = t.id AND run = t.run AND purpose = ANY(%(purposes)s)
) a
LEFT JOIN LATERAL (
    SELECT c.attempt_id, c.parsed, c.prompt, c.frame, CASE WHEN c.run = t.run THEN o.timing_ms END AS timing_ms
    FROM completion c JOIN attempt o ON o.id = c.attempt_id
    WHERE c.job_id = t.id AND c.round = t.round AND c.purpose = ANY(%(answering)s) AND c.won
      AND (c.run = t.run OR (t.recheck IS NOT NULL AND c.run < t.run))
    ORDER BY c.run DESC, c.stored_at LIMIT 1
) w ON true
LEFT JOIN LATERAL (
    SELECT c.attempt_id AS judged_id, c.parsed AS judged_parsed, c.prompt AS judged_prompt,
           c.frame AS judged_frame,
           o.timing_ms AS judged_timing_ms
    FROM completion c JOIN attempt o ON o.id = c.attempt_id
    WHERE %(judging)s AND c.job_id = t.id AND c.run = t.run AND c.round = t.round AND c.purpose = 'judge' AND c.won
) v ON true
"""
"""Reads of a relation ``new_lease`` of jobs what ``leased_job`` makes jobs of; parameters: see ``lease_terms``."""

_TAKE = f""",
fitting_job AS (
    SELECT id FROM (
        SELECT id, request_bytes, rescues, sum(request_bytes) OVER before AS bytes, sum({RISK}) OVER before AS risk
        FROM candidate WINDOW before AS (ORDER BY place ROWS UNBOUNDED PRECEDING)
    ) c
    -- The first one fits whatever its size: the biggest job has its turn, too.
    WHERE (bytes <= %(max_bytes)s OR bytes = request_bytes) AND (rescues = 0 OR risk <= %(max_risk)s)
), new_lease AS (
    UPDATE job j
    SET state = 'running', lease_token = %(token)s, lease_until = nightdesk_now() + %(lease_for)s, worker = %(worker)s,
        started_at = coalesce(j.started_at, nightdesk_now())
    WHERE j.id = ANY (ARRAY(SELECT id FROM fitting_job))
    RETURNING j.id, j.batch_id, j.tenant, j.key_id, j.position, j.custom_id, j.step, j.run, j.round, j.priority, j.created_at, j.rescues, j.request_bytes,
              j.started_at, j.available_at, j.limited_ms, j.deadline, j.cost_usd, j.correction, j.recheck,
              j.replay_of
)"""

_LEASE_NAMED = (
    """
WITH locked_job AS (
    SELECT id, priority, request_bytes, rescues FROM job
    WHERE id = ANY(%(ids)b::uuid[]) AND state = 'available' AND step = %(step)s
      AND (deadline IS NULL OR deadline > nightdesk_now()) AND priority BETWEEN %(min_priority)s AND %(max_priority)s
      AND rescues <= %(max_rescues)s
    ORDER BY priority DESC, id LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), candidate AS (
    SELECT *, row_number() OVER (ORDER BY priority DESC, id) AS place FROM locked_job
)"""
    + _TAKE
    + LEASED_JOBS
)

_LEASE_NEXT = (
    FAIR_ORDER
    + """,
candidate AS (
    SELECT j.id, j.request_bytes, j.rescues, array_position(ARRAY(SELECT id FROM fair), j.id) AS place FROM job j
    WHERE j.id = ANY (ARRAY(SELECT id FROM fair)) AND j.state = 'available' AND j.step = %(step)s
    FOR UPDATE OF j SKIP LOCKED
)"""
    + _TAKE
    + ","
    + keep_turns("new_lease")
    + LEASED_JOBS
)

# One lock that a stranger keeps must not cost the process all its leases, so it waits for none.
_RENEW = f"""
WITH valid_lease AS ({LOCK_LEASED} SKIP LOCKED), renewed_job AS (
    UPDATE job j SET lease_until = nightdesk_now() + %(lease_for)s FROM valid_lease h WHERE j.id = h.id RETURNING j.id
)
SELECT d.id, EXISTS (SELECT FROM job j WHERE j.id = d.id AND j.lease_token = d.token AND j.state = 'running') AS is_locked
FROM unnest(%(ids)b::uuid[], %(tokens)b::uuid[]) AS d(id, token)
WHERE d.id NOT IN (SELECT id FROM renewed_job)
"""

_HAND_BACK = f"""
WITH valid_lease AS ({LOCK_LEASED})
UPDATE job j SET state = 'available', available_at = nightdesk_now(),
                 lease_token = NULL, lease_until = NULL, worker = NULL
FROM valid_lease h
WHERE j.id = h.id
  AND NOT EXISTS (SELECT FROM attempt a WHERE a.job_id = j.id AND a.lease_token = h.token AND a.closed_at IS NULL)
RETURNING j.id
"""

_DEFER = """
WITH moved_job AS (
    UPDATE job j SET state = 'scheduled', step = %(step)s, round = %(round)s,
                     scheduled_at = nightdesk_now() + %(delay)s, held_reason = %(held_reason)s,
                     needs_usd = CASE WHEN j.step = %(step)s THEN j.needs_usd END,
                     correction = CASE WHEN j.round = %(round)s THEN j.correction ELSE %(correction)s::jsonb END,
                     limited_ms = CASE
                         WHEN (j.step, j.round) <> (%(step)s, %(round)s) THEN NULL
                         WHEN %(limited)s THEN coalesce(j.limited_ms, 0)
                             + 1000 * extract(epoch FROM nightdesk_now() - j.available_at + %(delay)s)
                         ELSE j.limited_ms END,
                     rescues = CASE WHEN (j.step, j.round) <> (%(step)s, %(round)s) THEN 0 ELSE j.rescues END,
                     lease_token = NULL, lease_until = NULL, worker = NULL
    WHERE j.id = %(id)s AND j.lease_token = %(token)s AND j.state = 'running'
      AND NOT EXISTS (SELECT FROM attempt a
                      WHERE a.job_id = j.id AND a.lease_token = j.lease_token AND a.closed_at IS NULL)
    RETURNING j.id, j.run, j.worker
), event AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, %(event)s, 'worker', jsonb_build_object('delay_s', extract(epoch FROM %(delay)s::interval),
                                                            'held_reason', %(held_reason)s::text)
    FROM moved_job WHERE %(event)s::text IS NOT NULL
)
SELECT id FROM moved_job
"""


def _as_json(adapter: TypeAdapter[Any], value: Any) -> str | None:
    return None if value is None else adapter.dump_json(value).decode()


def _as_it_is(value: Any) -> Any:
    return value


_ARRAY_TYPES = {name: kind for name, kind in RECORD_COLUMNS.items() if name != "created_at"}
_ENCODERS: dict[str, Callable[[Any], Any]] = {
    name: partial(_as_json, TypeAdapter[Any](get_type_hints(GenerationRecord)[name]))
    for name, kind in _ARRAY_TYPES.items()
    if kind == "jsonb"
}

_STORED_TYPES = _ARRAY_TYPES | {"attempt_id": "uuid", "frame": "bytea"}
_RECORD_ARRAYS = ", ".join(f"%({name})b::{kind}[]" for name, kind in _STORED_TYPES.items())
_RECORD_NAMES = ", ".join(_STORED_TYPES)

_FINISH = f"""
WITH input AS (
    SELECT * FROM unnest(%(token)b::uuid[], %(step)b::text[], %(state)b::text[], %(outcome)b::text[], %(standing)b::real[],
                         {_RECORD_ARRAYS})
    AS d(token, step, state, final_outcome, standing, {_RECORD_NAMES})
), valid_lease AS (
    -- Apart from the record, so that those of a batch are summed up without reading its records.
    SELECT j.id, d.state, d.final_outcome, nullif(d.grounding -> 'errors', '{{}}') AS errors,
           d.standing, CASE WHEN d.state = 'failed' THEN d.failure ->> 'kind' END AS failure_kind
    FROM input d JOIN job j ON j.id = d.job_id AND j.state = 'running' AND j.lease_token = d.token
                           AND j.step = d.step AND j.run = d.run
    ORDER BY j.id FOR NO KEY UPDATE OF j
), finished_job AS (
    UPDATE job j SET state = h.state, outcome = h.final_outcome, finished_at = nightdesk_now(),
                     lease_token = NULL, lease_until = NULL, errors = h.errors,
                     standing = h.standing, failure_kind = h.failure_kind
    FROM valid_lease h WHERE j.id = h.id
    RETURNING j.id
), record AS (
    INSERT INTO generation_record ({_RECORD_NAMES}, created_at)
    SELECT {", ".join(f"d.{name}" for name in _STORED_TYPES)}, nightdesk_now()
    -- Not a join: 50 by 50 wide rows would be compared one with the other.
    FROM input d WHERE d.job_id = ANY (ARRAY(SELECT id FROM finished_job))
)
SELECT id FROM finished_job
"""

_NO_BOUND = 2**53
"""More bytes, and more risk, than any lease brings."""

READ_A_TURN = 20
"""Rows of a lease that are read in one turn of the event loop: some two milliseconds."""

CANCEL_ROUNDS = 10
"""Leases in a row that may bring nothing but jobs of batches that are being cancelled: so these delay no others for long."""


class PostgresQueue(Queue):
    """Leases as statements, each one transaction and one round trip."""

    def __init__(self, database: Database, shares: str) -> None:
        self._db = database
        self._shares = shares

    async def lease(
        self,
        step: Step,
        worker: str,
        lease_for: timedelta,
        limit: int,
        *,
        ids: Sequence[UUID] | None = None,
        min_priority: int | None = None,
        max_priority: int | None = None,
        room: LeaseRoom | None = None,
        unread: bool = False,
    ) -> Sequence[Lease]:
        """Take up to ``limit`` available jobs of a step: those among ``ids``, or the next by ``FAIR_ORDER`` when ids is None.

        Skips jobs that others hold, that are not available, or are past their deadline; takes no more than ``room`` allows.
        A job whose row can't be read fails at once (``fail_unreadable``), and is left out; with ``unread`` another process reads them.
        """
        terms = _terms(step, worker, lease_for, limit, min_priority=min_priority, max_priority=max_priority, room=room)
        token, jobs, unreadable = terms["token"], list[Lease](), list[UnreadableRow]()
        for number, row in enumerate(await self._lease(terms, ids), start=1):
            job = LeasedRow.of(row, token) if unread else read_job(row, token)
            if isinstance(job, UnreadableRow):
                unreadable.append(job)
            else:
                jobs.append(job)
            if not number % READ_A_TURN:
                await asyncio.sleep(0)
        await self.fail_unreadable(unreadable, [token])
        return sorted(jobs, key=_order)

    async def _lease(self, terms: dict[str, Any], ids: Sequence[UUID] | None) -> list[Any]:
        rows: list[Any] = []
        for _ in range(CANCEL_ROUNDS):
            leased_rows = await self._take({**terms, "shares": self._shares}, ids)
            rows = await self._cancel_leased(leased_rows)
            if rows or not leased_rows:
                break
        return rows

    async def fail_unreadable(self, rows: Sequence[UnreadableRow], tokens: Sequence[UUID]) -> None:
        """End jobs whose rows can't be read as ``unreadable``, each with its cause; they run under one of these tokens."""
        await fail_unreadable(self._db, rows, tokens)

    async def _take(self, parameters: dict[str, Any], ids: Sequence[UUID] | None) -> list[Any]:
        """Lease in one statement; jobs whose rows make it fail are put in quarantine, and the others leased without them."""
        while True:
            try:
                if ids is None:
                    return await self._db.rows(_LEASE_NEXT, parameters)
                return await self._db.rows(_LEASE_NAMED, {**parameters, "ids": list(ids)})
            except Exception as error:
                if not row_at_fault(error):
                    raise
                chosen = ids or await self._db.column(FAIR_IDS, parameters)
                bad = await quarantine_bad(self._db, chosen, _LEASE_NAMED, parameters)
                if not bad:
                    raise
                ids = None if ids is None else [job_id for job_id in ids if job_id not in bad]

    async def _cancel_leased(self, rows: list[Any]) -> list[Any]:
        """Cancel the jobs of batches whose cancel is under way, or ended midway; returns the other rows."""
        for actor in {row.cancelling_by for row in rows if row.cancelling_by is not None}:
            ids = [row.id for row in rows if row.cancelling_by == actor]
            await cancel_pages(self._db, each_page(ids), actor, no_page)
        return [row for row in rows if row.cancelling_by is None]

    async def renew(self, leases: Sequence[LeaseKey], lease_for: timedelta) -> Renewal:
        """Renew leases, without a wait for a job that another transaction has locked."""
        if not leases:
            return Renewal()
        rows = await self._db.rows(_RENEW, {**_keys(leases), "lease_for": lease_for})
        locked = frozenset(row.id for row in rows if row.is_locked)
        return Renewal(lost=frozenset(row.id for row in rows) - locked, locked=locked)

    async def hand_back(self, leases: Sequence[LeaseKey]) -> set[UUID]:
        """Make running jobs without an open attempt available again at once; returns the ids changed."""
        if not leases:
            return set()
        return set(await self._db.column(_HAND_BACK, _keys(leases)))

    async def defer(self, lease: LeaseKey, advance: Advance) -> bool:
        """Move a running job without an open attempt to ``scheduled`` (budget, policy); False if the lease is lost."""
        parameters = {
            "id": lease.job_id,
            "token": lease.token,
            "step": advance.step.value,
            "round": advance.round,
            "delay": advance.delay,
            "held_reason": advance.held_reason.value if advance.held_reason else None,
            "event": advance.event,
            "limited": advance.limited,
            "correction": advance.correction.model_dump_json() if advance.correction else None,
        }
        return bool(await self._db.rows(_DEFER, parameters))

    async def finish(self, finals: Sequence[FinalJob | PackedFinal]) -> set[UUID]:
        """Write final states with their records; returns the job ids written (others lost their lease)."""
        if not finals:
            return set()
        rows = [final.columns if isinstance(final, PackedFinal) else final_columns(final) for final in finals]
        columns = {name: [row[name] for row in rows] for name in _FINAL_COLUMNS}
        return set(await self._db.column(_FINISH, columns))


_FINAL_COLUMNS = ("token", "step", "state", "outcome", "standing", *_STORED_TYPES)


def final_columns(final: FinalJob) -> dict[str, Any]:
    """The values of a final write in the ledger."""
    stored = split_record(final.record, final.job.stored)
    columns = {
        "token": final.job.token,
        "step": final.job.step.value,
        "state": final.state.value,
        "outcome": final.outcome.value if final.outcome else None,
        "standing": final.record.grounding.standing if final.record.grounding else None,
        "attempt_id": stored.attempt_id,
        "frame": stored.frame,
    }
    for name in _ARRAY_TYPES:
        encode = _ENCODERS.get(name, _as_it_is)
        columns[name] = stored.changes[name] if name in stored.changes else encode(getattr(final.record, name))
    return columns


@dataclass(frozen=True, slots=True)
class LeasedRow:
    """A leased job as its row lies in the ledger; ``read`` may be called in another process."""

    names: tuple[str, ...]
    values: tuple[Any, ...]
    job_id: UUID
    tenant: str
    token: UUID
    priority: int
    rescues: int
    request_bytes: int

    @classmethod
    def of(cls, row: Any, token: UUID) -> "LeasedRow":
        """Of a row of ``LEASED_JOBS``."""
        return cls(row._fields, tuple(row), row.id, row.tenant, token, row.priority, row.rescues, row.request_bytes)

    def read(self) -> Leased:
        """The job; raises ``Unreadable``."""
        job = read_job(SimpleNamespace(**dict(zip(self.names, self.values, strict=True))), self.token)
        if isinstance(job, UnreadableRow):
            raise Unreadable(job.why)
        return job


def _order(job: Lease) -> tuple[int, UUID]:
    return -job.priority, job.job_id


def _terms(
    step: Step,
    worker: str,
    lease_for: timedelta,
    limit: int,
    *,
    min_priority: int | None,
    max_priority: int | None,
    room: LeaseRoom | None,
) -> dict[str, Any]:
    """The parameters of a lease, under a new token."""
    return {
        "step": step.value,
        "line": step.value,
        "worker": worker,
        "lease_for": lease_for,
        "limit": limit,
        "token": uuid7(),
        **lease_terms(step),
        "min_priority": LEAST_PRIORITY if min_priority is None else min_priority,
        "max_priority": MOST_PRIORITY if max_priority is None else max_priority,
        "max_bytes": room.request_bytes if room else _NO_BOUND,
        "max_risk": room.risk if room else _NO_BOUND,
        "max_rescues": room.max_rescues if room else ANY_RESCUES,
    }


def _keys(leases: Sequence[LeaseKey]) -> dict[str, list[UUID]]:
    return {"ids": [lease.job_id for lease in leases], "tokens": [lease.token for lease in leases]}


def lease_terms(step: Step) -> dict[str, Any]:
    """The parameters of ``LEASED_JOBS`` for a step."""
    return {
        "purposes": PURPOSES[step],
        "answering": PURPOSES[Step.GENERATE],
        "judging": step is not Step.GENERATE,
    }


def read_job(row: Any, token: UUID) -> Leased | UnreadableRow:
    """The job of a row of ``LEASED_JOBS``, under a token."""
    return read_row(lambda row: leased_job(row, token), row, row.id)


def leased_job(row: Any, token: UUID) -> Leased:
    """The job of a row of ``LEASED_JOBS``, under a token; raises whatever a damaged row makes of it (see ``read_job``)."""
    # A request that another version stored may lack a field that this one has, or have one too many.
    own = row.contract_version == CONTRACT_VERSION
    stored = whole_request(row.head, row.request_frame)
    request = JobRequest.from_stored(stored) if own else JobRequest.model_validate(stored)
    recheck = Recheck.model_validate(row.recheck) if row.recheck is not None else None
    if recheck is not None:
        request = request.model_copy(update={"config": recheck.apply(request.config)})
    # A later run counts from its own beginning; the first from acceptance, or from when it was due.
    due = request.scheduled_at or row.not_before or row.created_at
    accepted = row.started_at if row.run > 1 else max(row.created_at, due)
    return Leased(
        **fields(
            row, "batch_id", "tenant", "position", "custom_id", "run", "round", "priority", "created_at", "deadline"
        ),
        **fields(row, "spent", "snoozes", "unknown", "attempts", "max_cost_usd", "rescues", "request_bytes"),
        job_id=row.id,
        step=Step(row.step),
        token=token,
        request=request,
        age_ms=_ms(row.now - accepted),
        waited_ms=_ms(row.now - (row.available_at or row.now)),
        limited_ms=row.limited_ms or 0.0,
        cost_usd=None if row.unpriced else row.cost_usd,
        tenant_budget=row.has_budget,
        first_opened_ago_ms=None if row.first_opened_at is None else _ms(row.now - row.first_opened_at),
        stored=None if row.attempt_id is None else _stored(row.attempt_id, row, "", row.timing_ms),
        correction=Correction.model_validate(row.correction) if row.correction is not None else None,
        recheck=recheck,
        judged=None if row.judged_id is None else _stored(row.judged_id, row, "judged_", row.judged_timing_ms),
        started_ago_ms=_ms(row.now - row.started_at),
        time_left=None if row.deadline is None else row.deadline - row.now,
        window_gap=gap_before(row.call_window, row.deadline) if row.call_window and row.deadline else timedelta(0),
        replay=None if row.replay_of is None else _replay(row.replay_of, row.replay_prompt),
    )


def _replay(job_id: UUID, prompt: Any) -> Replay:
    return Replay(job_id, None if prompt is None else Prompt.model_validate(prompt))


def _stored(attempt_id: UUID, row: Any, prefix: str, timing_ms: Any) -> StoredCompletion:
    texts = whole_completion(row, prefix)
    return StoredCompletion(
        attempt_id=attempt_id,
        completion=Completion.model_validate(texts.parsed),
        prompt=Prompt.model_validate(texts.prompt),
        timing_ms=timing_ms or {},
    )


def _ms(duration: timedelta) -> float:
    return max(0.0, duration.total_seconds() * 1000)
