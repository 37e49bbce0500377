"""The ledger as a few stores, one per kind of reader, and the journal that commits single rows in groups."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from schemas.states import HeldReason, Step
from tasks.defaults import MAX_RESCUES
from tasks.errors import Refused
from tasks.ports.attempt_rows import (
    Advance,
    CachedVerdict,
    CacheLookup,
    CacheResult,
    ClosedAttempt,
    NewAttempt,
    NewVerdicts,
    Opened,
    VerdictQuery,
)
from tasks.ports.rows import (
    BatchCounts,
    FinalFacts,
    FinalJob,
    JobView,
    Lease,
    LeaseKey,
    LeaseRoom,
    NewBatch,
    NewJob,
    Outlook,
    PackedFinal,
    Receipt,
    RepublishPage,
    StoredResult,
    UnreadableRow,
)

LAST_RESCUES = 2
"""Further tries that a worker has to end such a job with the answer that was paid for; then it fails without."""


class Submission(Protocol):
    """Accepts batches with their jobs."""

    async def submit(
        self,
        batch: NewBatch,
        chunks: Iterable[Sequence[NewJob]],
        *,
        strict: bool = False,
        refused: Iterable[Refused] = (),
    ) -> Receipt:
        """Write a batch with the jobs that can be written, in one transaction; the others are refused by name.

        Refused is a job whose idempotency key names a different request, or whose ``custom_id`` (of the batch),
        ``message_id`` (of the tenant) or id another job has. With ``strict``, or where nothing else is left, nothing
        is written: raises ``JobsRefused``. Where every job is known by its own key no batch is written. With the batch
        is written which of its lines are no jobs of it (see ``Reading.input_lines``); ``refused`` are those that the
        caller refused, read once the chunks are.

        A known ``batch.key`` writes nothing and returns the old jobs; raises ``IdempotencyConflict`` when these are
        other jobs. Raises ``QueueFull`` when the tenant would have more than ``batch.max_queued`` jobs that are not final.
        """


class Queue(Protocol):
    """Lends jobs to workers for a time; a token fences every write of the holder."""

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
        """Take up to ``limit`` available jobs of a step: those among ``ids``, or by priority when ids is None.

        Skips jobs that others hold, that are not available, or are past their deadline; takes no more than ``room`` allows.
        A job whose row can't be read fails at once (``fail_unreadable``), and is left out; with ``unread`` another process reads them.
        """

    async def fail_unreadable(self, rows: Sequence[UnreadableRow], tokens: Sequence[UUID]) -> None:
        """End jobs whose rows can't be read as ``unreadable``, each with its cause; they run under one of these tokens."""

    async def hand_back(self, leases: Sequence[LeaseKey]) -> set[UUID]:
        """Make running jobs without an open attempt available again at once; returns the ids changed."""

    async def defer(self, lease: LeaseKey, advance: Advance) -> bool:
        """Move a running job without an open attempt to ``scheduled`` (budget, policy); False if the lease is lost."""


