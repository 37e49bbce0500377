"""Ends jobs without a worker: the part that cancelling and expiring share, each with its audit record."""

from collections.abc import AsyncIterator, Sequence
from uuid import UUID

from schemas import CONTRACT_VERSION
from schemas.failure import FailureKind
from tasks.ports import OnPage
from worker.ledger.database import Database
from worker.ledger.pages import change_by, change_pages


def closing_statement(which: str, *, message: str = "%(message)s::text") -> str:
    """A statement that ends the jobs of a subquery ``which`` (yielding ``id``, locked) and returns their ids.

    Named parameters: ``state``, ``event``, ``actor``, ``message``, ``kind`` and those of ``which``. A running job's lease ends
    here; its holder learns so at the next renewal, and what its call still costs lands on the attempt. ``message`` is an
    expression that may speak of the row ``ended_job``.
    """
    return f"""
WITH locked_job AS ({which}
), ended_job AS (
    UPDATE job j SET state = %(state)s, finished_at = nightdesk_now(), held_reason = NULL, hinted_at = NULL,
                     lease_token = NULL, lease_until = NULL, result_published_at = NULL
    FROM locked_job c WHERE j.id = c.id
    RETURNING j.id, j.run, j.tenant, j.created_at
), event AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, %(event)s, %(actor)s, '{{}}'::jsonb FROM ended_job
), record AS (
    INSERT INTO generation_record (job_id, run, tenant, message_id, retrieval_record_id, trace_id, request_id,
                                   contract_version, answer, output_format, citations, quality, status, error_message,
                                   failure, timing_ms, created_at)
    SELECT ended_job.id, ended_job.run, ended_job.tenant, coalesce(r.request ->> 'message_id', ended_job.id::text),
           r.request ->> 'retrieval_record_id', r.request ->> 'trace_id', r.request ->> 'request_id',
           {CONTRACT_VERSION}, '', coalesce(r.request #>> '{{config,output_format}}', 'markdown'), '[]'::jsonb,
           '{{}}'::jsonb, 'failed', m.text,
           jsonb_build_object('kind', %(kind)s::text, 'message', m.text, 'at', nightdesk_now()),
           jsonb_build_object('total', extract(epoch FROM nightdesk_now() - ended_job.created_at) * 1000), nightdesk_now()
    FROM ended_job JOIN job_request r ON r.job_id = ended_job.id CROSS JOIN LATERAL (SELECT {message} AS text) m
)
SELECT id FROM ended_job
"""


_CANCEL = closing_statement("""
    SELECT id FROM job WHERE id = ANY(%(ids)b::uuid[]) AND finished_at IS NULL ORDER BY id FOR NO KEY UPDATE
""")


async def cancel_pages(db: Database, pages: AsyncIterator[Sequence[UUID]], actor: str, on_page: OnPage) -> list[UUID]:
    """Cancel those jobs of some pages that are not final; returns their ids."""
    parameters = {
        "state": "cancelled",
        "event": "cancel",
        "actor": actor,
        "message": f"cancelled by {actor}",
        "kind": FailureKind.CANCELLED.value,
    }
    return await change_pages(pages, change_by(db, _CANCEL, parameters), on_page)
