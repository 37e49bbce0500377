"""Submits files as one batch: validates each line, compares it with earlier batches, streams the jobs into the ledger, wakes the workers."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tasks.errors import BrokerUnavailable, InputError, JobsRefused
from tasks.ports import (
    Content,
    HintKey,
    InputLine,
    NewBatch,
    NewJob,
    Receipt,
    Refused,
    Repeated,
    UnchangedJob,
)
from tasks.submit import chunked, new_batch
from worker.ledger.postgres import PostgresLedger
from worker.local import Endpoints
from worker.operations.answerers import Answerer, Answerers
from worker.operations.counts import count_of
from worker.operations.file_intake import CHUNK, InputOrder, Intake
from worker.operations.input_content import ContentDigest, SameInput, basis_of, readable_twice
from worker.operations.json_lines import check_files, display_name
from worker.public_address import refuse_private
from worker.settings import Settings

if TYPE_CHECKING:
    # Most submissions look for no earlier batch.
    from worker.ledger.batch_contents import BatchContents


@dataclass(frozen=True, slots=True)
class Accepted:
    """The outcome of a submission."""

    batch_id: UUID | None
    """None: no batch was written, because no job was new, or none was accepted."""
    created: bool
    jobs: int
    refused: tuple[Refused, ...]
    """The lines that are no valid jobs, by position."""
    repeated: tuple[Repeated, ...] = ()
    """The lines whose jobs other batches hold."""
    submitted_at: datetime | None = None
    """Time of the first submission, where the key of the batch was known."""
    holders: Mapping[UUID, int] = field(default_factory=dict)
    """Number of jobs known from before, by the batch that holds them."""
    unchanged: bool = False
    """They are known because an earlier batch has the same lines, not by their idempotency keys."""
    hints: Collection[HintKey] = ()
    """For the workers of the new jobs."""

    @property
    def input_lines(self) -> list[InputLine]:
        """The lines of the input that are no jobs of the batch, by position."""
        return sorted((*self.refused, *self.repeated), key=lambda line: line.position)


class Unchanged(NamedTuple):
    """The lines of an input that earlier batches have already."""

    jobs: Counter[UUID]
    """Numbers of them by batch."""
    lines: int
    """All lines of the input."""


class Submission:
    """Files on their way into the ledger. Making one reads the first lines, so gross errors cost no server."""

    def __init__(
        self,
        order: InputOrder,
        settings: Settings,
        answerers: Answerers | None = None,
        *,
        on_refused: Callable[[Refused], None] = lambda _: None,
        warn: Callable[[str], None] = lambda _: None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Reads the first lines; raises ``InputError``.

        Args:
            order: of the files.
            settings: tell what is served, to whom, and how much may be queued.
            answerers: of the jobs; None: workers that may have other settings.
            on_refused: receives each refused line at once.
            warn: receives what the producer should know of accepted lines.
            tell: receives how a file is read, where that is not plain from its lines.
        """
        files, owner = order.files, settings.tenant if order.tenant is None else order.tenant
        check_files(files)
        self.batch: NewBatch = new_batch(
            dict(order.batch), tenant=owner, max_queued=settings.most_queued(owner), submitter=order.submitter
        )
        refuse_private(self.batch.callback_url, allowed=settings.callback_private)
        # With servers of somebody else's the workers may be anywhere, with other providers and keys.
        self.answerers = answerers = answerers or Answerers([Answerer(settings)], certain=settings.embedded())
        self.intake = Intake(order, self.batch, on_refused, answerers.catalog, tell)
        # A key of the producer's own says which submissions are the same.
        self._same_input = order.same_input if self.batch.key is None and readable_twice(files) else None
        self._basis = b""
        if self._same_input is not None:
            first = answerers.first
            self._basis = basis_of(first.settings, check_only=order.check_only, environment=first.environment)
            self.intake.digest = ContentDigest(self._basis)
            self.batch = replace(self.batch, content=self._content)
        self.receipt: Receipt | None = None
        """Of the ledger, once something was written or known."""
        self.warn = warn
        self._chunks = chunked(self.intake.jobs(), CHUNK)
        self._first = next(self._chunks, None)
        if self.intake.digest is not None:
            self.intake.digest.end_head()
        if not self.intake.lines:
            raise InputError(
                f"{', '.join(map(display_name, files))}: no job in there: nothing, blank lines, or the first row of a table alone"
            )

    @property
    def first_jobs(self) -> list[NewJob]:
        """The jobs of the first lines."""
        return self._first or []

    @property
    def empty(self) -> bool:
        """Tells that no line holds a valid job."""
        return self._first is None

    @property
    def may_be_known(self) -> bool:
        """Tells whether an earlier batch may be taken instead."""
        return self._same_input is SameInput.TAKE_EARLIER and self._first is not None

    async def known_batch(self, contents: "BatchContents") -> UUID | None:
        """The batch that the same input with the same settings has already; reads all lines only where one begins alike."""
        digest, tenant = self.intake.digest, self.batch.tenant
        if digest is None or not self.may_be_known:
            return None
        if not await contents.begins_like(tenant, digest.content(lines=0).head):
            return None
        again = ContentDigest(self._basis)
        lines, _ = self._read_again(again)
        return await contents.find(tenant, again.content(lines=lines))

    async def take_unchanged(self, contents: "BatchContents") -> Unchanged | None:
        """Lets lines that an earlier batch has, with the same settings, be the jobs of that one; reads all lines only then."""
        if not self.may_be_known or (digest := self.intake.digest) is None:
            return None
        first = [job.request_hash for job in self.first_jobs]
        if not (earlier := await contents.like(self.batch.tenant, digest.basis(), first)):
            return None
        lines, unchanged = self._read_again(ContentDigest(self._basis), await contents.unchanged(earlier))
        if not unchanged:
            return None
        self.batch = replace(self.batch, unchanged=unchanged)
        return Unchanged(Counter(job.batch_id for job in unchanged.values()), lines)

    def _read_again(
        self, digest: ContentDigest, earlier: Iterable[UnchangedJob] = ()
    ) -> tuple[int, dict[int, UnchangedJob]]:
        """Reads all lines, without a word: their number, and by position earlier jobs, each of which is taken once."""
        # Of other prompts than the first jobs have, nothing tells whether the text was the same then.
        digest.foreign_positions = foreign_positions = set[int]()
        again = Intake(
            replace(self.intake.order, strict=False), self.intake.batch, catalog=self.intake.catalog, digest=digest
        )
        jobs_by_hash: dict[bytes, deque[UnchangedJob]] = defaultdict(deque)
        for each in earlier:
            jobs_by_hash[each.request_hash].append(each)
        unchanged: dict[int, UnchangedJob] = {}
        for number, chunk in enumerate(chunked(again.jobs(), CHUNK)):
            if not number:
                digest.end_head()
            for job in chunk:
                same = jobs_by_hash.get(job.request_hash) if job.position not in foreign_positions else None
                while same and job.position not in unchanged:
                    if (candidate := same.popleft()).serves(job, again.batch):
                        unchanged[job.position] = candidate
        return again.lines, unchanged

    def _content(self) -> Content:
        assert self.intake.digest is not None
        return self.intake.digest.content(lines=self.intake.lines, replaces=self._same_input is SameInput.PAY_ANEW)

    def chunks(self) -> Iterator[list[NewJob]]:
        """All jobs, some at a time; they can be read once."""
        return chain([self.first_jobs], self._chunks)

    async def write(self, ledger: PostgresLedger, on_progress: Callable[[int], None] = lambda _: None) -> Accepted:
        """Writes the batch with all lines that can be accepted; ``on_progress`` receives the number of jobs read."""
        assert self._first is not None

        def report(jobs: list[NewJob]) -> list[NewJob]:
            on_progress(self.intake.accepted)
            return jobs

        intake = self.intake
        chunks = map(report, self.chunks())
        try:
            receipt = await ledger.submission.submit(
                self.batch, chunks, strict=intake.order.strict, refused=intake.refused
            )
        except JobsRefused as error:
            intake.refuse(error.refused)
            if intake.order.strict:
                raise InputError(
                    f"{len(error.refused):,} of {count_of(intake.lines, 'line')} can't be accepted; nothing was submitted (strict)"
                ) from error
            return Accepted(None, created=False, jobs=0, refused=tuple(intake.refused))
        intake.warn_of_jobs(self.warn)
        intake.refuse(receipt.refused)
        self.receipt = receipt
        return Accepted(
            None if receipt.nothing_new else receipt.batch_id,
            receipt.created,
            len(receipt.job_ids),
            tuple(sorted(intake.refused, key=lambda line: line.position)),
            tuple(Repeated(position, job_id) for position, job_id in receipt.elsewhere.items()),
            receipt.submitted_at,
            receipt.holders,
            bool(self.batch.unchanged),
            receipt.hints,
        )


async def wake(hints: Collection[HintKey], settings: Settings, where: Endpoints, warn: Callable[[str], None]) -> None:
    """Hints new jobs by their first step, if there are any; without Redis workers find them a little later."""
    if not hints:
        return
    # Celery is loaded only to send: most submissions are too large to be hinted.
    from worker.process.doorbell import ring  # noqa: PLC0415

    try:
        async with ring(settings, where.redis_url) as doorbell:
            for key in hints:
                await doorbell.hint(key.step, urgent=key.urgent)
    except BrokerUnavailable as error:
        warn(f"{error}; the jobs are accepted and start a few seconds later")
