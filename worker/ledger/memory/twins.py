"""Finds identical calls in the in-memory ledger: those answered, and those under way."""

from collections.abc import Iterator
from datetime import datetime

from schemas.completion import FinishReason
from tasks.calls.response_cache import MOST_FAILED
from tasks.ports import ShareTerms
from worker.ledger.memory.closing import MemoryClosing
from worker.ledger.memory.tables import OK, UNKNOWN, AttemptRow, JobRow


class MemoryTwins(MemoryClosing):
    """What may be shared, as in Postgres."""

    def _twins(self, job: JobRow, terms: ShareTerms) -> Iterator[AttemptRow]:
        """The calls that other jobs of the tenant made for the same, and those for it that are not too old."""
        oldest = self._now() - terms.within
        for one in self._attempts.values():
            theirs = self._jobs[one.new.job_id]
            if (
                one.new.share is not None
                and one.new.share.key == terms.key
                and theirs.new.tenant == job.new.tenant
                and (one.closed_at is None or one.closed_at > oldest)
            ):
                yield one

    def _shareable(self, job: JobRow, terms: ShareTerms) -> AttemptRow | None:
        """The newest answer that the job may take."""
        answers = [
            (one.closed_at, one)
            for one in self._twins(job, terms)
            if one.closed_at is not None
            and one.outcome == OK
            and one.won
            and one.answer is not None
            and one.answer.completion.finish_reason is FinishReason.STOP
        ]
        return max(answers, key=lambda found: found[0])[1] if answers else None

    def _under_way(self, job: JobRow, terms: ShareTerms) -> datetime | None:
        """Since when a call is under way that the job may wait for."""
        now = self._now()
        if not terms.wait or job.past_deadline(now + terms.wait):
            return None
        twins = [one for one in self._twins(job, terms) if one.new.job_id != job.new.id]
        failed = sum(one.spent or one.outcome == UNKNOWN for one in twins)
        if failed >= MOST_FAILED or any(one.outcome == OK for one in twins):
            return None
        since = [one.opened_at for one in twins if one.closed_at is None and one.opened_at > now - terms.wait]
        return min(since, default=None)
