"""Takes the labels of people on answers and claims, from a command or a file, and exports them as a set to learn from."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from schemas.record import GenerationRecord
from schemas.states import FINAL_STATES
from tasks.errors import InputError, NotFound
from tasks.ports import JobView
from worker.ledger.labels import Label, LabelVerdict
from worker.ledger.postgres import PostgresLedger
from worker.operations.input_rows import Row, RowKind, reading

PAGE = 200
"""Lines, and labels, that are read and written at a time."""

MOST_LABELS = 1_000
"""Labels of one job, by all people on all claims: each name that a program sends adds one."""

MOST_NOTE_CHARACTERS = 2_000

MOST_ACTOR_CHARACTERS = 256

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


# ---- a file ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Imported:
    """Counts of an import."""

    lines: int = 0
    stored: int = 0
    refused: list[str] = field(default_factory=list)
    """Place and fault of each line that was left out."""


async def import_labels(ledger: PostgresLedger, file: str, actor: str, done: Imported) -> None:
    """Stores the labels of a file, page by page; a bad line is refused alone.

    Args:
        ledger: open.
        file: in any form that a file of jobs has; ``-`` is standard input.
        actor: the person of lines that name none.
        done: counts them, also where the file can't be read to its end.
    """

    def refuse(place: str, error: InputError | NotFound) -> None:
        done.refused.append(f"{place}: {error}")

    with reading(file, _LABELS) as source:
        while page := list(islice(source.rows, PAGE)):
            done.lines += len(page)
            requests: list[tuple[str, LabelRequest, UUID]] = []
            for row in page:
                try:
                    request = read_label(_value(row, cells=source.form.cells), actor)
                    requests.append((row.place, request, await ledger.reading.locate(request.target, request.name)))
                except (InputError, NotFound) as error:
                    refuse(row.place, error)
            done.stored += await _store(ledger, requests, refuse)


async def _store(
    ledger: PostgresLedger,
    requests: Sequence[tuple[str, LabelRequest, UUID]],
    refuse: Callable[[str, InputError | NotFound], None],
) -> int:
    """Stores a page; of two labels of one person on one claim the later line holds."""
    ids = dict.fromkeys(job_id for _, _, job_id in requests)
    views = {view.job_id: view for view in await ledger.reading.views(list(ids))}
    labels: dict[tuple[UUID, int | None, str], Label] = {}
    for place, request, job_id in requests:
        if (view := views.get(job_id)) is None:
            refuse(place, InputError(f"no job {job_id}", field="job_id"))
            continue
        try:
            label = label_of(request, view)
            labels[label.job_id, label.claim, label.actor] = label
        except InputError as error:
            refuse(place, error)
    return await ledger.labels.store(list(labels.values())) if labels else 0


_LABELS = RowKind(lambda headings: bool({"verdict", "label"} & set(headings)), "labels", "verdict", results=True)

_NUMBERS = ("claim", "claim_number", "position", "run")


def _value(row: Row, *, cells: bool) -> Any:
    if row.error is not None:
        raise row.error
    if not cells:
        return row.value
    filled = {name: cell for name, cell in row.value.items() if cell not in {None, ""}}
    return {name: int(cell) if name in _NUMBERS and str(cell).isdecimal() else cell for name, cell in filled.items()}


def read_label(raw: Any, actor: str) -> LabelRequest:
    """The label of a line; raises ``InputError`` naming the field.

    The job is ``job_id``, or ``batch_id`` with ``custom_id`` or ``position``. The claim is its number, ``claim_number`` or
    ``claim``. The verdict is ``verdict``, or else ``label`` as 'nightdesk calibrate' reads it.
    """
    if not isinstance(raw, dict):
        raise InputError("is not a JSON object")
    target, name = _target(raw)
    key = "verdict" if raw.get("verdict") is not None else "label"
    if raw.get(key) is None:
        raise InputError(f"is missing; it is one of {', '.join(LabelVerdict)}", field="verdict")
    # Of an exported line 'claim' is the text of the claim.
    claim_key = "claim" if raw.get("claim_number") is None and not isinstance(raw.get("claim"), str) else "claim_number"
    return LabelRequest(
        target,
        read_verdict(raw[key], key),
        _text(raw, "by", MOST_ACTOR_CHARACTERS) or actor,
        name,
        claim=_number(raw, claim_key),
        run=_number(raw, "run"),
        note=_text(raw, "note", MOST_NOTE_CHARACTERS),
    )


def _target(raw: Mapping[str, Any]) -> tuple[UUID, str]:
    key = "job_id" if raw.get("job_id") is not None else "batch_id"
    if raw.get(key) is None:
        raise InputError("is missing: give it, or batch_id with custom_id or position", field="job_id")
    try:
        target = UUID(str(raw[key]))
    except ValueError:
        raise InputError(f"{raw[key]!r} is no id", field=key) from None
    if key == "job_id":
        return target, ""
    for name in ("custom_id", "position"):
        if raw.get(name) is not None:
            return target, str(raw[name])
    raise InputError("is missing: batch_id alone names no job", field="custom_id")


def _number(raw: Mapping[str, Any], name: str) -> int | None:
    value = raw.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 32_767:  # noqa: PLR2004 - of the column
        raise InputError("must be a number, counted from 1", field=name)
    return value


def _text(raw: Mapping[str, Any], name: str, most: int) -> str | None:
    value = raw.get(name)
    return None if value in (None, "") else checked_text(value, name, most)


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
