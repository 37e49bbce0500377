"""Makes the documents of jobs that take long to make, as bytes.

Its functions run in a process of their own, too, which gives all of them the settings.
"""

from itertools import chain
from uuid import UUID

import orjson

from tasks.errors import NotFound
from tasks.ports import JobView
from tasks.results import poll, result_of
from worker.http.response_document import document_of
from worker.http.response_events import first_events, last_events, line_of
from worker.ledger.postgres import PostgresLedger
from worker.operations.audit import audit_of, find_job, to_json
from worker.settings import Settings


async def write_result(ledger: PostgresLedger, _: Settings, job_id: UUID) -> bytes:
    """The result of a job."""
    (result,) = await poll(ledger.reading, [job_id])
    if result is None:
        raise NotFound(f"no job {job_id}")
    return result.model_dump_json().encode()


async def write_record(ledger: PostgresLedger, _: Settings, job_id: UUID) -> bytes:
    """Everything known of a job."""
    detail = await find_job(ledger, job_id, "")
    return orjson.dumps(to_json(audit_of(detail, result_of(detail.view))), default=str)


async def write_response(ledger: PostgresLedger, _: Settings, job_id: UUID) -> bytes:
    """The response of a final job in the form of OpenAI's API."""
    view = await read_view(ledger, job_id)
    return orjson.dumps(document_of(view, result_of(view)), default=str)


async def write_events(ledger: PostgresLedger, _: Settings, job_id: UUID, after: int) -> bytes:
    """The events of such a response after one, as they are sent."""
    view = await read_view(ledger, job_id)
    result = result_of(view)
    document = document_of(view, result)
    events = enumerate(chain(first_events(document), last_events(document, view, result)))
    return b"".join([line_of(event, number) for number, event in events if number > after])


async def read_view(ledger: PostgresLedger, job_id: UUID) -> JobView:
    """The view of a job; raises ``NotFound``."""
    views = await ledger.reading.views([job_id])
    if not views:
        raise NotFound(f"no job {job_id}")
    return views[0]
