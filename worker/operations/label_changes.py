"""Takes the labels of people on answers and claims, and exports them as a set to learn from."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from schemas.record import GenerationRecord
from schemas.states import FINAL_STATES
from tasks.errors import InputError, NotFound
from tasks.ports import JobView
from worker.ledger.labels import Label, LabelVerdict
from worker.ledger.postgres import PostgresLedger

MOST_LABELS = 1_000
"""Labels of one job, by all people on all claims: each name that a program sends adds one."""

MOST_NOTE_CHARACTERS = 2_000

_WORDS = {
    **{verdict.value: verdict for verdict in LabelVerdict},
    **dict.fromkeys(("1", "true", "yes", "entailment"), LabelVerdict.SUPPORTED),
    **dict.fromkeys(("0", "false", "no", "not supported", "hallucination", "partial"), LabelVerdict.UNSUPPORTED),
}
"""The words for a verdict, those that 'nightdesk calibrate' reads among them."""


def read_verdict(value: Any, name: str = "verdict") -> LabelVerdict:
    """The verdict of a word or of 1 and 0; raises ``InputError`` for the field ``name``."""
    # True and False are no 1 and 0 in str(), and words of the table.
    word = str(value).strip().lower() if isinstance(value, str | int) else ""
    if word not in _WORDS:
        raise InputError(f"must be one of {', '.join(LabelVerdict)}, or 1 or 0", field=name)
    return _WORDS[word]


# ---- one label -------------------------------------------------------------------------------------------------------


class LabelRequest(NamedTuple):
    """A label as a person gives it: the job by its id, or by its name in a batch.

    Attributes:
        target: id of the job, or of the batch that has a job ``name``.
        claim: number of the claim, from 1; None: the whole answer.
        run: the run whose answer was read; None: the present one.
        actor: the person.
    """

    target: UUID
    verdict: LabelVerdict
    actor: str
    name: str = ""
    claim: int | None = None
    run: int | None = None
    note: str | None = None


def label_of(request: LabelRequest, view: JobView) -> Label:
    """The label on the present answer of a job; raises ``InputError`` naming the field at fault."""
    record = view.record
    if view.erased_at is not None:
        raise InputError(f"job {view.job_id} was erased: there is no answer to label", field="job_id")
    if view.state not in FINAL_STATES or record is None:
        raise InputError(f"job {view.job_id} is not final but {view.state.value}: label it then", field="job_id")
    if request.run is not None and request.run != view.run:
        raise InputError(f"job {view.job_id} was run again: its answer is now that of run {view.run}", field="run")
    if not record.answer.strip():
        raise InputError(f"job {view.job_id} has no answer to label: it ended as {view.state.value}", field="job_id")
    claims = record.grounding.claims if record.grounding is not None else ()
    if request.claim is not None and not 1 <= request.claim <= len(claims):
        numbers = f"from 1 to {len(claims)}" if claims else "none, as its answer has no claims"
        raise InputError(f"job {view.job_id} has no claim {request.claim}; the numbers are {numbers}", field="claim")
    return Label(view.job_id, view.run, request.claim, request.verdict, request.actor, request.note)


async def add_label(ledger: PostgresLedger, request: LabelRequest) -> tuple[Label, JobView]:
    """Stores one label; raises ``NotFound``, ``InputError``."""
    job_id = await ledger.reading.locate(request.target, request.name)
    views = await ledger.reading.views([job_id])
    if not views:
        raise NotFound(f"no job {job_id}")
    label = label_of(request, views[0])
    present = await ledger.labels.of_job(job_id)
    is_new = (label.run, label.claim, label.actor) not in {(each.run, each.claim, each.actor) for each in present}
    if is_new and len(present) >= MOST_LABELS:
        raise InputError(
            f"job {job_id} has {MOST_LABELS:,} labels, as many as are kept; change one by the person who gave it"
        )
    if not await ledger.labels.store([label]):
        raise InputError(f"job {job_id} was run again or erased in this moment", field="job_id")
    return label, views[0]


def checked_text(value: Any, name: str, most: int = MOST_NOTE_CHARACTERS) -> str:
    """A text that can be stored; raises ``InputError``."""
    if not isinstance(value, str) or len(value) > most:
        raise InputError(f"must be a text of at most {most:,} characters", field=name)
    if "\x00" in value or value != value.encode(errors="replace").decode():
        raise InputError("holds U+0000 or half of a surrogate pair; remove it", field=name)
    return value


# ---- the set to learn from -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Exported:
    """Counts of an export."""

    lines: int = 0
    without_label: int = 0
    """Labels that say neither 1 nor 0."""
    stale: int = 0
    """Labels on an answer that is no longer the present one."""


async def exported_labels(
    ledger: PostgresLedger, counts: Exported, batch_id: UUID | None = None
) -> AsyncIterator[dict[str, Any]]:
    """The labels as lines that 'nightdesk calibrate' reads; counts those that are left out."""
    async for page in ledger.labels.pages(batch_id):
        ids = list(dict.fromkeys(label.job_id for label in page))
        views = {view.job_id: view for view in await ledger.reading.views(ids)}
        for label in page:
            view = views.get(label.job_id)
            if label.verdict is LabelVerdict.NOT_CHECKABLE:
                counts.without_label += 1
            elif view is None or view.record is None or view.run != label.run:
                counts.stale += 1
            else:
                counts.lines += 1
                yield _line(label, view, view.record)


def _line(label: Label, view: JobView, record: GenerationRecord) -> dict[str, Any]:
    claims = record.grounding.claims if record.grounding is not None else ()
    claim = claims[label.claim - 1] if label.claim is not None else None
    snapshot, context = record.messages_snapshot, view.request.context
    indexes = snapshot.shown if snapshot is not None else range(len(context))
    text = {"claim": claim.text, "claim_number": label.claim} if claim is not None else {"response": _answer(record)}
    return {
        **text,
        "query": view.request.query,
        "sources": [context[index].content for index in indexes],
        "label": int(label.verdict is LabelVerdict.SUPPORTED),
        "verdict": label.verdict.value,
        "job_id": str(view.job_id),
        "run": label.run,
        "custom_id": view.custom_id,
        "by": label.actor,
        "at": label.at.isoformat() if label.at is not None else None,
        "note": label.note,
    }


def _answer(record: GenerationRecord) -> str:
    """The answer with its citations by the numbers of the prompt, without what was added for readers."""
    if record.canonical is None or not record.canonical.segments:
        return record.answer
    return " ".join(
        "".join([segment.text, *(f" [{citation.source}]" for citation in segment.citations)])
        for segment in record.canonical.segments
    )
