"""Submits files as one batch: validates each line, streams the jobs into the ledger, wakes the workers."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any
from uuid import UUID

from schemas.states import Step
from tasks.errors import BrokerUnavailable, InputError, JobsRefused
from tasks.policy.relevance import without_threshold
from tasks.ports import (
    Catalog,
    Content,
    Everything,
    HintKey,
    InputLine,
    NewBatch,
    NewJob,
    Receipt,
    Refused,
    Repeated,
    Submitter,
)
from tasks.raw_jobs import as_check_only
from tasks.submit import check_served, check_times, chunked, new_batch, new_job, parse_request, unknown_price
from worker.ledger.postgres import PostgresLedger
from worker.local import Endpoints
from worker.operations.answerers import Answerer, Answerers
from worker.operations.counts import count_of
from worker.operations.first_rows import FirstRows
from worker.operations.input_columns import ColumnMap, JobMaker, kind_of_rows
from worker.operations.input_content import ContentDigest, SameInput, basis_of, readable_twice
from worker.operations.input_rows import LINES, Row, Rows, reading
from worker.operations.json_lines import check_files, display_name
from worker.operations.second_reading import HEAD, Unchanged, find_unchanged, read_again
from worker.public_address import refuse_private
from worker.settings import Settings

if TYPE_CHECKING:
    # Most submissions look for no earlier batch.
    from worker.ledger.batch_contents import BatchContents

CHUNK = HEAD
"""Jobs read at a time, in a millisecond; then the ledger's connection is served, which writes those read before."""

SMALL = 50
"""Jobs; a submission up to this size is hinted at once."""


@dataclass(frozen=True, slots=True)
class InputBounds:
    """Most lines of an input, and most of them that may be refused; beyond either nothing is accepted."""

    lines: int
    refused: int

    def check(self, lines: int, refused: int) -> None:
        """Raises ``InputError`` beyond a bound."""
        if lines > self.lines:
            raise InputError(f"there are more than {self.lines:,} lines; submit several batches. Nothing was accepted")
        if refused > self.refused:
            raise InputError(f"more than {self.refused:,} lines are not valid; nothing was accepted")


