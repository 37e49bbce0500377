"""Lets the plain check stand in where no worker has the local model: a dispatch duty, with the rule of when it may."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from uuid import UUID

from schemas.states import Step
from tasks.ports import Ledger

log = logging.getLogger(__name__)

ROWS = 2_000
"""Jobs left to the plain check in one statement; the next one follows a second later."""


@dataclass(slots=True)
class ModelFallback:
    """Leaves the jobs of the step ``local`` to ``check`` once nobody has served theirs for a while without a break.

    There the record says which layer is missing, as of any layer that a worker has not got: a paid answer is neither
    lost nor kept waiting for ever. What this process has seen counts, from its own start: a system that starts with
    jobs of yesterday waits as long.
    """

    ledger: Ledger
    served: Callable[[], bool]
    """Whether some worker serves the step, as far as is known."""
    wait: timedelta
    """How long nobody may; zero: there is no local model here, and nothing to wait for."""
    _unserved_since: float | None = None
    _told: bool = False
    _warned: bool = False

    def observe(self) -> None:
        """Note whether the step is served now. Every worker does, so that one that begins to lead knows since when."""
        if self.served():
            self._unserved_since, self._told, self._warned = None, False, False
        elif self._unserved_since is None:
            self._unserved_since = monotonic()

    async def run(self) -> list[UUID]:
        """Leave jobs to the plain check if the rule says so; returns their ids. Raises ``LedgerUnavailable``."""
        self.observe()
        if self._unserved_since is None:
            return []
        if monotonic() - self._unserved_since < self.wait.total_seconds():
            await self._tell()
            return []
        left = await self.ledger.reassign(Step.LOCAL, Step.CHECK, ROWS)
        if left and not self._warned:
            self._warned = True
            log.warning(
                "jobs want the local model and no worker has one: they are checked without it and end as partial"
            )
        return left

    async def _tell(self) -> None:
        if not self._told and await self.ledger.backlog(Step.LOCAL, 1):
            self._told = True
            log.warning(
                "jobs want the local model and no worker serves the queue 'local': "
                "unless one starts they are checked without it after %.0f s",
                self.wait.total_seconds(),
            )
