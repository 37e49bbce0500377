"""The routes of labels: the verdict of a person on an answer or a claim, and the labels of a batch to learn from."""

from collections.abc import AsyncIterator

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from tasks.errors import InputError
from worker.http.bodies import parse_json, read_body
from worker.http.dependencies import OwnBatch, OwnJob, Reader, Reviewer, ServiceOf
from worker.http.documents import PRIVATE, StoredLabel, body_of, json_answer, problems
from worker.ledger.postgres import PostgresLedger
from worker.operations.label_changes import Exported, add_label, exported_labels, read_label

router = APIRouter(prefix="/v1", tags=["labels"])

LINES = "application/x-ndjson"

MOST_BYTES = 100_000
"""Of the body of a label: a note has at most 2,000 characters."""

MOST_PERSON_CHARACTERS = 100


@router.post(
    "/jobs/{job_id}/labels",
    response_model=StoredLabel,
    responses=problems(400, 404, 408, 413, 415),
    openapi_extra=body_of({"$ref": "#/components/schemas/LabelOrder"}),
)
async def label(request: Request, service: ServiceOf, caller: Reviewer, job: OwnJob) -> Response:
    """Store the verdict of a person on the answer of a final job, or on one claim of it; the person's newer one replaces it."""
    raw = parse_json(await read_body(request, MOST_BYTES))
    order = raw if not isinstance(raw, dict) else {**raw, "job_id": str(job.job_id), "by": _person(raw, caller.name)}
    stored, _ = await add_label(service.ledger, read_label(order, caller.name))
    document = StoredLabel(
        job_id=stored.job_id,
        run=stored.run,
        claim=stored.claim,
        verdict=stored.verdict.value,
        by=stored.actor,
        note=stored.note,
    )
    return json_answer(document)


def _person(raw: dict[str, object], key_name: str) -> str:
    """The name of the key, and of the person whom a program names: no key labels in another one's name."""
    person = raw.get("by")
    if person is None or person == "":
        return key_name
    if not isinstance(person, str) or len(person) > MOST_PERSON_CHARACTERS:
        raise InputError(f"must be a text of at most {MOST_PERSON_CHARACTERS} characters", field="by")
    return f"{key_name}/{person}"


@router.get("/batches/{batch_id}/labels", responses={200: {"content": {LINES: {}}}, **problems(404)})
async def labels(service: ServiceOf, caller: Reader, batch_id: OwnBatch) -> Response:
    """The labels of a batch as lines that `nightdesk calibrate` reads, in the order in which they came."""

    async def lines(ledger: PostgresLedger) -> AsyncIterator[bytes]:
        async for line in exported_labels(ledger, Exported(), batch_id):
            yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)

    return StreamingResponse(service.bulk.stream(caller.tenant, lines), headers=PRIVATE, media_type=LINES)
