"""The ledger as a few stores, one per kind of reader, and the journal that commits single rows in groups."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Protocol
from uuid import UUID

from schemas.batch import BatchStatus
from schemas.claim_error import ErrorKind
from schemas.job import Recheck
from schemas.states import HeldReason, Step
from tasks.ports.attempt_rows import (
    Advance,
    CachedVerdict,
    CacheLookup,
    CacheResult,
    ClosedAttempt,
    NewAttempt,
    NewVerdicts,
    OnLost,
    Opened,
    VerdictQuery,
)
from tasks.ports.rows import (
    BatchCounts,
    FinalFacts,
    FinalJob,
    InputLine,
    JobDetail,
    JobView,
    Lease,
    Leased,
    LeaseKey,
    LeaseRoom,
    NewBatch,
    NewJob,
    OnPage,
    Outlook,
    PackedFinal,
    Receipt,
    Refused,
    Renewal,
    RepublishPage,
    ResultLine,
    StoredResult,
    UnreadableRow,
    no_page,
)
from tasks.scheduling.defaults import MAX_RESCUES

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
    ) -> list[Leased]:
        """Take up to ``limit`` available jobs of a step: those among ``ids``, or by priority when ids is None.

        Skips jobs that others hold, that are not available, or are past their deadline; takes no more than ``room`` allows.
        A job whose row can't be read fails at once (``fail_unreadable``), and is left out.
        """

    async def fail_unreadable(self, rows: Sequence[UnreadableRow], tokens: Sequence[UUID]) -> None:
        """End jobs whose rows can't be read as ``unreadable``, each with its cause; they run under one of these tokens."""

    async def lease_unread(
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
    ) -> Sequence[Lease]:
        """Take jobs as ``lease`` does, whose rows another process reads."""

    async def renew(self, leases: Sequence[LeaseKey], lease_for: timedelta) -> Renewal:
        """Renew leases, without a wait for a job that another transaction has locked."""

    async def hand_back(self, leases: Sequence[LeaseKey]) -> set[UUID]:
        """Make running jobs without an open attempt available again at once; returns the ids changed."""

    async def defer(self, lease: LeaseKey, advance: Advance) -> bool:
        """Move a running job without an open attempt to ``scheduled`` (budget, policy); False if the lease is lost."""

    async def finish(self, finals: Sequence[FinalJob | PackedFinal]) -> set[UUID]:
        """Write final states with their records; returns the job ids written (others lost their lease)."""


class Attempts(Protocol):
    """Records every paid call, before it is made and after it."""

    async def open_attempts(self, attempts: Sequence[NewAttempt]) -> list[Opened]:
        """Write attempts before their calls; one status per attempt, in order. Reserves budget in the same statement.

        Only under a lease that holds: of a rescue, a cancel and this, whichever comes first wins. In order, what does not
        fit into a budget leaves its room to the next; its job is held (``ON_HOLD``) until money comes back or the budget is
        raised. A call that reserves nothing always fits.
        Of identical calls that may wait for each other (``share.wait``) one is opened, also when they come at once.
        """

    async def close_attempts(self, closed: Sequence[ClosedAttempt], on_lost: OnLost | None = None) -> set[UUID]:
        """Close attempts, store answers, charge budgets, and advance jobs; returns the job ids that advanced.

        A late answer releases the job that is held for its unknown outcome. The first completion of a (run, round, purpose)
        wins; a later one is stored beside it. Closing again is harmless: only an open or ``unknown`` attempt changes.

        An attempt that the ledger does not know is put back first, see ``put_back``. Paid ones of which it does not know the job either,
        though nobody deleted it, go to ``on_lost``; by default they are logged.
        """

    async def put_back(self, attempts: Sequence[NewAttempt]) -> None:
        """Open attempts again that a ledger lost with its last commits, and lease their jobs again where these are available.

        Known attempts stay as they are; those of unknown jobs are passed over. No budget refuses them: the calls were made.
        """


class AnswerCache(Protocol):
    """Answers and verdicts of earlier calls, so that no identical call is made again."""

    async def share(self, lookups: Sequence[CacheLookup]) -> list[CacheResult]:
        """Give jobs the newest whole answer of an identical call of their tenant, where one is stored; in order.

        The job gets an attempt of its own that is closed as ``ok``, cost nothing and names the call it is from, and a
        copy of the answer; and goes on to its check. Never the answer of another tenant, of a job that is erased, an
        answer older than ``share.within``, a refused one or one that was cut off, nor one that itself was taken: ages
        count from the call. A call under way is reported until it has been so for ``share.wait``, unless its job would
        have passed its deadline by then, or three identical calls failed already: then each makes its own.
        """

    async def find_verdicts(self, queries: Sequence[VerdictQuery]) -> list[dict[bytes, CachedVerdict]]:
        """Verdicts of judges by key, one mapping per query, in order; keys without a verdict are left out."""

    async def store_verdicts(self, verdicts: Sequence[NewVerdicts]) -> None:
        """Keep verdicts for the batches of these attempts; the first verdict of a key stays.

        An attempt without a completion (never answered, erased, pruned) is passed over. A verdict goes with its completion.
        """


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


