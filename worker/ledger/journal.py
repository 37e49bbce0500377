"""The journal: the ledger's hot verbs for one job at a time, committed in groups; answers survive a ledger that is away."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from tasks.errors import LedgerUnavailable, Unstorable
from tasks.ports import ClosedAttempt, FinalJob, Ledger, NewAttempt, Opened
from worker.ledger.group_commit import GroupCommit

log = logging.getLogger(__name__)

FINAL_WAIT = timedelta(milliseconds=50)
"""Finals gather a little longer: nobody works on while they wait, and a check that is slow would send them singly."""

KEEP_EVERY_S = 0.25
"""Seconds between writes to the spool while the ledger is away: each is one fsync, whatever the number of answers."""


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

    With a spool, closed attempts that the ledger can't take are brought to disk within a quarter of a second, so that
    an answer that was paid for outlives this process too.
    """

    def __init__(self, ledger: Ledger, spool: Keeping | None = None) -> None:
        self._ledger = ledger
        self._spool = spool
        self._opens = GroupCommit[NewAttempt, Opened]("opened attempts", ledger.open_attempts)
        self._closes = GroupCommit[ClosedAttempt, bool]("closed attempts", self._close)
        self._finals = GroupCommit[FinalJob, bool]("final jobs", self._finish, wait=FINAL_WAIT)
        self._unwritten: dict[UUID, ClosedAttempt] = {}
        self._kept: set[UUID] = set()
        self._away = False
        self._keeping: asyncio.Task[None] | None = None

    async def open_attempt(self, attempt: NewAttempt) -> Opened:
        """Open one attempt."""
        return await self._opens.put(attempt)

    async def close_attempt(self, closed: ClosedAttempt) -> bool:
        """Close one attempt; True if the job advanced."""
        self._unwritten[closed.id] = closed
        return await self._closes.put(closed)

    async def finish(self, final: FinalJob) -> bool:
        """Finish one job; True if it was still ours."""
        return await self._finals.put(final)

    async def _close(self, rows: Sequence[ClosedAttempt]) -> list[bool]:
        try:
            advanced = await self._ledger.close_attempts(rows)
        except LedgerUnavailable:
            self._lost()
            raise
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

    def _lost(self) -> None:
        self._away = True
        if self._spool is not None and self._keeping is None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep(self._spool), name="spool")

    def _written(self, rows: Sequence[ClosedAttempt]) -> None:
        self._away = False
        for row in rows:
            self._unwritten.pop(row.id, None)
            self._kept.discard(row.id)

    async def _keep(self, spool: Keeping) -> None:
        """Bring to disk what the ledger does not take, until it has all of it."""
        while self._away or self._kept:
            fresh = [row for row in self._unwritten.values() if row.id not in self._kept] if self._away else []
            if fresh:
                try:
                    await spool.keep(fresh)
                except OSError as error:
                    log.error("%d answers are only in memory: the spool can't be written: %s", len(fresh), error)  # noqa: TRY400 - the reason is the message
                else:
                    # What was written to the ledger meanwhile needs no keeping.
                    self._kept.update(row.id for row in fresh if row.id in self._unwritten)
                    log.warning("%d answers are kept on disk until the ledger is back", len(self._kept))
            await asyncio.sleep(KEEP_EVERY_S)
        spool.clear()
        self._keeping = None

    async def close(self) -> None:
        """Commit what waits. Cut off before the end, what is kept on disk stays there."""
        try:
            for group in (self._opens, self._closes, self._finals):
                await group.close()
            if self._keeping is not None:
                await self._keeping
        finally:
            if self._keeping is not None:
                self._keeping.cancel()
            if self._spool is not None:
                self._spool.leave()
