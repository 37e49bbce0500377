"""Puts together everything known of one job, for an audit."""

from itertools import repeat
from typing import Any, NamedTuple
from uuid import UUID

from schemas.job import SourceContext
from schemas.model_call import Prompt
from schemas.record import JobResult
from tasks.errors import NotFound
from tasks.ports import JobDetail
from worker.ledger.postgres import PostgresLedger


class Messages(NamedTuple):
    """The exact messages that were sent for an answer."""

    sha256: str
    proven: bool
    """The hash noted before the call is that of these messages."""
    texts: tuple[tuple[str, str], ...]
    """Role and text of each; the questions to a judge have the role ``question``."""


class Proof(NamedTuple):
    """Proof that the messages kept with an answer are those noted before its call, or its failure."""

    call: str
    """Run, round and purpose, as ``1.0 generate``."""
    sha256: str
    proven: bool


class Audit(NamedTuple):
    """One job as the ledger knows it, its result, the messages sent for it, and a proof for each answer of any round."""

    detail: JobDetail
    result: JobResult
    messages: Messages | None
    proofs: tuple[Proof, ...]


def audit_of(detail: JobDetail, result: JobResult) -> Audit:
    """Puts an audit together from what the ledger tells, and the result made of it."""
    if detail.view.unreadable is not None:
        return Audit(detail, result, None, ())
    contents = [source.content for source in detail.view.request.context]
    # The rows of some answers can't be read.
    readable = [
        (each, Prompt.model_validate(each["prompt"]).snapshot)
        for each in detail.completions
        if "unreadable" not in each
    ]
    proofs = tuple(
        Proof(f"{each['run']}.{each['round']} {each['purpose']}", messages.sha256, messages.proves(contents))
        for each, messages in readable
    )
    record = detail.view.record
    snapshot = record.messages_snapshot if record is not None else None
    # While there is no record yet, the newest answer that won.
    snapshot = snapshot or next((messages for each, messages in reversed(readable) if each["won"]), None)
    if snapshot is None:
        return Audit(detail, result, None, proofs)
    texts = (
        *((role.value, text) for role, text in snapshot.texts(contents)),
        *zip(repeat("question"), snapshot.questions),
    )
    return Audit(detail, result, Messages(snapshot.sha256, snapshot.proves(contents), texts), proofs)


async def find_job(ledger: PostgresLedger, job_or_batch: UUID, name: str) -> JobDetail:
    """Everything known of a job: by its id, or by its custom id or position (``name``) in a batch; raises ``NotFound``."""
    return await ledger.reading.job_detail(await ledger.reading.locate(job_or_batch, name))


async def job_of(ledger: PostgresLedger, job_or_batch: UUID, name: str = "") -> UUID | None:
    """The job of an id, or of a name in a batch; None where the id is a batch's, ``NotFound`` when it is neither's."""
    job_id = await ledger.reading.locate(job_or_batch, name)
    if name or await ledger.reading.views([job_id]):
        return job_id
    try:
        await ledger.reading.batch_status(job_id)
    except NotFound:
        raise NotFound(
            f"{job_id} is neither a batch nor a job of this ledger; 'nightdesk status' lists batches"
        ) from None
    return None


JOB = (
    "job_id", "batch_id", "tenant", "position", "custom_id", "state", "step", "run", "round", "outcome", "held_reason",
    "created_at", "scheduled_at", "started_at", "finished_at", "published_at", "erased_at", "cost_usd", "replay_of",
)  # fmt: skip
"""Of a job itself, for programs and people."""


def to_json(audit: Audit) -> dict[str, Any]:
    """The whole audit, for programs."""
    detail, view, messages = audit.detail, audit.detail.view, audit.messages
    return {
        "result": audit.result.model_dump(mode="json"),
        "job": {name: getattr(view, name) for name in JOB},
        "request": view.request.model_dump(mode="json"),
        "messages": messages and {
            "sha256": messages.sha256,
            "proven_by_hash": messages.proven,
            "messages": [{"role": role, "text": text} for role, text in messages.texts],
        },
        "proofs": [{"call": call, "sha256": sha256, "proven_by_hash": proven} for call, sha256, proven in audit.proofs],
        "records": [record.model_dump(mode="json") for record in detail.records],
        "attempts": detail.attempts,
        "completions": detail.completions,
        "events": detail.events,
        "labels": detail.labels,
        "replays": detail.replays,
    }  # fmt: skip


def source_name(source: SourceContext, number: int) -> str:
    """A name for a source that people recognise, with its place; its number in the question where it came without one."""
    metadata = source.metadata
    derived = source.document_id == SourceContext(content=source.content).document_id
    unnamed = f"source {number} of the question" if derived else source.document_id
    title = next((str(metadata[key]) for key in ("title", "source_path") if metadata.get(key)), unnamed)
    places = [f"{key} {metadata[key]}" for key in ("article", "section", "page") if metadata.get(key) not in {None, ""}]
    return ", ".join([title, *places])
