"""Ends jobs without a worker: the part that cancelling and expiring share, each with its audit record."""

from schemas import CONTRACT_VERSION


def closing_statement(which: str) -> str:
    """A statement that ends the jobs of a subquery ``which`` (yielding ``id``, locked) and returns their ids.

    Named parameters: ``state``, ``event``, ``actor``, ``message``, ``kind`` and those of ``which``. A running job's lease ends
    here; its holder learns so at the next renewal, and what its call still costs lands on the attempt.
    """
    return f"""
WITH chosen AS ({which}
), ended AS (
    UPDATE job j SET state = %(state)s, finished_at = nightdesk_now(), held_reason = NULL, hinted_at = NULL,
                     lease_token = NULL, lease_until = NULL, result_published_at = NULL
    FROM chosen c WHERE j.id = c.id
    RETURNING j.id, j.run, j.tenant, j.created_at
), noted AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, %(event)s, %(actor)s, '{{}}'::jsonb FROM ended
), recorded AS (
    INSERT INTO generation_record (job_id, run, tenant, message_id, retrieval_record_id, trace_id, request_id,
                                   contract_version, answer, output_format, citations, quality, status, error_message,
                                   failure, timing_ms, created_at)
    SELECT e.id, e.run, e.tenant, coalesce(r.request ->> 'message_id', e.id::text),
           r.request ->> 'retrieval_record_id', r.request ->> 'trace_id', r.request ->> 'request_id',
           {CONTRACT_VERSION}, '', coalesce(r.request #>> '{{config,output_format}}', 'markdown'), '[]'::jsonb,
           '{{}}'::jsonb, 'failed', %(message)s,
           jsonb_build_object('kind', %(kind)s::text, 'message', %(message)s::text, 'at', nightdesk_now()),
           jsonb_build_object('total', extract(epoch FROM nightdesk_now() - e.created_at) * 1000), nightdesk_now()
    FROM ended e JOIN job_request r ON r.job_id = e.id
)
SELECT id FROM ended
"""
