"""Removes content wherever Nightdesk put it: the ledger, Redis and the spool of this home."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from tasks.errors import BrokerUnavailable
from worker.cli.actor import actor
from worker.cli.messages import warn
from worker.cli.paging import Paging
from worker.cli.session import Session
from worker.ledger.erasure import Deleted, Kept, Sealed
from worker.ledger.postgres import PostgresLedger
from worker.process.notifier import CeleryDoorbell, ring
from worker.process.spool import Spool, replay, spool_folder
from worker.token_streams import forget


@dataclass(slots=True)
class Removal:
    """What is done, chunk by chunk; each is whole in the ledger, so that a removal cut off is simply begun again."""

    desk: Session
    ledger: PostgresLedger
    doorbell: CeleryDoorbell
    course: Paging
    erased: int = 0
    deleted: list[Deleted] = field(default_factory=list)
    sealed: int = 0
    unheard: int = 0
    """Calls of erased jobs whose answers may lie on the disk of another worker."""
    redis_missed: bool = False

    async def erase(self, jobs: Iterable[Kept]) -> None:
        """Erase final jobs; what is published of them is forgotten also where the ledger had erased them before."""
        runs = {job.job_id: job.run for job in jobs}
        changed = await self.ledger.erasure.erase(list(runs), actor(), self.course.add)
        self.erased += len(changed)
        self.unheard += await self.ledger.erasure.unheard(list(runs))
        await self._forget({**runs, **changed})

    async def delete(self, jobs: Iterable[Kept]) -> None:
        """Delete final jobs with all their rows."""
        done = await self.ledger.erasure.delete([job.job_id for job in jobs], self.course.add)
        self.deleted.append(done)
        await self._forget(done.runs)

    async def seal(self, batch_id: UUID) -> None:
        """Remove what a batch says of itself, once none of its jobs says anything."""
        self.sealed += await self.ledger.erasure.seal(batch_id) is Sealed.NOW

    async def _forget(self, runs: dict[UUID, int]) -> None:
        if self.redis_missed or not runs:
            return
        settings = self.desk.settings
        try:
            await self.doorbell.forget(list(runs))
            await forget(self.desk.where.redis_url, settings.key_prefix, runs)
        except BrokerUnavailable as error:
            self.redis_missed = True
            warn(
                f"{error}; results and streamed texts stay there for up to {settings.results_kept_s:.0f} s after their "
                "job ended. 'nightdesk erase' again, when it is back, removes them at once"
            )


@asynccontextmanager
async def removal(desk: Session, course: Paging) -> AsyncIterator[Removal]:
    """A removal; at its end the answers that dead workers left on disk here are written, or dropped where erased."""
    async with desk.ledger() as ledger, ring(desk.settings, desk.where.redis_url) as doorbell:
        yield Removal(desk, ledger, doorbell, course)
        await replay(Spool(spool_folder(desk.settings.home, desk.where.database_url)), ledger)
