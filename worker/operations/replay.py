"""Sends the stored messages of jobs again, as new jobs that name the old ones."""

import hashlib
import pickle
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from tempfile import SpooledTemporaryFile
from typing import IO, Any, NamedTuple
from uuid import UUID

from schemas.generation import Lane
from schemas.job import GenerationConfig, JobRequest
from schemas.model_call import Prompt
from schemas.record import GenerationRecord
from schemas.states import FINAL_STATES
from tasks.errors import InputError
from tasks.ports import (
    Catalog,
    HintKey,
    JobView,
    NewBatch,
    NewJob,
    Receipt,
    Refused,
    Replay,
    Submitter,
    Turn,
)
from tasks.prompting.templates import load
from tasks.submit import chunked, make_job, new_batch
from worker.ledger.postgres import PostgresLedger
from worker.operations.audit import job_of
from worker.operations.file_intake import CHUNK
from worker.providers.registry import Installation
from worker.settings import Settings

IN_MEMORY_BYTES = 32_000_000
"""Requests of a replay up to this size are held in memory, more in a file without a name."""


# ---- the order -------------------------------------------------------------------------------------------------------


class ReplayOrder(NamedTuple):
    """The jobs to ask again, and the differences from the first time.

    Attributes:
        target: a job or a batch.
        name: of a job in the batch ``target``, by custom id or position; empty for the whole target.
        model: provider and model that answer; None: as before.
        prompt_version: version of the template that the stored request is rendered with; None: the stored messages.
        lane: way of calling the provider; None: as before.
        again: ask anew though the same replay, or a stored answer that may be shared, is there.
        max_cost_usd: ceiling of the new batch.
        default_usd: its ceiling where ``max_cost_usd`` names none and the price of every model is known here.
        submitter: the key of the HTTP service that ordered it; its limits on jobs apply.
    """

    target: UUID
    name: str = ""
    model: Turn | None = None
    prompt_version: str | None = None
    lane: Lane | None = None
    again: bool = False
    max_cost_usd: str | None = None
    default_usd: Decimal | None = None
    submitter: Submitter | None = None


async def views_of(ledger: PostgresLedger, order: ReplayOrder) -> AsyncIterator[JobView]:
    """The jobs of an order, by position; raises ``NotFound``."""
    job_id = await job_of(ledger, order.target, order.name)
    if job_id is not None:
        yield (await ledger.reading.views([job_id]))[0]
        return
    async for view in ledger.reading.batch_views(order.target):
        yield view


def record_with_messages(view: JobView) -> GenerationRecord:
    """The record of a job whose messages can be sent again.

    Raises: ``InputError`` with the reason that there are none.
    """
    record = view.record
    if view.erased_at is not None:
        raise InputError(f"it was erased on {view.erased_at:%Y-%m-%d %H:%M} UTC: its messages and sources are gone")
    if view.unreadable is not None:
        raise InputError(view.unreadable)
    if view.state not in FINAL_STATES:
        raise InputError(f"it is not final but {view.state.value}: wait for it with 'nightdesk watch {view.batch_id}'")
    if view.request.check_only:
        raise InputError(
            "it was handed in with its answer, so no messages were sent; 'nightdesk recheck' checks it again"
        )
    if record is None or record.messages_snapshot is None or record.provider_snapshot is None:
        raise InputError(f"it ended as {view.ending} without an answer of a model, so no messages are stored")
    return record


def stored_prompt_of(record: GenerationRecord) -> Prompt:
    """The prompt of a record with messages."""
    assert record.messages_snapshot is not None
    return Prompt(
        name=record.prompt_name or "",
        version=record.prompt_version or "",
        template_sha256=record.prompt_hash or "",
        snapshot=record.messages_snapshot,
    )


def replayed(view: JobView, order: ReplayOrder) -> tuple[JobRequest, Replay]:
    """The request of the new job, and its link to the old one with the messages to send.

    Raises: ``InputError`` for a job without messages, or a version that its template does not have.
    """
    record = record_with_messages(view)
    prompt, snapshot = stored_prompt_of(record), record.provider_snapshot
    assert snapshot is not None
    turn = order.model or Turn(snapshot.provider, snapshot.model_asked)
    changes: dict[str, Any] = {
        "provider": turn.provider, "model": turn.model, "fallbacks": (), "escalate": (), "prompt_name": prompt.name,
    }  # fmt: skip
    if order.lane is not None:
        changes["lane"] = order.lane
    if order.again:
        changes["share"] = False
    if order.prompt_version is None:
        changes |= {"prompt_version": prompt.version, "answer_protocol": prompt.snapshot.protocol}
    else:
        load(prompt.name, order.prompt_version)
        changes["prompt_version"] = order.prompt_version
    config: GenerationConfig = view.request.config.model_copy(update=changes)
    # Its own ids are those of the first job, and its times are over.
    request = view.request.model_copy(update={"config": config, **dict.fromkeys(_OF_THE_FIRST)})
    return request, Replay(view.job_id, prompt if order.prompt_version is None else None)


