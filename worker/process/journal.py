"""The journal of a process's jobs: the ledger's verbs for one job at a time, committed in groups.

Answers survive a ledger that is away.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import takewhile
from time import monotonic
from uuid import UUID

from tasks.errors import LedgerError, NightdeskError, Unstorable
from tasks.ports import (
    CachedVerdict,
    CacheLookup,
    CacheResult,
    CacheStatus,
    ClosedAttempt,
    FinalJob,
    LeaseKey,
    NewAttempt,
    NewVerdicts,
    Observation,
    Opened,
    PackedFinal,
    VerdictQuery,
)
from worker.batching import BATCH_ROWS, Batcher, OnError
from worker.cancellation import is_set_within
from worker.ledger.postgres import PostgresLedger
from worker.process.spool import Spool

log = logging.getLogger(__name__)

CALL_WAIT = timedelta(milliseconds=40)
"""Longest time that a call to be opened, or closed, waits for others: a statement for two costs the process and PostgreSQL some
2 ms, one for 25 costs 5 to 7."""

FINAL_WAIT = timedelta(milliseconds=100)
"""The same of finals, which nothing waits for: checks end one by one, and a statement for four costs almost that for fifty."""

KEEP_AFTER_S = 1.0
"""Seconds that an answer waits for the ledger before it is brought to disk. Not by the ledger's own word: a server that is
gone is noticed only when a connection times out."""

KEEP_EVERY_S = 0.25
"""Seconds between writes to the spool: each is one fsync, whatever the number of answers."""


SurelyHeld = Callable[[LeaseKey, float], bool]
"""See ``HeldLeases.surely_held``."""


class LedgerJournal:
    """``tasks.ports.Journal`` over a ledger, in batches that are sent until they are stored.

    With a spool, closed attempts that the ledger does not take within a second are brought to disk, so that an answer
    that was paid for outlives this process too. They stay there until the ledger has all of them; and, like those that it took at once,
    until it can't lose them again.
    """

    def __init__(
        self,
        ledger: PostgresLedger,
        spool: Spool | None = None,
        *,
        surely_held: SurelyHeld = lambda *_: True,
        observe: Callable[[Observation], None] = lambda _: None,
        publish: Callable[[FinalJob | PackedFinal], None] = lambda _: None,
        kept_for: timedelta = timedelta(0),
        confirmed_at: Callable[[], float] = monotonic,
    ) -> None:
        """Makes the journal; nothing is opened.

        Without ``surely_held`` every lease is taken to be ours however late the ledger's word comes. ``observe`` gets what
        the ledger has stored, ``publish`` each job that became final here; they must neither wait nor fail. The spool keeps stored answers, too, for ``kept_for``: the time within
        which a PostgreSQL that fails over may lose a commit. ``confirmed_at`` tells when the ledger was last seen on the same PostgreSQL.
        """
        self._ledger = ledger
        self._observe = observe
        self._publish = publish
        self._spool = spool
        self._surely_held = surely_held
        self._opens = Batcher[NewAttempt, Opened]("opened attempts", ledger.attempts.open_attempts, wait=CALL_WAIT)
        self._shares = Batcher[CacheLookup, CacheResult]("shared answers", ledger.cache.share)
        self._closes = Batcher[ClosedAttempt, bool]("closed attempts", self._close, wait=CALL_WAIT)
        self._finals = Batcher[FinalJob | PackedFinal, bool]("final jobs", self._finish, wait=FINAL_WAIT)
        # A check goes on without these. Somebody waits for them: what comes in the same turn of the loop goes together, and nothing waits for more.
        self._verdict_queries = Batcher[VerdictQuery, Mapping[bytes, CachedVerdict]](
            "lookups of cached verdicts", ledger.cache.find_verdicts, on_error=OnError.WAIT, wait=timedelta(0)
        )
        self._new_verdicts = Batcher[NewVerdicts, None](
            "new verdicts", ledger.cache.store_verdicts, on_error=OnError.WAIT, wait=timedelta(0)
        )
        self._unwritten: dict[UUID, tuple[float, ClosedAttempt]] = {}
        """Since when, oldest first."""
        self._spooled: set[UUID] = set()
        self._on_disk = False
        """The spool holds answers, be it some that were written since."""
        self._kept_for_s = kept_for.total_seconds()
        self._confirmed_at = confirmed_at
        self._stored: list[ClosedAttempt] = []
        """To be spooled, because the ledger may lose them again."""
        self._lost: list[ClosedAttempt] = []
        """To be spooled, because the ledger knows nothing of their jobs."""
        self._open: dict[UUID, NewAttempt] = {}
        """Calls under way."""
        self._keeping: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()

    async def open_attempt(self, attempt: NewAttempt) -> Opened:
        """Open one attempt."""
        asked_at = monotonic()
        opened = await self._opens.send(attempt)
        if opened in {Opened.OPENED, Opened.STALE}:
            self._open[attempt.id] = attempt
        if opened is not Opened.OPENED or self._surely_held(LeaseKey(attempt.job_id, attempt.token), asked_at):
            return opened
        return Opened.STALE

    async def share(self, lookup: CacheLookup) -> CacheResult:
        """Look for the answer of an identical call, and take it."""
        result = await self._shares.send(lookup)
        if result.status is CacheStatus.REUSED:
            self._observe(result)
        return result

    def hand_over(self, attempt_id: UUID) -> None:
        """Leave an attempt to whoever closes it."""
        self._open.pop(attempt_id, None)

    async def close_attempt(self, closed: ClosedAttempt) -> bool:
        """Close one attempt; True if the job advanced."""
        self._unwritten[closed.id] = (monotonic(), closed)
        self._open.pop(closed.id, None)
        if self._keeping is None and self._spool is not None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep(self._spool), name="spool")
        return await self._closes.send(closed)

    async def finish(self, final: FinalJob | PackedFinal) -> bool:
        """Finish one job, and publish its result if it was still ours: then True."""
        finished = await self._finals.send(final)
        if finished:
            self._publish(final)
        return finished

    async def find_verdicts(self, query: VerdictQuery) -> Mapping[bytes, CachedVerdict]:
        """Verdicts of judges on these keys."""
        return await self._verdict_queries.send(query)

    async def store_verdicts(self, verdicts: NewVerdicts) -> None:
        """Keeps verdicts for later claims of the batch."""
        await self._new_verdicts.send(verdicts)

    async def _close(self, rows: Sequence[ClosedAttempt]) -> list[bool]:
        try:
            advanced = await self._ledger.attempts.close_attempts(rows, self._lost.extend)
        except Unstorable:
            if len(rows) == 1:
                # Its caller closes it without the answer.
                self._mark_stored(rows)
            raise
        except NightdeskError:
            raise
        except Exception as error:
            # A defect of ours is no reason to give up an answer that was paid for: a later version may store it.
            log.exception("%d closed attempts could not be written", len(rows))
            raise LedgerError(f"{type(error).__name__}: {error}") from error
        self._mark_stored(rows)
        for row in rows:
            self._observe(row)
        return [row.job_id in advanced for row in rows]

    async def _finish(self, rows: Sequence[FinalJob | PackedFinal]) -> list[bool]:
        finished = await self._ledger.queue.finish(rows)
        for row in rows:
            if row.facts.job_id in finished:
                self._observe(row.facts)
        return [row.facts.job_id in finished for row in rows]

    # ---- while the ledger is away ----

    def _mark_stored(self, rows: Sequence[ClosedAttempt]) -> None:
        for row in rows:
            self._unwritten.pop(row.id, None)
            if self._kept_for_s and row.id not in self._spooled:
                self._stored.append(row)
            self._spooled.discard(row.id)

    async def put_back(self, ledger: PostgresLedger) -> None:
        """Bring into a ledger that may have lost its last commits what this process knows: calls under way, and answers."""
        # Answers that wait are sent soon, and move their jobs under these leases.
        waiting = [closed.opening for _, closed in self._unwritten.values() if closed.opening is not None]
        opened = [*self._open.values(), *waiting]
        for at in range(0, len(opened), BATCH_ROWS):
            await ledger.attempts.put_back(opened[at : at + BATCH_ROWS])
        if self._spool is not None:
            await self._spool.write_again(ledger.attempts, list(self._stored), self._lost.extend)

    async def _keep(self, spool: Spool) -> None:
        """Bring to disk what the ledger does not take or may lose again, and remove it when the ledger surely has all of it."""
        while not await is_set_within(self._ending, KEEP_EVERY_S):
            try:
                if overdue := self._overdue():
                    await self._bring(spool, overdue)
                elif self._on_disk and not self._spooled:
                    spool.note_stored()
                    self._on_disk = False
                await self._bring_stored(spool)
                self._expire(spool)
            except Exception:
                # The next round tries again: without it no later answer would outlive this process.
                log.exception("the spool can't be looked after")

    async def _bring(self, spool: Spool, rows: Sequence[ClosedAttempt]) -> None:
        """Bring answers to disk."""
        try:
            await spool.keep(rows)
        except OSError as error:
            log.error("%d answers are only in memory: the spool can't be written: %s", len(rows), error)  # noqa: TRY400 - the reason is the message
        else:
            self._on_disk = True
            # What was written to the ledger meanwhile needs no keeping.
            self._spooled.update(row.id for row in rows if row.id in self._unwritten)
            if self._spooled:
                log.warning(
                    "%d answers wait on disk: the ledger has not taken them within a second", len(self._spooled)
                )

    def _expire(self, spool: Spool) -> None:
        # Not by the time that passes: while PostgreSQL is away it may be about to come back without its last commits.
        spool.expire(self._confirmed_at() - self._kept_for_s if self._kept_for_s else math.inf)

    async def _bring_stored(self, spool: Spool) -> None:
        """Bring to disk what the ledger knows nothing of, and what it may lose again."""
        if self._lost:
            await spool.keep_lost(self._lost[:])
            self._lost.clear()
        if self._stored:
            rows, self._stored = self._stored, []
            try:
                await spool.keep_stored(rows)
            except OSError as error:
                log.warning("%d stored answers have no copy on disk for a fail-over: %s", len(rows), error)

    def _overdue(self) -> list[ClosedAttempt]:
        before = monotonic() - KEEP_AFTER_S
        waiting = takewhile(lambda entry: entry[0] < before, self._unwritten.values())
        return self._not_kept(row for _, row in waiting)

    def _not_kept(self, rows: Iterable[ClosedAttempt]) -> list[ClosedAttempt]:
        return [row for row in rows if row.id not in self._spooled]

    async def close(self) -> None:
        """Commit what waits. Cut off before the end, what is not in the ledger is on disk and stays there."""
        try:
            for batches in (
                self._opens,
                self._shares,
                self._closes,
                self._finals,
                self._verdict_queries,
                self._new_verdicts,
            ):
                await batches.close()
        finally:
            if self._keeping is not None:
                # Not cancelled: a segment that is being written would be on disk without our knowing.
                self._ending.set()
                await self._keeping
            if self._spool is not None:
                await self._leave(self._spool)

    async def _leave(self, spool: Spool) -> None:
        """End with the spool: what the ledger does not have, or may lose again, is on disk."""
        await self._bring_stored(spool)
        if not self._unwritten:
            spool.note_stored()
            self._expire(spool)
            spool.leave()
            return
        if rest := self._not_kept(row for _, row in self._unwritten.values()):
            await self._bring(spool, rest)
        log.critical("%d answers are not in the ledger: the next worker of this home writes them", len(self._unwritten))
        spool.leave()
