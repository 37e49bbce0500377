"""Renders the prompts of stored requests again, and proves by hash that they are what was sent; makes no call."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import Any
from uuid import UUID

from schemas.generation import Lane
from schemas.job import JobRequest
from schemas.model_call import Prompt, ProviderSnapshot, Role
from schemas.record import GenerationRecord
from tasks.errors import ConfigurationError, InputError, ProviderError
from tasks.ports import Call, JobView, Providers
from tasks.prompting.messages import render_recorded, stored_prompt
from tasks.prompting.templates import load
from worker.ledger.answer_calls import AnswerCall
from worker.ledger.pages import in_pages
from worker.ledger.postgres import PostgresLedger
from worker.operations.replay import ReplayOrder, record_with_messages, stored_prompt_of, views_of

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


def document(proof: PromptProof) -> dict[str, Any]:
    """The proof, for programs."""
    content = asdict(proof)
    renamed = {"messages_sha256": content.pop("sha256"), "first_difference": content.pop("place")}
    return {**content, **renamed, "proven": proof.proven}