class Actions(Protocol):
    """Actions of an operator on jobs and batches.

    Each goes through many jobs in pages, every page a short transaction of its own, and reports it to ``on_page``. An action
    that ends midway leaves whole pages behind; the same call again does the rest. A job whose row makes the statement fail
    keeps no other from being changed: it is logged, and refused in its page.
    """

    async def cancel(self, job_ids: Sequence[UUID], actor: str, on_page: OnPage = no_page) -> list[UUID]:
        """Cancel jobs that are not final, with a record; returns the ids changed."""

    async def cancel_batch(self, batch_id: UUID, actor: str, on_page: OnPage = no_page) -> list[UUID]:
        """Cancel all jobs of a batch that are not final; raises ``NotFound``.

        The batch is marked first: until the last page is done no job of it is leased.
        """

    async def retry(self, job_ids: Sequence[UUID], actor: str, on_page: OnPage = no_page) -> list[UUID]:
        """Start a new run of final jobs whose content is not erased; returns the ids changed."""

    async def recheck(
        self, job_ids: Sequence[UUID], recheck: Recheck, actor: str, on_page: OnPage = no_page
    ) -> list[UUID]:
        """Start a new run of completed or failed jobs that have an answer (not an erased one), at its check.

        Nothing is generated. The answer is the latest one of the round that the job ended in, or the one given with the job. Returns the ids
        changed.
        """

    async def release(self, batch_id: UUID | None, reason: HeldReason, actor: str, on_page: OnPage = no_page) -> int:
        """Release held jobs of a batch (or all) that are held for this reason; returns how many."""

    async def pause_batch(self, batch_id: UUID, actor: str, *, paused: bool, on_page: OnPage = no_page) -> int:
        """Pause a batch (holds its scheduled and available jobs) or resume it (releases them); returns how many.

        Raises ``NotFound``.
        """

    async def set_budget(self, batch_id: UUID, max_cost_usd: Decimal | None, actor: str) -> None:
        """Change a batch's ceiling and release the jobs held for it.

        What it has no money for is held again.
        """


class Reading(Protocol):
    """Views of jobs and batches."""

    async def views(self, job_ids: Sequence[UUID]) -> list[JobView]:
        """The jobs that exist among ``job_ids``, in that order."""

    def batch_views(self, batch_id: UUID) -> AsyncIterator[JobView]:
        """All jobs of a batch by position, streamed."""

    async def results(self, job_ids: Sequence[UUID]) -> list[StoredResult]:
        """The results of the jobs that exist among ``job_ids``, in that order: as ``result_of`` makes them of views."""

    def batch_results(self, batch_id: UUID) -> AsyncIterator[list[ResultLine]]:
        """The results of all jobs of a batch by position, as lines of JSON, streamed in pages; none is empty."""

    def input_lines(self, batch_id: UUID) -> AsyncIterator[InputLine]:
        """Entries of a batch that are no jobs of it, by position, streamed: refused, or known from before.

        Kept until the batch is erased. Long texts are cut.
        """

    async def batch_status(self, batch_id: UUID) -> BatchStatus:
        """Counts and cost of a batch; raises ``NotFound``."""

    async def error_kinds(self, batch_id: UUID) -> dict[ErrorKind, int]:
        """The sum of ``grounding.errors`` over the answers of a batch, most frequent first."""

    async def batches(self, limit: int, before: UUID | None = None) -> list[BatchStatus]:
        """The newest batches, newest first; with ``before``, the next ones after that batch of the list."""

    async def job_detail(self, job_id: UUID) -> JobDetail:
        """Everything known of a job; raises ``NotFound``."""

    async def locate(self, batch_id: UUID, name: str) -> UUID:
        """The id of the job of a batch with this custom id, else at this position (from 0); raises ``NotFound``."""


@dataclass(frozen=True)
class Ledger:
    """The truth about jobs, as stores over one database.

    Every method but those of ``actions`` is one transaction; methods that take a list are the unit of group commit. All raise
    ``LedgerUnavailable`` when the database can't be reached.
    """

    submission: Submission
    queue: Queue
    attempts: Attempts
    cache: AnswerCache
    duties: Duties
    outbox: Outbox
    actions: Actions
    reading: Reading


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
