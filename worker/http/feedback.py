"""The routes of labels: the verdict of a person on an answer or a claim, and the labels of a batch to learn from."""

from collections.abc import AsyncIterator

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from tasks.submit import validated
from worker.http.bodies import parse_json, read_body
from worker.http.dependencies import OwnBatch, OwnJob, Reader, Reviewer, ServiceOf
from worker.http.documents import PRIVATE, LabelOrder, StoredLabel, body_of, json_answer, problems
from worker.ledger.postgres import PostgresLedger
from worker.operations.label_changes import Exported, LabelRequest, add_label, exported_labels

router = APIRouter(prefix="/v1", tags=["labels"])

LINES = "application/x-ndjson"

MOST_BYTES = 100_000
"""Of the body of a label: a note has at most 2,000 characters."""


@router.post(
    "/jobs/{job_id}/labels",
    response_model=StoredLabel,
    responses=problems(400, 404, 408, 413, 415),
    openapi_extra=body_of({"$ref": "#/components/schemas/LabelOrder"}),
)
async def label(request: Request, service: ServiceOf, caller: Reviewer, job: OwnJob) -> Response:
    """Store the verdict of a person on the answer of a final job, or on one claim of it; the person's newer one replaces it."""
    order: LabelOrder = validated(LabelOrder, parse_json(await read_body(request, MOST_BYTES)))
    # No key labels in another one's name.
    person = f"{caller.name}/{order.by}" if order.by else caller.name
    label_request = LabelRequest(
        job.job_id, order.verdict, person, claim=order.claim, run=order.run, note=order.note or None
    )
    stored, _ = await add_label(service.ledger, label_request)
    document = StoredLabel(
        job_id=stored.job_id,
        run=stored.run,
        claim=stored.claim,
        verdict=stored.verdict.value,
        by=stored.actor,
        note=stored.note,
    )
    return json_answer(document)


@router.get("/batches/{batch_id}/labels", responses={200: {"content": {LINES: {}}}, **problems(404)})
async def labels(service: ServiceOf, caller: Reader, batch_id: OwnBatch) -> Response:
    """The labels of a batch as lines that `nightdesk calibrate` reads, in the order in which they came."""

    async def lines(ledger: PostgresLedger) -> AsyncIterator[bytes]:
        async for line in exported_labels(ledger, Exported(), batch_id):
            yield orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)

    return StreamingResponse(service.stream(caller, lines), headers=PRIVATE, media_type=LINES)