@dataclass(slots=True)
class Intake:
    """The jobs of some files, in order; afterwards, what was refused on the way.

    A job's position is that of its line or row over all files, and a blank line has one, too: so the line that screens and
    ``BATCH:lineN`` name is the one that an editor shows. Line N of the output answers the Nth line that is not blank.
    """

    files: Sequence[str]
    batch: NewBatch
    strict: bool
    on_refused: Callable[[Refused], None]
    """Receives each refused line at once."""
    check_only: bool = False
    """Each line holds an answer to check."""
    catalog: Catalog = field(default_factory=Everything)
    """The models and prompts that the installation serves."""
    bounds: "InputBounds | None" = None
    columns: ColumnMap = field(default_factory=ColumnMap)
    """Of the rows, beside those known by their names."""
    tell: Callable[[str], None] = lambda _: None
    """Receives how a file is read, where that is not plain from its lines."""
    priority: int = 0
    """Of jobs that set none; no part of their request, so that the same input stays the same."""
    digest: "ContentDigest | None" = None
    """Of what was read; None: nobody asks for it."""
    lines: int = 0
    """Those that are not blank."""
    position: int = 0
    """Of the next line."""
    accepted: int = 0
    refused: list[Refused] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)
    first: dict[UUID, HintKey] = field(default_factory=dict)
    """The first ``SMALL`` jobs, and the hint that each belongs to."""
    _common_faults: Counter[str] = field(default_factory=Counter)
    """Lines by a fault that is none of theirs: of the batch's defaults, or of the settings."""
    _places: dict[tuple[str, str], str] = field(default_factory=dict)
    """The line of the job that has a custom id or a message id."""

    def jobs(self) -> Iterator[NewJob]:
        """Reads and validates everything once; refused lines are noted and skipped.

        Raises: InputError when a file can't be read, and at the end in strict mode when a line was refused.
        """
        for name in self.files:
            with reading(name, kind_of_rows(self.columns, check_only=self.check_only), self.columns.encoding) as file:
                yield from self._jobs_of(name, file)
        if self.strict and self.refused:
            raise InputError(
                self.common_fault
                or f"{len(self.refused):,} of {count_of(self.lines, 'line')} not valid; nothing was submitted (strict)"
            )

    @property
    def common_fault(self) -> str | None:
        """The one fault of all lines, where it is none of theirs; None where a line is at fault, or valid."""
        message = next(iter(self._common_faults), None)
        return message if message is not None and self._common_faults[message] == self.lines else None

    def warn_of_jobs(self, warn: Callable[[str], None]) -> None:
        """Tells what the producer should know of the accepted lines, each thing once."""
        for warning, count in self.warnings.items():
            warn(f"{warning} ({count_of(count, 'job')})")

    def refuse(self, lines: Iterable[Refused]) -> None:
        """Takes back lines that counted as accepted."""
        for line in lines:
            self.accepted -= 1
            self._note(line)

    def _note(self, line: Refused) -> None:
        self.refused.append(line)
        self.on_refused(line)

    def _jobs_of(self, name: str, file: Rows) -> Iterator[NewJob]:
        title = display_name(name)

        def tell(message: str) -> None:
            self.tell(f"{title}: {message}" if file.form is LINES else f"{title} is {file.form.name}: {message}")

        maker = JobMaker(self.columns, self.check_only, tell, cells=file.form.cells, text=bool(file.form.delimiter))
        first_rows = FirstRows(maker)
        rows = first_rows.read(file.rows, title, by_person=self.bounds is None)
        defaults, about_scores = without_threshold(first_rows.scores, self.batch.defaults)
        first = self.position
        for row in rows:
            # A line may hold several questions, each of which takes a position; without lines rows follow each other.
            position = max(self.position, first + row.line - 1)
            self.lines, self.position = self.lines + 1, position + 1
            if self.bounds is not None:
                self.bounds.check(self.lines, len(self.refused))
            raw: Any = None
            try:
                raw = _raw_job(row, maker)
                job = self._job(raw, position, row.place, defaults)
            except InputError as error:
                if (fault := self._common_fault(raw, error)) is not None:
                    self._common_faults[fault] += 1
                self._note(Refused(position, str(error), error.field, _custom_id(raw), row.place))
                continue
            if about_scores is not None:
                self.warnings[about_scores] += 1
            # In strict mode the rest is read only to name all that is wrong.
            if not (self.strict and self.refused):
                self.accepted += 1
                if len(self.first) < SMALL:
                    self.first[job.id] = HintKey(job.step, job.priority > 0)
                yield job

    def _common_fault(self, raw: Any, error: InputError) -> str | None:
        """The message of a fault in a config that the line has not set itself, with the default at fault; else None."""
        section, _, path = (error.field or "").partition(".")
        name = path.partition(".")[0]
        config = raw.get("config") if isinstance(raw, dict) else None
        own = config.keys() if isinstance(config, dict) else frozenset()
        # A provider and its model are at fault together.
        if section != "config" or own & ({"provider", "model"} if name in {"provider", "model"} else {name}):
            return None
        message = str(error).removeprefix(f"{error.field}: ")
        return f"{name}: {message}" if name in (self.batch.defaults or {}) else message

    def _job(self, raw: Any, position: int, place: str, defaults: dict[str, Any] | None) -> NewJob:
        if self.check_only:
            raw = as_check_only(raw)
        request, warnings = parse_request(raw, defaults)
        warnings += check_served(request, self.catalog, priced=self.batch.max_cost_usd is not None)
        check_times(request, self.batch)
        unpriced = unknown_price(request, self.catalog)
        job = new_job(request, position=position, tenant=self.batch.tenant, place=place, unpriced=unpriced)
        for name, value in (("custom_id", job.custom_id), ("message_id", job.message_id)):
            if value is not None and (earlier := self._places.setdefault((name, value), place)) != place:
                hint = "; a row is one job, with all of its sources" if ", row " in place else ""
                raise InputError(f"{value!r} is already in {earlier}{hint}", field=name)
        if self.priority and "priority" not in request.model_fields_set:
            job = replace(job, priority=self.priority)
        if request.check_only and not self.check_only and self.bounds is None:
            warnings.append("a line with 'response' holds an answer: it is checked, and none is made")
        self.warnings.update(warnings)
        if self.digest is not None:
            self.digest.add(job, request)
        return job


