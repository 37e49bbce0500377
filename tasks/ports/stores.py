"""The ledger as a few stores, one per kind of reader, and the journal that commits single rows in groups."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

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
    FinalFacts,
    FinalJob,
    LeaseKey,
    NewBatch,
    NewJob,
    PackedFinal,
    Receipt,
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
    """Moves jobs that a worker holds; a token fences every write."""

    async def fail_unreadable(self, rows: Sequence[UnreadableRow], tokens: Sequence[UUID]) -> None:
        """End jobs whose rows can't be read as ``unreadable``, each with its cause; they run under one of these tokens."""

    async def defer(self, lease: LeaseKey, advance: Advance) -> bool:
        """Move a running job without an open attempt to ``scheduled`` (budget, policy); False if the lease is lost."""


class Reading(Protocol):
    """Views of jobs and batches."""

    async def results(self, job_ids: Sequence[UUID]) -> list[StoredResult]:
        """The results of the jobs that exist among ``job_ids``, in that order: as ``result_of`` makes them of views."""


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
        """Finish one job, and publish its result if it was still ours: then True."""

    async def find_verdicts(self, query: VerdictQuery) -> Mapping[bytes, CachedVerdict]:
        """Verdicts of judges by key."""

    async def store_verdicts(self, verdicts: NewVerdicts) -> None:
        """Keep verdicts for the batch."""
