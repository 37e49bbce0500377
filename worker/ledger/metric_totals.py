"""Counters of all workers together: each adds what it counted, so that sums survive processes and need no scan of jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import orjson

from worker.ledger.database import Store

Series = tuple[str, tuple[str, ...]]
"""Name of a sample, and the values of its labels."""

KEPT_FOR = timedelta(days=30)
"""A series that did not change for so long goes: its model is no longer used."""

# In one order, so that two workers never wait for each other; the labels travel as JSON, for arrays of arrays have one length.
_ADD = """
INSERT INTO metric_total AS m (name, labels, value)
SELECT d.name, ARRAY(SELECT jsonb_array_elements_text(d.labels::jsonb)), d.value
FROM unnest(%(names)s::text[], %(labels)s::text[], %(values)s::float8[]) AS d(name, labels, value)
ORDER BY 1, 2
ON CONFLICT (name, labels) DO UPDATE SET value = m.value + excluded.value, changed_at = nightdesk_now()
"""

_READ = "SELECT name, labels, value FROM metric_total"

_PRUNE = "DELETE FROM metric_total WHERE changed_at < nightdesk_now() - %(kept_for)s"


@dataclass(frozen=True, slots=True)
class Total:
    """One sample as it stands."""

    name: str
    labels: tuple[str, ...]
    value: float


class MetricTotals(Store):
    """The sums. One that was written without a word of it is added again: they may be a little high, never low."""

    async def add(self, sums: Mapping[Series, float]) -> None:
        """Adds to the sums, in one statement. Raises ``LedgerUnavailable``."""
        parameters = {
            "names": [name for name, _ in sums],
            "labels": [orjson.dumps(labels).decode() for _, labels in sums],
            "values": list(sums.values()),
        }
        await self._db.rows(_ADD, parameters)

    async def read(self) -> Sequence[Total]:
        """All sums: some hundreds of rows. Raises ``LedgerUnavailable``."""
        return [Total(row.name, tuple(row.labels), row.value) for row in await self._db.rows(_READ)]

    async def prune(self) -> None:
        """Drops series that nothing was added to for a month."""
        await self._db.rows(_PRUNE, {"kept_for": KEPT_FOR})