def _raw_job(row: Row, maker: JobMaker) -> Any:
    if row.error is not None:
        raise row.error
    return maker.job(row.value)


def _custom_id(raw: Any) -> str | None:
    """The custom id of a refused row, so that its producer recognises it."""
    value = raw.get("custom_id") if isinstance(raw, dict) else None
    return value if isinstance(value, str) else None


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

    @property
    def input_lines(self) -> list[InputLine]:
        """The lines of the input that are no jobs of the batch, by position."""
        return sorted((*self.refused, *self.repeated), key=lambda line: line.position)


class Submission:
    """Files on their way into the ledger. Making one reads the first lines, so gross errors cost no server."""

    def __init__(
        self,
        files: list[str],
        batch: dict[str, Any],
        settings: Settings,
        *,
        strict: bool,
        check_only: bool = False,
        answerers: Answerers | None = None,
        tenant: str | None = None,
        submitter: Submitter | None = None,
        bounds: InputBounds | None = None,
        columns: ColumnMap | None = None,
        same_input: SameInput | None = None,
        priority: int = 0,
        on_refused: Callable[[Refused], None] = lambda _: None,
        warn: Callable[[str], None] = lambda _: None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Reads the first lines; raises ``InputError``.

        Args:
            files: names, ``-`` for standard input.
            batch: name, key, ceiling and defaults of the batch, as ``BatchRequest`` takes them.
            settings: tell what is served, to whom, and how much may be queued.
            strict: accept all lines or none.
            check_only: each line holds an answer to check.
            answerers: of the jobs; None: workers that may have other settings.
            tenant: whose jobs they are; None: the tenant of the settings.
            submitter: the key of the HTTP service that they came with.
            bounds: of the input; None: any number of lines.
            columns: those of the rows, beside those known by their names.
            same_input: the way of an input that was submitted before; None: each submission is a batch of its own.
            priority: of jobs that set none.
            on_refused: receives each refused line at once.
            warn: receives what the producer should know of accepted lines.
            tell: receives how a file is read, where that is not plain from its lines.
        """
        check_files(files)
        owner = settings.tenant if tenant is None else tenant
        self.batch: NewBatch = new_batch(
            dict(batch),
            tenant=owner,
            max_queued=settings.most_queued(owner),
            submitter=submitter,
        )
        refuse_private(self.batch.callback_url, allowed=settings.callback_private)
        # With servers of somebody else's the workers may be anywhere, with other providers and keys.
        answerers = answerers or Answerers([Answerer(settings)], certain=settings.embedded())
        self.intake = Intake(
            files,
            self.batch,
            strict,
            on_refused,
            check_only,
            answerers.catalog,
            bounds,
            columns or ColumnMap(),
            tell,
            priority,
        )
        # A key of the producer's own says which submissions are the same.
        self._same_input = same_input if self.batch.key is None and readable_twice(files) else None
        self._basis = b""
        if self._same_input is not None:
            first = answerers.first
            self._basis = basis_of(first.settings, check_only=check_only, environment=first.environment)
        if self._same_input is not None:
            self.intake.digest = ContentDigest(self._basis)
            self.batch = replace(self.batch, content=self._content)
        self.receipt: Receipt | None = None
        """Of the ledger, once something was written or known."""
        self._warn = warn
        self._chunks = chunked(self.intake.jobs(), CHUNK)
        self._first = next(self._chunks, None)
        if self.intake.digest is not None:
            self.intake.digest.end_head()
        if not self.intake.lines:
            raise InputError(f"{', '.join(map(display_name, files))}: no job in there, only blank lines or nothing")

    @property
    def first_jobs(self) -> Sequence[NewJob]:
        """The jobs of the first lines."""
        return self._first or ()

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
        digest = self.intake.digest
        if digest is None or not self.may_be_known:
            return None
        tenant = self.batch.tenant
        if not await contents.begins_like(tenant, digest.content(lines=0).head):
            return None
        again = read_again(self.intake, self._basis)
        return await contents.find(tenant, again.content())

    async def take_unchanged(self, contents: "BatchContents") -> Unchanged | None:
        """Lets lines that an earlier batch has, with the same settings, be the jobs of that one; reads all lines only then."""
        if not self.may_be_known or self.intake.digest is None:
            return None
        again = await find_unchanged(contents, self.intake, self.batch.tenant, self._basis, self.first_jobs)
        if again is None:
            return None
        self.batch = replace(self.batch, unchanged=again.unchanged)
        return Unchanged(Counter(job.batch_id for job in again.unchanged.values()), again.lines)

    def _content(self) -> Content:
        assert self.intake.digest is not None
        return self.intake.digest.content(lines=self.intake.lines, replaces=self._same_input is SameInput.PAY_ANEW)

    async def write(self, ledger: PostgresLedger, on_progress: Callable[[int], None] = lambda _: None) -> Accepted:
        """Writes the batch with all lines that can be accepted; ``on_progress`` receives the number of jobs read."""
        assert self._first is not None

        def report(jobs: list[NewJob]) -> list[NewJob]:
            on_progress(self.intake.accepted)
            return jobs

        intake = self.intake
        chunks = map(report, chain([self._first], self._chunks))
        try:
            receipt = await ledger.submission.submit(self.batch, chunks, strict=intake.strict, refused=intake.refused)
        except JobsRefused as error:
            intake.refuse(error.refused)
            if intake.strict:
                raise InputError(
                    f"{len(error.refused):,} of {count_of(intake.lines, 'line')} can't be accepted; nothing was submitted (strict)"
                ) from error
            return Accepted(None, created=False, jobs=0, refused=tuple(intake.refused))
        intake.warn_of_jobs(self._warn)
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
        )

    def hints(self) -> dict[HintKey, list[UUID]]:
        """The new jobs of a small submission by their hints; none of a large one, which is left to dispatch."""
        receipt = self.receipt
        if receipt is None or not 0 < len(receipt.available) <= SMALL:
            return {}
        hints: dict[HintKey, list[UUID]] = {}
        for job_id in receipt.available:
            key = self.intake.first.get(job_id)
            # Not for the step local, which may have no worker: dispatch wakes those there are.
            if key is not None and key.step is not Step.LOCAL:
                hints.setdefault(key, []).append(job_id)
        return hints

    async def hint(self, settings: Settings, where: Endpoints) -> None:
        """Wakes the workers for a small submission; without Redis they find it by themselves a little later."""
        if not (hints := self.hints()):
            return
        await wake(hints, settings, where, self._warn)


async def wake(
    hints: Mapping[HintKey, Sequence[UUID]], settings: Settings, where: Endpoints, warn: Callable[[str], None]
) -> None:
    """Hints new jobs by their first step; without Redis it warns."""
    # Celery is loaded only to send: most submissions are too large to be hinted.
    from worker.process.doorbell import ring  # noqa: PLC0415

    try:
        async with ring(settings, where.redis_url) as doorbell:
            for key, ids in hints.items():
                await doorbell.hint(key.step, ids, urgent=key.urgent)
    except BrokerUnavailable as error:
        warn(f"{error}; the jobs are accepted and start a few seconds later")
