"""Submits files as one batch, and wakes the workers when it is small."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from uuid import UUID

from schemas.states import Step
from tasks.errors import BrokerUnavailable, InputError
from tasks.ports import Ledger, NewBatch, NewJob, Receipt
from tasks.submit import chunked, new_batch
from worker.catalog import Installation
from worker.cli.intake import SMALL, BadLine, Intake, check_files
from worker.cli.messages import warn
from worker.cli.notes import Notes
from worker.cli.place import Place
from worker.doorbell import ring
from worker.settings import Settings
from worker.wiring import Endpoints, embedded

CHUNK = 500
"""Jobs held in memory and copied at a time."""

MOST_TOLD = 20
"""Bad lines told one by one; the output lists them all."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A submission that is in the ledger."""

    batch_id: UUID
    created: bool
    """False: the key was known, these are the jobs of then."""
    jobs: int
    notes: Notes

    @property
    def said(self) -> str:
        """For people."""
        jobs = f"{self.jobs} {'job' if self.jobs == 1 else 'jobs'}"
        told = f"{jobs} submitted" if self.created else f"{jobs}, submitted before with this key"
        if self.notes.elsewhere:
            told += f"; {len(self.notes.elsewhere)} of them known from before by their idempotency key"
        if self.notes.bad:
            told += f"; {len(self.notes.bad)} lines were not valid"
        return told


class Submission:
    """Files on their way into the ledger. Making one reads the first lines, so gross errors cost no server."""

    def __init__(
        self,
        files: list[str],
        said: dict[str, str],
        settings: Settings,
        *,
        strict: bool,
        check_only: bool = False,
        with_workers: bool = False,
    ) -> None:
        check_files(files)
        self.batch: NewBatch = new_batch(
            dict(said), tenant=settings.tenant, max_queued=settings.most_queued(settings.tenant)
        )
        # With servers of somebody else's the workers may be anywhere, with other providers and keys.
        catalog = Installation(settings, same_for_workers=with_workers or embedded(settings))
        self.intake = Intake(
            files, self.batch, strict=strict, bad_line=self._tell, check_only=check_only, catalog=catalog
        )
        self._chunks = chunked(self.intake.jobs(), CHUNK)
        self._first = next(self._chunks, None)
        if not self.intake.lines:
            raise InputError(f"{', '.join(files)}: no job in there, only blank lines or nothing")

    @property
    def empty(self) -> bool:
        """Whether no line holds a valid job."""
        return self._first is None

    def _tell(self, bad: BadLine) -> None:
        count = len(self.intake.bad)
        if count <= MOST_TOLD:
            warn(str(bad))
        elif count == MOST_TOLD + 1:
            warn("more lines are not valid; they are no longer told one by one")

    async def write(self, ledger: Ledger, place: Place, progress: Callable[[int], None]) -> tuple[Accepted, Receipt]:
        """Write the batch, all good lines or none, and the notes beside it.

        Args:
            ledger: where to.
            place: where the notes go.
            progress: told how many jobs have been read, chunk by chunk.
        """
        assert self._first is not None

        def counted(jobs: list[NewJob]) -> list[NewJob]:
            progress(self.intake.accepted)
            return jobs

        receipt = await ledger.submit(self.batch, map(counted, chain([self._first], self._chunks)))
        for warning, count in self.intake.warnings.items():
            warn(f"{warning} ({count} {'job' if count == 1 else 'jobs'})")
        notes = Notes(tuple(self.intake.bad), self._elsewhere(receipt))
        notes.save(place, receipt.batch_id)
        return Accepted(receipt.batch_id, receipt.created, len(receipt.job_ids), notes), receipt

    def _elsewhere(self, receipt: Receipt) -> dict[int, UUID]:
        """Position and id of the jobs that are not rows of this batch."""
        if not receipt.created or not receipt.existing:
            return {}
        refused = {bad.position for bad in self.intake.bad}
        positions = (position for position in range(self.intake.lines) if position not in refused)
        return {
            position: job_id
            for position, job_id in zip(positions, receipt.job_ids, strict=True)
            if position in receipt.existing
        }

    async def hint(self, receipt: Receipt, settings: Settings, where: Endpoints) -> None:
        """Wake the workers for a small submission; without Redis they find it by themselves a little later."""
        if not 0 < len(receipt.available) <= SMALL:
            return
        try:
            async with ring(settings, where.redis_url) as doorbell:
                # Not for the step local, which may have no worker: dispatch wakes those there are.
                for step in (Step.GENERATE, Step.CHECK):
                    ids = [job_id for job_id in receipt.available if self.intake.first.get(job_id) is step]
                    if ids:
                        await doorbell.hint(step, ids, urgent=True)
        except BrokerUnavailable as error:
            warn(f"{error}; the jobs are accepted and start a few seconds later")
