"""The journal: the ledger's hot verbs for one job at a time, committed in groups."""

from collections.abc import Sequence
from datetime import timedelta

from tasks.ports import ClosedAttempt, FinalJob, Ledger, NewAttempt, Opened
from worker.ledger.group_commit import GroupCommit

FINAL_WAIT = timedelta(milliseconds=50)
"""Finals gather a little longer: nobody works on while they wait, and a check that is slow would send them singly."""


class LedgerJournal:
    """``tasks.ports.Journal`` by group commit over a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._opens = GroupCommit[NewAttempt, Opened]("opened attempts", ledger.open_attempts)
        self._closes = GroupCommit[ClosedAttempt, bool]("closed attempts", self._close)
        self._finals = GroupCommit[FinalJob, bool]("final jobs", self._finish, wait=FINAL_WAIT)

    async def open_attempt(self, attempt: NewAttempt) -> Opened:
        """Open one attempt."""
        return await self._opens.put(attempt)

    async def close_attempt(self, closed: ClosedAttempt) -> bool:
        """Close one attempt; True if the job advanced."""
        return await self._closes.put(closed)

    async def finish(self, final: FinalJob) -> bool:
        """Finish one job; True if it was still ours."""
        return await self._finals.put(final)

    async def _close(self, rows: Sequence[ClosedAttempt]) -> list[bool]:
        advanced = await self._ledger.close_attempts(rows)
        return [row.job_id in advanced for row in rows]

    async def _finish(self, rows: Sequence[FinalJob]) -> list[bool]:
        finished = await self._ledger.finish(rows)
        return [row.job_id in finished for row in rows]

    async def close(self) -> None:
        """Commit what waits."""
        for group in (self._opens, self._closes, self._finals):
            await group.close()
