"""Sends the stored messages of jobs again, as new jobs that name the old ones, or proves by hash that they are what was sent."""

import hashlib
import pickle
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from itertools import zip_longest
from tempfile import SpooledTemporaryFile
from typing import IO, Any, NamedTuple
from uuid import UUID

from schemas.generation import Lane
from schemas.job import GenerationConfig, JobRequest
from schemas.model_call import Prompt, ProviderSnapshot, Role
from schemas.record import GenerationRecord
from schemas.states import FINAL_STATES, Step
from tasks.errors import ConfigurationError, InputError, ProviderError
from tasks.ports import (
    FEW_JOBS,
    Call,
    Catalog,
    HintKey,
    JobView,
    NewBatch,
    NewJob,
    Providers,
    Receipt,
    Refused,
    Replay,
    Submitter,
    Turn,
)
from tasks.prompting.messages import render_recorded, stored_prompt
from tasks.prompting.templates import load
from tasks.submit import check_served, chunked, new_batch, new_job, unknown_price
from worker.ledger.answer_calls import AnswerCall
from worker.ledger.pages import in_pages
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
    """The record of a job whose messages can be sent or rendered again.

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
        ending = view.outcome.value if view.outcome is not None else view.state.value
        raise InputError(f"it ended as {ending} without an answer of a model, so no messages are stored")
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
    warnings: dict[str, int] = field(default_factory=dict)
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
        for warning in check_served(request, catalog, priced=plan.batch.max_cost_usd is not None):
            plan.warnings[warning] = plan.warnings.get(warning, 0) + 1
        job = new_job(request, position=position, tenant=plan.batch.tenant, unpriced=unknown_price(request, catalog))
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
        hints: the new jobs by their hints, where they are few.
    """

    batch_id: UUID | None
    pairs: Sequence[tuple[UUID, UUID]]
    elsewhere: Sequence[UUID]
    hints: Mapping[HintKey, Sequence[UUID]]


async def write_replay(ledger: PostgresLedger, plan: ReplayPlan) -> ReplayReceipt:
    """Writes the new jobs as one batch, in one transaction; a replay that was ordered before is found, not written."""
    receipt: Receipt = await ledger.submission.submit(plan.batch, chunked(plan.jobs(), CHUNK), refused=plan.refused)
    # The ledger knows more: the tenant may have a budget, under which a call needs a price.
    plan.refused += receipt.refused
    ids = receipt.ids_by_position(position for position, _ in plan.origins)
    hint = 0 < len(receipt.available) <= FEW_JOBS
    return ReplayReceipt(
        batch_id=None if receipt.nothing_new else receipt.batch_id,
        pairs=[(origin, ids[position]) for position, origin in plan.origins if position in ids],
        elsewhere=list(receipt.elsewhere.values()),
        hints={HintKey(Step.GENERATE, urgent=False): receipt.available} if hint else {},
    )


PAGE = 100
"""Jobs whose calls are read at a time."""

EXCERPT = 60
"""Characters shown from the first difference on."""


class Finding(StrEnum):
    """The result of a comparison with what was sent."""

    IDENTICAL = "identical"
    """Rendered again it is the same, byte for byte."""
    STORED = "stored"
    """A replay: its messages were taken from the record of another job, and still give their hash."""
    DIFFERENT = "different"
    """It is rendered otherwise today, or what is stored is not what was sent."""
    UNKNOWN = "unknown"
    """It can't be compared."""


@dataclass(frozen=True, slots=True)
class Place:
    """The first place where two lists of messages differ; a text is None where a message is missing."""

    message: int
    character: int
    role: str
    before: str | None
    now: str | None


@dataclass(frozen=True, slots=True)
class PromptProof:
    """The proof of one job.

    Attributes:
        messages: of the prompt, rendered again.
        body: of the whole body of the call, with its parameters.
        reasons: the cause of each difference, and of what can't be compared.
        sha256: recorded hash of the messages; None where there are none.
        place: the first difference of the messages.
    """

    job_id: UUID
    position: int
    custom_id: str | None
    messages: Finding
    body: Finding
    reasons: tuple[str, ...] = ()
    sha256: str | None = None
    body_sha256: str | None = None
    place: Place | None = None

    @property
    def proven(self) -> bool:
        """True if the messages are those that were sent."""
        return self.messages in {Finding.IDENTICAL, Finding.STORED}


async def proofs(ledger: PostgresLedger, order: ReplayOrder, providers: Providers) -> AsyncIterator[PromptProof]:
    """The proof of each job of an order, by position; raises ``NotFound``."""
    async for page in in_pages(views_of(ledger, order), PAGE):
        calls = await ledger.answer_calls.read([view.job_id for view in page])
        for view in page:
            yield prove(view, calls.get(view.job_id), providers)


