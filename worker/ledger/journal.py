"""The journal: the ledger's hot verbs for one job at a time, committed in groups; answers survive a ledger that is away."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from itertools import takewhile
from time import monotonic
from typing import Protocol
from uuid import UUID

from tasks.errors import Unstorable
from tasks.ports import (
    ClosedAttempt,
    FinalJob,
    HeardBefore,
    HeardQuery,
    LeaseKey,
    Ledger,
    NewAttempt,
    NewlyHeard,
    Opened,
    Shared,
    Wanted,
)
from worker.ledger.group_commit import GroupCommit

log = logging.getLogger(__name__)

FINAL_WAIT = timedelta(milliseconds=50)
"""Finals gather a little longer: nobody works on while they wait, and a check that is slow would send them singly."""

KEEP_AFTER_S = 1.0
"""Seconds that an answer waits for the ledger before it is brought to disk. Not by the ledger's own word: a server that is
gone is noticed only when a connection times out."""

KEEP_EVERY_S = 0.25
"""Seconds between writes to the spool: each is one fsync, whatever the number of answers."""


SurelyHeld = Callable[[LeaseKey, float], bool]
"""Whether a lease that the ledger confirmed at a time (monotonic) can't have run out since."""


class Keeping(Protocol):
    """Where answers are kept while the ledger is away (see ``worker.spool.Spool``)."""

    async def keep(self, rows: Sequence[ClosedAttempt]) -> None:
        """Bring answers to disk; raises ``OSError``."""
        ...

    def clear(self) -> None:
        """Forget them: all are in the ledger."""
        ...

    def leave(self) -> None:
        """End; what is kept is for the next process."""
        ...


class LedgerJournal:
    """``tasks.ports.Journal`` by group commit over a ledger.

    With a spool, closed attempts that the ledger does not take within a second are brought to disk, so that an answer
    that was paid for outlives this process too.
    """

    def __init__(self, ledger: Ledger, spool: Keeping | None = None, *, surely_held: SurelyHeld | None = None) -> None:
        """Without ``surely_held`` every lease is taken to be ours however late the ledger's word comes."""
        self._ledger = ledger
        self._spool = spool
        self._surely_held = surely_held
        self._opens = GroupCommit[NewAttempt, Opened]("opened attempts", ledger.open_attempts)
        self._shares = GroupCommit[Wanted, Shared]("shared answers", ledger.share)
        self._closes = GroupCommit[ClosedAttempt, bool]("closed attempts", self._close)
        self._finals = GroupCommit[FinalJob, bool]("final jobs", self._finish, wait=FINAL_WAIT)
        # Somebody waits for these: what comes in the same turn of the loop goes together, and nothing waits for more.
        self._asks = GroupCommit[HeardQuery, Mapping[bytes, HeardBefore]](
            "questions of what was heard", ledger.heard_before, wait=timedelta(0)
        )
        self._notes = GroupCommit[NewlyHeard, None]("heard verdicts", self._note, wait=timedelta(0))
        self._unwritten: dict[UUID, tuple[float, ClosedAttempt]] = {}
        """Since when, oldest first."""
        self._kept: set[UUID] = set()
        self._keeping: asyncio.Task[None] | None = None

    async def open_attempt(self, attempt: NewAttempt) -> Opened:
        """Open one attempt."""
        asked = monotonic()
        opened = await self._opens.put(attempt)
        if opened is not Opened.OPENED or self._surely_held is None:
            return opened
        return opened if self._surely_held(LeaseKey(attempt.job_id, attempt.token), asked) else Opened.STALE

    async def share(self, wanted: Wanted) -> Shared:
        """Look for the answer of an identical call, and take it."""
        return await self._shares.put(wanted)

    async def close_attempt(self, closed: ClosedAttempt) -> bool:
        """Close one attempt; True if the job advanced."""
        self._unwritten[closed.id] = (monotonic(), closed)
        if self._keeping is None and self._spool is not None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep(self._spool), name="spool")
        return await self._closes.put(closed)

    async def finish(self, final: FinalJob) -> bool:
        """Finish one job; True if it was still ours."""
        return await self._finals.put(final)

    async def heard_before(self, query: HeardQuery) -> Mapping[bytes, HeardBefore]:
        """What judges said of these keys."""
        return await self._asks.put(query)

    async def note_heard(self, heard: NewlyHeard) -> None:
        """Let the batch remember what was heard."""
        await self._notes.put(heard)

    async def _note(self, rows: Sequence[NewlyHeard]) -> list[None]:
        await self._ledger.note_heard(rows)
        return [None] * len(rows)

    async def _close(self, rows: Sequence[ClosedAttempt]) -> list[bool]:
        try:
            advanced = await self._ledger.close_attempts(rows)
        except Unstorable:
            if len(rows) == 1:
                self._written(rows)
            raise
        self._written(rows)
        return [row.job_id in advanced for row in rows]

    async def _finish(self, rows: Sequence[FinalJob]) -> list[bool]:
        finished = await self._ledger.finish(rows)
        return [row.job_id in finished for row in rows]

    # ---- while the ledger is away ----

    def _written(self, rows: Sequence[ClosedAttempt]) -> None:
        for row in rows:
            self._unwritten.pop(row.id, None)
            self._kept.discard(row.id)

    async def _keep(self, spool: Keeping) -> None:
        """Bring to disk what the ledger does not take, and remove it when the ledger has all of it."""
        on_disk = False
        while True:
            await asyncio.sleep(KEEP_EVERY_S)
            overdue = self._overdue()
            if overdue:
                try:
                    await spool.keep(overdue)
                except OSError as error:
                    log.error("%d answers are only in memory: the spool can't be written: %s", len(overdue), error)  # noqa: TRY400 - the reason is the message
                else:
                    on_disk = True
                    # What was written to the ledger meanwhile needs no keeping.
                    self._kept.update(row.id for row in overdue if row.id in self._unwritten)
                    log.warning("%d answers are kept on disk until the ledger is back", len(self._kept))
            elif on_disk and not self._kept:
                spool.clear()
                on_disk = False

    def _overdue(self) -> list[ClosedAttempt]:
        before = monotonic() - KEEP_AFTER_S
        waiting = takewhile(lambda entry: entry[0] < before, self._unwritten.values())
        return [row for _, row in waiting if row.id not in self._kept]

    async def close(self) -> None:
        """Commit what waits. Cut off before the end, what is kept on disk stays there."""
        try:
            for group in (self._opens, self._shares, self._closes, self._finals, self._asks, self._notes):
                await group.close()
            if self._spool is not None:
                self._spool.clear()
        finally:
            if self._keeping is not None:
                self._keeping.cancel()
            if self._spool is not None:
                self._spool.leave()
