"""Submits files as one batch, and wakes the workers when it is small."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from uuid import UUID

from schemas.states import Step
from tasks.errors import BrokerUnavailable, InputError, JobsRefused
from tasks.ports import InputLine, Ledger, NewBatch, NewJob, Receipt, Refused, Repeated
from tasks.submit import chunked, new_batch
from worker.cli.intake import SMALL, Intake, check_files
from worker.cli.messages import warn
from worker.process.notifier import ring
from worker.providers.catalog import Installation
from worker.settings import Settings
from worker.wiring import Endpoints, embedded

CHUNK = 500
"""Jobs held in memory and copied at a time."""

MOST_TOLD = 20
"""Bad lines told one by one; the output lists them all."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a submission."""

    batch_id: UUID | None
    """None: no batch was written, because no job was new, or none was accepted."""
    created: bool
    jobs: int
    refused: tuple[Refused, ...]
    """The lines that are no valid jobs, by position."""
    repeated: tuple[Repeated, ...] = ()
    """The lines whose jobs other batches hold."""
    submitted_at: datetime | None = None
    """When the batch was submitted first, where its key was known."""
    holders: Mapping[UUID, int] = field(default_factory=dict)
    """Number of jobs known from before, by the batch that holds them."""

    @property
    def said(self) -> str:
        """For people."""
        jobs = f"{self.jobs:,} {'job' if self.jobs == 1 else 'jobs'}"
        held = ", ".join(f"{batch_id} ({count:,})" for batch_id, count in self.holders.items())
        if self.submitted_at is not None:
            at = f"{self.submitted_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
            said = f"batch {self.batch_id} was submitted before, at {at}: {jobs}, nothing new"
        elif self.created:
            said = f"batch {self.batch_id}: {jobs} submitted"
            if self.repeated:
                said += f"; {len(self.repeated):,} of them known from before by their idempotency key"
                said += f", in {held}" if held else ""
        elif self.jobs:
            said = f"nothing new: {jobs} known from before by their idempotency key, in {held}; no batch was made"
        else:
            said = "nothing was submitted"
        if self.refused:
            said += f"; {len(self.refused):,} lines were not valid"
        return said

    @property
    def input_lines(self) -> list[InputLine]:
        """The lines of the input that are no jobs of the batch, by position."""
        return sorted((*self.refused, *self.repeated), key=lambda line: line.position)


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
        self.receipt: Receipt | None = None
        """Of the ledger, once something was written or found."""
        self._chunks = chunked(self.intake.jobs(), CHUNK)
        self._first = next(self._chunks, None)
        if not self.intake.lines:
            raise InputError(f"{', '.join(files)}: no job in there, only blank lines or nothing")

    @property
    def empty(self) -> bool:
        """Whether no line holds a valid job."""
        return self._first is None

    def _tell(self, bad: Refused) -> None:
        count = len(self.intake.bad)
        if count <= MOST_TOLD:
            warn(str(bad))
        elif count == MOST_TOLD + 1:
            warn("more lines are not valid; they are no longer told one by one")

    async def write(self, ledger: Ledger, progress: Callable[[int], None]) -> Accepted:
        """Write the batch with all lines that can be accepted (with ``strict`` all or none).

        Args:
            ledger: where to.
            progress: told how many jobs have been read, chunk by chunk.
        """
        assert self._first is not None

        def counted(jobs: list[NewJob]) -> list[NewJob]:
            progress(self.intake.accepted)
            return jobs

        strict = self.intake.strict
        try:
            receipt = await ledger.submission.submit(
                self.batch, map(counted, chain([self._first], self._chunks)), strict=strict, refused=self.intake.bad
            )
        except JobsRefused as error:
            self.intake.refuse(error.refused)
            if strict:
                raise InputError(
                    f"{len(error.refused)} of {self.intake.lines} lines can't be accepted; nothing was submitted (--strict)"
                ) from error
            return Accepted(None, created=False, jobs=0, refused=tuple(self.intake.bad))
        for warning, count in self.intake.warnings.items():
            warn(f"{warning} ({count} {'job' if count == 1 else 'jobs'})")
        self.intake.refuse(receipt.refused)
        self.receipt = receipt
        return Accepted(
            None if receipt.nothing_new else receipt.batch_id,
            receipt.created,
            len(receipt.job_ids),
            tuple(sorted(self.intake.bad, key=lambda line: line.position)),
            tuple(Repeated(position, job_id) for position, job_id in receipt.elsewhere.items()),
            receipt.submitted_at,
            receipt.holders,
        )

    async def hint(self, settings: Settings, where: Endpoints) -> None:
        """Wake the workers for a small submission; without Redis they find it by themselves a little later."""
        receipt = self.receipt
        if receipt is None or not 0 < len(receipt.available) <= SMALL:
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