_OF_THE_FIRST = ("message_id", "idempotency_key", "scheduled_at", "deadline")


# ---- the new jobs ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ReplayPlan:
    """The new jobs of a replay, ready to be written; ``file`` holds their requests."""

    batch: NewBatch
    file: IO[bytes]
    origins: list[tuple[int, UUID]] = field(default_factory=list)
    """Position and old id of each new job."""
    refused: list[Refused] = field(default_factory=list)
    """Jobs that can't be asked again."""
    warnings: Counter[str] = field(default_factory=Counter)
    priced: bool = True
    """The price of every model is known, by the settings of this process."""

    def add(self, job: NewJob) -> None:
        """Adds a new job."""
        assert job.replay is not None
        self.origins.append((job.position, job.replay.of))
        pickle.dump(job, self.file)

    def jobs(self) -> Iterator[NewJob]:
        """The new jobs, read back."""
        self.file.seek(0)
        for _ in self.origins:
            yield pickle.load(self.file)  # noqa: S301 - a file of this process, without a name


@asynccontextmanager
async def replay_plan(ledger: PostgresLedger, order: ReplayOrder, settings: Settings) -> AsyncIterator[ReplayPlan]:
    """Makes the new jobs of an order, and writes none; raises ``NotFound``, ``InputError``."""
    catalog = Installation(settings, same_for_workers=settings.embedded())
    with SpooledTemporaryFile(IN_MEMORY_BYTES) as file:
        plan: ReplayPlan | None = None
        async for view in views_of(ledger, order):
            plan = plan or ReplayPlan(_batch_of(view, order, settings), file)
            # A job alone is the first of its batch.
            position = view.position if view.batch_id == order.target and not order.name else 0
            _add(plan, view, position, order, catalog)
        if plan is None:
            raise InputError(f"batch {order.target} has no jobs")
        if order.max_cost_usd is None and order.default_usd is not None and plan.priced:
            plan.batch = replace(plan.batch, max_cost_usd=order.default_usd)
        yield plan


def _batch_of(view: JobView, order: ReplayOrder, settings: Settings) -> NewBatch:
    options: dict[str, Any] = {"name": f"replay of {order.target}{':' if order.name else ''}{order.name}"}
    if order.max_cost_usd is not None:
        options["max_cost_usd"] = order.max_cost_usd
    most = settings.most_queued(view.tenant)
    return new_batch(options, tenant=view.tenant, max_queued=most, submitter=order.submitter)


def _add(plan: ReplayPlan, view: JobView, position: int, order: ReplayOrder, catalog: Catalog) -> None:
    try:
        request, replay = replayed(view, order)
        job, warnings = make_job(request, plan.batch, catalog, position=position)
        plan.warnings.update(warnings)
        with_ceiling, without = (
            catalog.objections(request.config, generates=True, priced=each) for each in (True, False)
        )
        plan.priced &= with_ceiling == without
    except InputError as error:
        plan.refused.append(Refused(position, str(error), error.field, view.custom_id, f"job {view.job_id}"))
        return
    # Equal for the same job, run, messages and config.
    messages = replay.prompt.snapshot.sha256 if replay.prompt is not None else ""
    digest = hashlib.sha256(job.request_hash + f"{view.run}:{messages}".encode()).hexdigest()
    key = None if order.again else f"replay:{view.job_id}:{digest[:32]}"
    plan.add(replace(job, idempotency_key=key, replay=replay))


# ---- writing them ----------------------------------------------------------------------------------------------------


class ReplayReceipt(NamedTuple):
    """The new jobs as they stand in the ledger.

    Attributes:
        batch_id: the new batch; None where the ledger had all of these jobs.
        pairs: the old and the new id of each job, by position.
        elsewhere: those new ids that other batches hold: the same replay was ordered before.
        hints: for the workers of the new jobs.
    """

    batch_id: UUID | None
    pairs: Sequence[tuple[UUID, UUID]]
    elsewhere: Sequence[UUID]
    hints: Collection[HintKey]


async def write_replay(ledger: PostgresLedger, plan: ReplayPlan) -> ReplayReceipt:
    """Writes the new jobs as one batch, in one transaction; a replay that was ordered before is found, not written."""
    receipt: Receipt = await ledger.submission.submit(plan.batch, chunked(plan.jobs(), CHUNK), refused=plan.refused)
    # The ledger knows more: the tenant may have a budget, under which a call needs a price.
    plan.refused += receipt.refused
    ids = receipt.ids_by_position(position for position, _ in plan.origins)
    return ReplayReceipt(
        batch_id=None if receipt.nothing_new else receipt.batch_id,
        pairs=[(origin, ids[position]) for position, origin in plan.origins if position in ids],
        elsewhere=list(receipt.elsewhere.values()),
        hints=receipt.hints,
    )