class Duties(Protocol):
    """Statements of the worker that leads: each changes due jobs, at most ``limit`` of them."""

    async def attend(
        self,
        worker: str,
        lead_for: timedelta,
        publish_after: timedelta,
        check_backlog: int,
        *,
        broker: bool | None = None,
        may_lead: bool = True,
    ) -> Outlook:
        """Take or renew the lead of the duties if it is free or this worker's; returns which duties have work.

        Args:
            worker: its name.
            lead_for: how long it leads unless it attends again.
            publish_after: how old a final job is before its result counts as unpublished.
            check_backlog: answers that may wait for their check before no more are to be generated.
            broker: whether this worker reaches Redis, if it knows. One that does takes over from one that does not.
            may_lead: False: only returns what there is to know.
        """

    async def urgent_waits(self, older_than: timedelta) -> bool:
        """True if an urgent job was available for so long."""

    async def resign(self, worker: str) -> None:
        """Let another worker lead at once, if this one does."""

    async def promote(self, limit: int) -> int:
        """Make due, unheld scheduled jobs available; returns how many."""

    async def expire(self, limit: int) -> list[UUID]:
        """Finish jobs past their deadline as ``expired`` with a record; returns their ids.

        One that was asked again has an answer: it returns to the check of its best one, and loses its deadline.
        """

    async def take_hints(
        self, step: Step, depth: int, limit: int, again_after: timedelta, *, min_priority: int | None = None
    ) -> list[tuple[UUID, int]]:
        """Choose available jobs to hint, by priority, tenant fairness and deadline, and note it (``hinted_at``).

        Tops up to ``depth`` jobs hinted within ``again_after``; older hints count as lost. Returns (id, priority).
        """

    async def reassign(self, step: Step, to: Step, limit: int) -> list[UUID]:
        """Leave available jobs of a step to another one, with an event ``unserved``; returns the ids.

        None while a worker is known to serve the step.
        """

    async def close_windows(self) -> int:
        """Note the next window of batches whose window is over, and have their jobs wait for it; returns how many jobs.

        No call begins outside of a window in any case; this keeps jobs from being leased only to learn so.
        """

    async def settle_budgets(self, rows: int) -> int:
        """Let jobs go on that wait for money, as far as there is some; returns how many jobs were changed.

        In a batch without money hold those that did not begin, ``rows`` at a time: no call of theirs could be paid for.
        Closing an attempt lets jobs go on by itself; this is for what a crash left undone.
        """

    async def refresh_statistics(self) -> list[str]:
        """Have the database count again the tables that have more than doubled since it did; returns their names."""

    async def fold_counts(self, rows: int) -> int:
        """Sum up changes of the batches' counts, from about so many; no count differs. Returns how many rows it read."""

    async def batch_counts(self, batch_ids: Sequence[UUID], newest: int) -> list[BatchCounts]:
        """Count the jobs of these batches and of the ``newest`` ones, oldest first."""

    async def backlog(self, step: Step, at_most: int) -> int:
        """Count the jobs that are available for a step, up to ``at_most``."""

    async def rescue(self, limit: int, unknown_reason: HeldReason | None, max_rescues: int = MAX_RESCUES) -> list[UUID]:
        """Take jobs whose lease ran out from their holders.

        Closes their open attempts as ``unknown`` and makes the jobs available, or holds those that had an open
        attempt when ``unknown_reason`` is given. A job without an answer that was rescued ``max_rescues`` times in this
        step and round fails instead (one with an answer, ``LAST_RESCUES`` later: its worker ends it before that).
        Returns the job ids. Closes also what a worker that died left open of
        jobs that have been final for a minute (cancelled or expired during a call).
        """


class Outbox(Protocol):
    """Results on their way from the ledger to the result backend."""

    async def unpublished(self, limit: int, older_than: timedelta) -> list[JobView]:
        """Final jobs whose result is not in the result backend, oldest first, with as much as a result is made of.

        A page of bounded bytes. A job that can't be read is set aside.
        """

    async def mark_published(self, results: Sequence[tuple[UUID, int]]) -> list[tuple[UUID, int]]:
        """Note that the results of these jobs and runs are in the result backend.

        Returns those that must not stay there: their job is erased, or has another run by now.
        """

    async def set_aside(self, job_id: UUID, error: Exception) -> None:
        """Keep a job whose result can't be published out of the others' way; it is tried again ever later."""

    async def begin_republishing(self, finished_within: timedelta) -> bool:
        """Begin to publish all results finished within that time again (Redis lost its data), and forget all hints.

        Starts again where it was under way. False for the first time in the life of the ledger: a new Redis lost nothing.
        """

    async def republish_page(self, limit: int) -> RepublishPage | None:
        """The next results to publish again; None when there is nothing to publish again."""

    async def note_republished(self, page: RepublishPage) -> None:
        """Note that a page is in the result backend: the next one follows it."""


class Reading(Protocol):
    """Views of jobs and batches."""

    async def results(self, job_ids: Sequence[UUID]) -> list[StoredResult]:
        """The results of the jobs that exist among ``job_ids``, in that order: as ``result_of`` makes them of views."""


class Ledger(Protocol):
    """The stores of the ledger that dispatch works on; every method is one transaction, and raises ``LedgerUnavailable``."""

    @property
    def duties(self) -> Duties:
        """Statements of the worker that leads."""

    @property
    def outbox(self) -> Outbox:
        """Results to publish."""


Observation = ClosedAttempt | CacheResult | FinalFacts
"""What became of a call or a job, for figures: each is told once, after the ledger has it."""


class Journal(Protocol):
    """Single-row verbs whose rows are committed in groups; each returns when its row is committed.

    A row that can't be stored raises ``Unstorable`` to its own caller only.
    """

    async def open_attempt(self, attempt: NewAttempt) -> Opened:
        """Open one attempt."""

    async def share(self, lookups: CacheLookup) -> CacheResult:
        """Look for the answer of an identical call, and take it."""

    async def close_attempt(self, closed: ClosedAttempt) -> bool:
        """Close one attempt; True if the job advanced."""

    def hand_over(self, attempt_id: UUID) -> None:
        """Leave an open attempt to whoever closes it: it is not this process's call any more."""

    async def finish(self, final: FinalJob | PackedFinal) -> bool:
        """Finish one job; True if it was still ours."""

    async def find_verdicts(self, query: VerdictQuery) -> Mapping[bytes, CachedVerdict]:
        """Verdicts of judges by key."""

    async def store_verdicts(self, verdicts: NewVerdicts) -> None:
        """Keep verdicts for the batch."""
