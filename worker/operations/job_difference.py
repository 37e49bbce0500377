"""Reads pairs of jobs and compares their answers."""

from collections.abc import AsyncIterator, Sequence
from uuid import UUID

from tasks.policy.difference import Difference
from worker.ledger.postgres import PostgresLedger

PAGE = 100
"""Pairs read at a time."""


async def differences(ledger: PostgresLedger, pairs: Sequence[tuple[UUID, UUID]]) -> AsyncIterator[Difference]:
    """The comparison of each pair, in order; a pair of which a job is no more is left out."""
    for start in range(0, len(pairs), PAGE):
        page = pairs[start : start + PAGE]
        ids = list(dict.fromkeys(job_id for pair in page for job_id in pair))
        views = {view.job_id: view for view in await ledger.reading.views(ids)}
        for first, second in page:
            if first in views and second in views:
                yield Difference.of(views[first], views[second])
