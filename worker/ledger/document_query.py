"""Selects what results are made of: each as JSON by name, for a few; as a document without names, for a whole batch."""

_FIELDS = {
    "job_id": "j.id",
    "custom_id": "j.custom_id",
    "position": "j.position",
    "batch_id": "j.batch_id",
    "message_id": "coalesce(q.message_id, j.id::text)",
    "trace_id": "q.trace_id",
    "state": "j.state",
    "outcome": "j.outcome",
    "held_reason": "j.held_reason",
    "query": "q.query",
    "response": "g.answer",
    "output_format": "g.output_format",
    "citations": "g.citations",
    "sources_provided": """CASE jsonb_typeof(q.context) WHEN 'number' THEN q.context::int
                                WHEN 'array' THEN jsonb_array_length(q.context) ELSE 0 END""",
    "structured": "g.output_structured",
    "usage": "g.usage",
    # The price of a call is unknown, and with it the cost of its job. As text no digit is lost.
    "cost_usd": """CASE WHEN (SELECT true FROM attempt WHERE job_id = j.id AND cost_usd IS NULL AND closed_at IS NOT NULL LIMIT 1)
                             IS NULL THEN j.cost_usd::text END""",
    "asks": "g.asks",
    "prompt_version": "g.prompt_version",
    "replay_of": "j.replay_of",
    "timing_ms": "g.timing_ms",
    "provider_snapshot": "g.provider_snapshot",
    "failure": "g.failure",
    "metadata": "q.metadata",
}
"""The columns of the fields of a result, with the values of the record as they are stored."""

NAMED = {
    **_FIELDS,
    "citations": "coalesce(g.citations, '[]')",
    "grounding_score": "n.grounding_score",
    "confidence": "n.confidence",
    "answer_quality": "a.answer_quality",
    "sufficient_context": "a.sufficient_context",
    "reasoning": "coalesce(a.reasoning, '')",
    "abstain_reason": "a.abstain_reason",
    "warnings": "coalesce(a.warnings, '[]')",
    "claims": "coalesce(n.claims, '[]')",
    "values": "coalesce(n.\"values\", '[]')",
    "usage": "coalesce(g.usage, c.parsed -> 'usage')",
    "asks": "coalesce(g.asks, '[]')",
    "provider_snapshot": "coalesce(g.provider_snapshot, c.parsed -> 'snapshot')",
}
"""The same with the parts of a record taken apart, and with what it has from its answer: every field that has a column."""

ELEMENTS = {
    "grounding": "g.grounding",
    "quality": "g.quality",
    # Usage and snapshot of the answer that the record refers to.
    "answer": """(SELECT json_build_array(parsed -> 'usage', parsed -> 'snapshot') FROM completion
                  WHERE attempt_id = g.attempt_id)""",
    "errors": "j.errors",
    **_FIELDS,
}
"""The elements of a document in their order: four parts, and the fields of a result that stand in none of them."""

_IS_WHOLE = "g.job_id IS NOT NULL AND j.erased_at IS NULL"
"""Of a final job with a record whose content was not erased."""

_NAMED_RESULT = f"""
    CASE WHEN {_IS_WHOLE} THEN (
        SELECT row_to_json(f)::text FROM (SELECT {", ".join(f'{column} AS "{name}"' for name, column in NAMED.items())}) f
    ) END
"""

# A third less of the server's time than by name, with the parts taken apart: where there are many, that counts for more than the
# second reading that it takes here.
_DOCUMENT = f"CASE WHEN {_IS_WHOLE} THEN json_build_array({', '.join(ELEMENTS.values())}) END"

# Row by row by the keys: a join may read whole tables, by statistics of a time when they were small. What is stored out of line is
# read out once a job: by any other way each of its parts fetches the whole of it again, a request with all its sources.
_JOINS = """
CROSS JOIN LATERAL (SELECT head FROM job_request WHERE job_id = j.id LIMIT 1) r
CROSS JOIN LATERAL jsonb_to_record(r.head)
    AS q(query text, message_id text, trace_id text, metadata jsonb, context jsonb)
LEFT JOIN LATERAL (
    SELECT * FROM generation_record WHERE job_id = j.id AND run = j.run AND j.finished_at IS NOT NULL LIMIT 1
) g ON true
"""

_PARTS = """
LEFT JOIN LATERAL (SELECT parsed FROM completion WHERE attempt_id = g.attempt_id LIMIT 1) c ON true
LEFT JOIN LATERAL jsonb_to_record(g.grounding)
    AS n(grounding_score jsonb, confidence jsonb, claims jsonb, "values" jsonb) ON true
LEFT JOIN LATERAL jsonb_to_record(g.quality)
    AS a(answer_quality jsonb, sufficient_context jsonb, reasoning text, abstain_reason text, warnings jsonb) ON true
"""

RESULTS = f"""
SELECT j.id, j.errors, {_NAMED_RESULT} AS result, g.packed
FROM unnest(%(ids)b::uuid[]) WITH ORDINALITY AS d(id, ord) CROSS JOIN LATERAL (SELECT * FROM job WHERE id = d.id LIMIT 1) j
{_JOINS} {_PARTS} ORDER BY d.ord
"""

# A range and no limit, so that the next page can be read before the last row of this one is known.
BATCH_RESULTS = f"""
SELECT j.id, {_DOCUMENT}, g.packed
FROM (SELECT * FROM job WHERE batch_id = '{{batch_id}}' AND position BETWEEN {{first}} AND {{last}} ORDER BY position) j
{_JOINS} ORDER BY j.position
"""
