"""Provider batches and responses in the background for people: the calls that wait, and their expected end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from schemas.generation import WINDOWS, Lane
from worker.ledger.database import Store

if TYPE_CHECKING:
    from tasks.ports.remote_batches import BatchTimes

MOST = 20
"""Batches of providers that are named."""

PROMISED = timedelta(hours=24)
"""The providers' own window."""

CANCELS_WITHIN = timedelta(minutes=15)
"""A cancel takes ten minutes at most, by OpenAI's guide."""

# Responses in the background, each a batch of its own, are counted together by model and lane.
_NOTICES = """
WITH waiting_call AS (
    SELECT r.provider, r.model, r.provider_batch_id, r.parked_at, r.provider_batch_id IS NOT DISTINCT FROM r.attempt_id AS alone
    FROM provider_batch_call r
    WHERE %(batch_id)s::uuid IS NULL
       OR (SELECT batch_id FROM job WHERE id = r.job_id) = %(batch_id)s::uuid
)
SELECT w.provider, w.model, 'provider_batch' AS lane, w.calls, w.parked_at, b.remote_id, b.intended_at, b.due_at, b.spilled_at,
       b.cancelled_at, b.detail - 'trouble' AS detail, b.detail #>> '{trouble,cause}' AS trouble, b.next_at, nightdesk_now() AS now
FROM (
    SELECT provider, model, provider_batch_id, count(*) AS calls, min(parked_at) AS parked_at FROM waiting_call
    WHERE NOT alone GROUP BY provider, model, provider_batch_id
) w LEFT JOIN LATERAL (SELECT * FROM provider_batch WHERE id = w.provider_batch_id OFFSET 0) b ON true
UNION ALL
SELECT w.provider, w.model, b.lane, count(*), min(w.parked_at), NULL, min(b.intended_at), min(b.due_at), min(b.spilled_at),
       min(b.cancelled_at), '{}', NULL, min(b.next_at), nightdesk_now()
-- One by one: a hash would read all responses that ended, too.
FROM waiting_call w CROSS JOIN LATERAL (SELECT * FROM provider_batch WHERE id = w.provider_batch_id OFFSET 0) b
WHERE w.alone GROUP BY w.provider, w.model, b.lane, b.spilled_at IS NULL
ORDER BY parked_at LIMIT %(most)s
"""

_SPILLED = """
SELECT count(DISTINCT e.job_id) AS jobs FROM job j JOIN job_event e ON e.job_id = j.id AND e.kind = 'spill'
WHERE j.batch_id = %(batch_id)s
"""


@dataclass(frozen=True, slots=True)
class RemoteNotice:
    """Calls that wait for a provider batch, or are in one, or are answered in a provider's background.

    Attributes:
        lane: that of the calls.
        remote_id: the provider's id; None: it is not created yet, or not noted.
        sent_at: since when the batch is being created, or is with the provider; None: the calls wait to be sent.
        age: since then, or since the first call was parked.
        expected_at: its end by the times of earlier ones; None: none was observed.
        due_at: the earliest deadline of jobs that leave it in time.
        spilled_at: when it was cancelled for that deadline.
        detail: state and counts in the provider's words.
        trouble: the cause for which the last look at it failed; None: it did not.
        next_look_at: when it is looked at again.
    """

    provider: str
    model: str
    lane: Lane
    calls: int
    remote_id: str | None
    sent_at: datetime | None
    age: timedelta
    expected_at: datetime | None
    due_at: datetime | None
    spilled_at: datetime | None
    since_cancel: timedelta | None
    detail: Mapping[str, Any]
    trouble: str | None = None
    next_look_at: datetime | None = None

    @property
    def event(self) -> str:
        """One sentence."""
        # As below: only where calls wait.
        from tasks.lanes.choice import in_words  # noqa: PLC0415

        calls, have = f"{self.calls:,} calls", "have"
        if self.calls == 1:
            calls, have = "1 call", "has"
        if self.sent_at is None:
            return (
                f"{calls} to {self.provider}:{self.model} {have} waited for {in_words(self.age)} to be sent in a batch"
            )
        name = self.remote_id or "that is being created"
        text = f"{calls} {have} been in the {self.provider} batch {name} for {in_words(self.age)}"
        means = "promised"
        if self.lane in WINDOWS:
            means = "meant to end"
            text = f"{calls} to {self.provider}:{self.model} {have} been in the lane {self.lane.value} for {in_words(self.age)}"
        if self.spilled_at is not None:
            what = "they are" if self.lane in WINDOWS else "it is"
            return (
                f"{text}; {what} cancelled for the deadline {_clock(self.due_at)}, what is not done is called in time"
            )
        if self.trouble is not None:
            return f"{text}; it can't be read: {self.trouble}; looked at again at {_clock(self.next_look_at)}"
        if self.overdue:
            text = f"{text}, longer than earlier ones"
            return text if self.next_look_at is None else f"{text}; looked at again at {_clock(self.next_look_at)}"
        if self.expected_at is None:
            return f"{text}, {means} by {_clock(self.sent_at + WINDOWS.get(self.lane, PROMISED))}"
        return f"{text}, expected to end about {_clock(self.expected_at)}"

    @property
    def overdue(self) -> bool:
        """True if the moment at which it was expected to end is over."""
        return self.expected_at is not None and self.sent_at is not None and self.sent_at + self.age > self.expected_at

    @property
    def late(self) -> bool:
        """True for a batch that should have ended, or be created, or be cancelled by now."""
        if self.sent_at is None:
            return self.age > timedelta(hours=1)
        return self.age > WINDOWS.get(self.lane, PROMISED) or (
            self.since_cancel is not None and self.since_cancel > CANCELS_WITHIN
        )


class RemoteOverview(Store):
    """Reads provider batches for people."""

    async def notices(self, batch_id: UUID | None = None) -> Sequence[RemoteNotice]:
        """The calls that wait, of one batch of jobs or of all, by provider batch; the longest first."""
        rows = await self._db.rows(_NOTICES, {"batch_id": batch_id, "most": MOST})
        if not rows:
            return []
        # Loaded only where calls wait: few commands see some.
        from worker.ledger.provider_batches import PostgresRemoteBatches  # noqa: PLC0415

        batches = PostgresRemoteBatches(self._db)
        keys = {(row.provider, row.model, Lane(row.lane)) for row in rows}
        times = {key: await batches.times(*key) for key in keys}
        return [_notice(row, times[row.provider, row.model, Lane(row.lane)]) for row in rows]

    async def spilled(self, batch_id: UUID) -> int:
        """Number of jobs that left a provider batch for their deadline."""
        return int(await self._db.value(_SPILLED, {"batch_id": batch_id}))


def _clock(at: datetime | None) -> str:
    return at.astimezone().strftime("%m-%d %H:%M") if at else ""


def _notice(row: Any, times: "BatchTimes") -> RemoteNotice:
    from tasks.lanes.choice import expected  # noqa: PLC0415 - as above

    observed = row.intended_at is not None and times.ended_s
    return RemoteNotice(
        row.provider,
        row.model,
        Lane(row.lane),
        row.calls,
        row.remote_id,
        row.intended_at,
        row.now - (row.intended_at or row.parked_at),
        row.intended_at + expected(times, WINDOWS.get(Lane(row.lane), PROMISED))[0] if observed else None,
        row.due_at,
        row.spilled_at,
        row.now - row.cancelled_at if row.cancelled_at else None,
        row.detail or {},
        row.trouble,
        row.next_at,
    )