def prove(view: JobView, call: AnswerCall | None, providers: Providers) -> PromptProof:
    """Renders the prompt of a job again and compares it with its record."""
    ids = (view.job_id, view.position, view.custom_id)
    try:
        record = record_with_messages(view)
    except InputError as error:
        return PromptProof(*ids, Finding.UNKNOWN, Finding.UNKNOWN, (str(error),))
    prompt = stored_prompt_of(record)
    try:
        whole = stored_prompt(view.request, prompt)
    except InputError as error:
        reason = f"{error}: the stored request was changed since, or a source removed"
        return PromptProof(*ids, Finding.DIFFERENT, Finding.UNKNOWN, (reason,), prompt.snapshot.sha256)
    messages, reasons, place = _messages(view.request, prompt, call)
    body, more = _body(view.request, record, whole, call, providers)
    digest = call.body_sha256.hex() if call is not None and call.body_sha256 is not None else None
    return PromptProof(*ids, messages, body, (*reasons, *more), prompt.snapshot.sha256, digest, place)


# ---- the messages ----------------------------------------------------------------------------------------------------


def _messages(
    request: JobRequest, prompt: Prompt, call: AnswerCall | None
) -> tuple[Finding, tuple[str, ...], Place | None]:
    if call is not None and call.pinned:
        return Finding.STORED, (), None
    reasons = []
    try:
        template = load(prompt.name, prompt.version)
        if template.sha256 != prompt.template_sha256:
            change = f"recorded {prompt.template_sha256[:12]}, now {template.sha256[:12]}"
            reasons.append(f"the template {prompt.name}@{prompt.version} was changed: {change}")
        again = render_recorded(request, prompt, call.correction if call is not None else None)
    except InputError as error:
        return Finding.DIFFERENT, (f"it can't be rendered by this version: {error}",), None
    if again.snapshot.sha256 == prompt.snapshot.sha256:
        # A template may change where this request does not show it.
        return Finding.IDENTICAL, (), None
    contents = [source.content for source in request.context]
    place = _first_difference(prompt.snapshot.texts(contents), again.snapshot.texts(contents))
    code_changed = (
        f"the template {prompt.name}@{prompt.version} and the sources are those of the call, so the code that fills "
        "the template has changed since"
    )
    return Finding.DIFFERENT, tuple(reasons or [code_changed]), place


def _first_difference(before: Sequence[tuple[Role, str]], now: Sequence[tuple[Role, str]]) -> Place | None:
    for number, (old, new) in enumerate(zip_longest(before, now), start=1):
        if old == new:
            continue
        role = (old or new)[0].value
        if old is None or new is None or old[0] is not new[0]:
            return Place(number, 0, role, old and _excerpt(old[1], 0), new and _excerpt(new[1], 0))
        shorter = min(len(old[1]), len(new[1]))
        at = next((at for at in range(shorter) if old[1][at] != new[1][at]), shorter)
        return Place(number, at, role, _excerpt(old[1], at), _excerpt(new[1], at))
    return None


def _excerpt(text: str, at: int) -> str:
    return text[at : at + EXCERPT] + ("…" if len(text) > at + EXCERPT else "")


# ---- the body --------------------------------------------------------------------------------------------------------


def _body(
    request: JobRequest, record: GenerationRecord, prompt: Prompt, call: AnswerCall | None, providers: Providers
) -> tuple[Finding, tuple[str, ...]]:
    """Plans the call of a record with its stored messages, by the present settings."""
    snapshot = record.provider_snapshot
    assert snapshot is not None
    if call is None or call.body_sha256 is None:
        return Finding.UNKNOWN, ("the call of this answer is no longer stored, so its body can't be compared",)
    changes = {"model": snapshot.model_asked, "lane": Lane(snapshot.lane)}
    config = request.config.model_copy(update=changes)
    try:
        planned = providers.get(snapshot.provider).plan(request.model_copy(update={"config": config}), prompt)
    except (ConfigurationError, InputError, ProviderError) as error:
        return Finding.UNKNOWN, (f"the body of the call can't be made by the present settings: {error}",)
    if planned.request_hash == call.body_sha256:
        return Finding.IDENTICAL, ()
    return Finding.DIFFERENT, (_changed_parameters(snapshot, planned),)


def _changed_parameters(snapshot: ProviderSnapshot, planned: Call) -> str:
    before, now = snapshot.parameters_sent, planned.parameters_sent
    changes = [
        f"{name} {_value(before, name)} -> {_value(now, name)}"
        for name in dict.fromkeys((*before, *now))
        if before.get(name) != now.get(name)
    ]
    if changes:
        return f"the present settings make other parameters of the call: {', '.join(changes)}"
    return (
        "the messages and parameters of the call are the same, so the code that writes its body, or the schema of the "
        "reply, has changed since"
    )


def _value(parameters: dict[str, Any], name: str) -> str:
    return repr(parameters[name]) if name in parameters else "none"


def proof_document(proof: PromptProof) -> dict[str, Any]:
    """The proof, for programs."""
    content = asdict(proof)
    renamed = {"messages_sha256": content.pop("sha256"), "first_difference": content.pop("place")}
    return {**content, **renamed, "proven": proof.proven}
