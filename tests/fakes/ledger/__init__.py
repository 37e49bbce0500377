"""The ledger in memory: the official fake, held to the same contract as the one over PostgreSQL.

One event loop only. No method awaits anything, so each is atomic. The clock can be set: ``MemoryLedger(now=...)`` and
``advance``.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from tasks.ports import Ledger
from tests.fakes.ledger.actions import MemoryActions
from tests.fakes.ledger.attempts import MemoryAnswerCache, MemoryAttempts
from tests.fakes.ledger.duties import MemoryDuties
from tests.fakes.ledger.outbox import MemoryOutbox
from tests.fakes.ledger.queue import MemoryQueue
from tests.fakes.ledger.reading import MemoryReading
from tests.fakes.ledger.submission import MemorySubmission
from tests.fakes.ledger.tables import MemoryTables, wall_clock

__all__ = ["MemoryAttempts", "MemoryLedger", "MemoryQueue", "MemoryTables"]


class MemoryLedger(Ledger):
    """``tasks.ports.Ledger`` over plain dictionaries; what happens once is decided as in PostgreSQL."""

    def __init__(
        self,
        now: Callable[[], datetime] = wall_clock,
        *,
        attempts: Callable[[MemoryTables], MemoryAttempts] = MemoryAttempts,
    ) -> None:
        self.tables = tables = MemoryTables(now)
        super().__init__(
            submission=MemorySubmission(tables),
            queue=MemoryQueue(tables),
            attempts=attempts(tables),
            cache=MemoryAnswerCache(tables),
            duties=MemoryDuties(tables),
            outbox=MemoryOutbox(tables),
            actions=MemoryActions(tables),
            reading=MemoryReading(tables),
        )

    def advance(self, delta: timedelta) -> None:
        """Set the ledger's clock forward."""
        self.tables.advance(delta)
