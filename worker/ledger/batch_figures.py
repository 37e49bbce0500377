"""Reads the figures of a batch for its report: counted by PostgreSQL, in one snapshot, with no row a job."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from schemas.batch import FailureCause
from schemas.failure import FailureKind
from schemas.grounding import Verdict
from tasks.ports import ROUNDS_PER_LEVEL
from worker.ledger.database import Store
from worker.ledger.fleet import known_kind

BUCKETS = 48
"""Spans of time between the first call and the last end."""

BINS = 20
"""Of a score from 0 to 1."""

WITHIN_S = 300.0
"""Seconds that the whole snapshot may take."""

Rows = list[dict[str, Any]]

_PRICED = "NOT EXISTS (SELECT FROM attempt u WHERE u.job_id = j.id AND u.cost_usd IS NULL AND u.closed_at IS NOT NULL)"
"""The price of each call of a job j is known; else its cost is not."""

_SPAN = """
SELECT min(coalesce(started_at, created_at)) AS began, max(finished_at) AS ended
FROM job WHERE batch_id = %(batch_id)s AND finished_at IS NOT NULL
"""

_THROUGHPUT = """
WITH span AS (
    SELECT min(coalesce(started_at, created_at)) AS began, max(finished_at) + interval '1 millisecond' AS ended
    FROM job WHERE batch_id = %(batch_id)s AND finished_at IS NOT NULL
)
SELECT width_bucket(extract(epoch FROM j.finished_at), extract(epoch FROM s.began), extract(epoch FROM s.ended),
                    %(buckets)s) AS bucket, coalesce(j.outcome, j.state) AS ending, count(*) AS jobs
FROM job j CROSS JOIN span s WHERE j.batch_id = %(batch_id)s AND j.finished_at IS NOT NULL AND s.began < s.ended
GROUP BY 1, 2 ORDER BY 1, 2
"""

_LATENCY = """
SELECT t.key AS part, count(*) AS jobs,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY t.value::float8) AS p50,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY t.value::float8) AS p95
FROM job j JOIN generation_record g ON g.job_id = j.id AND g.run = j.run
CROSS JOIN LATERAL jsonb_each_text(g.timing_ms) t
WHERE j.batch_id = %(batch_id)s AND j.finished_at IS NOT NULL AND t.value IS NOT NULL AND t.value::float8 > 0
GROUP BY t.key ORDER BY p50 DESC, t.key
"""

_CALLS = """
SELECT a.provider, a.model, a.lane, a.purpose, a.round, count(*) AS calls,
       count(*) FILTER (WHERE a.outcome LIKE 'error:%%') AS errors,
       count(*) FILTER (WHERE a.outcome = 'unknown') AS unknown,
       coalesce(sum((a.usage ->> 'input_tokens')::int8), 0)::int8 AS input_tokens,
       coalesce(sum((a.usage ->> 'cached_input_tokens')::int8), 0)::int8 AS cached_tokens,
       coalesce(sum((a.usage ->> 'output_tokens')::int8), 0)::int8 AS output_tokens,
       CASE WHEN bool_and(a.cost_usd IS NOT NULL) THEN sum(a.cost_usd) END AS cost_usd
FROM job j JOIN attempt a ON a.job_id = j.id
WHERE j.batch_id = %(batch_id)s AND a.closed_at IS NOT NULL AND a.shared_from IS NULL
GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
"""

_SCORES = """
SELECT s.name, least(width_bucket(s.score, 0, 1, %(bins)s), %(bins)s) AS bin, count(*) AS jobs
FROM job j JOIN generation_record g ON g.job_id = j.id AND g.run = j.run
CROSS JOIN LATERAL (VALUES ('grounding', (g.grounding ->> 'grounding_score')::float8),
                           ('decided', (SELECT avg((c.verdict NOT IN ('undecided', 'unchecked'))::int * c.claims::float8) / avg(c.claims::float8)
                                        FROM jsonb_each_text(g.grounding -> 'counts') c(verdict, claims)
                                        WHERE c.verdict <> 'not_checkable'))) s(name, score)
WHERE j.batch_id = %(batch_id)s AND j.state = 'completed' AND s.score IS NOT NULL
GROUP BY 1, 2 ORDER BY 1, 2
"""

_FAILURES = """
SELECT g.failure ->> 'kind' AS kind, count(*) AS jobs, min(left(g.failure ->> 'message', 300)) AS example,
       min(j.position) AS position
FROM job j JOIN generation_record g ON g.job_id = j.id AND g.run = j.run
WHERE j.batch_id = %(batch_id)s AND j.finished_at IS NOT NULL AND g.failure IS NOT NULL
GROUP BY 1 ORDER BY 2 DESC, 1
"""

_VARIANTS = f"""
SELECT g.prompt_name, g.prompt_version, g.model_provider AS provider, g.model_name AS model, count(*) AS jobs,
       count(*) FILTER (WHERE j.outcome = 'answered') AS answered,
       count(*) FILTER (WHERE j.outcome = 'unverified') AS unverified,
       count(*) FILTER (WHERE j.outcome = 'partial') AS partial,
       count(*) FILTER (WHERE j.outcome = 'abstained') AS abstained,
       count((g.grounding ->> 'grounding_score')::float8) AS scored,
       avg((g.grounding ->> 'grounding_score')::float8) AS grounding,
       count(p.usd) AS priced, avg(p.usd)::float8 AS cost_usd, stddev_samp(p.usd)::float8 AS cost_deviation
FROM job j JOIN generation_record g ON g.job_id = j.id AND g.run = j.run
CROSS JOIN LATERAL (SELECT CASE WHEN {_PRICED} THEN j.cost_usd END AS usd) p
WHERE j.batch_id = %(batch_id)s AND j.state = 'completed' AND g.prompt_name IS NOT NULL
GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, 1, 2, 3, 4
"""

_ROUNDS = f"""
SELECT j.round, count(*) AS jobs, count(*) FILTER (WHERE j.outcome = 'answered') AS answered,
       count(*) FILTER (WHERE j.outcome = 'unverified') AS unverified,
       count(*) FILTER (WHERE j.outcome = 'partial') AS partial, CASE WHEN bool_and({_PRICED}) THEN sum(j.cost_usd) END AS cost_usd
FROM job j WHERE j.batch_id = %(batch_id)s AND j.finished_at IS NOT NULL GROUP BY 1 ORDER BY 1
"""

# Of a job that was asked of several models: its answer, and the best one of the models before.
_GAINS = """
SELECT (won.ask ->> 'level')::int AS level, before.ask ->> 'outcome' AS outcome_before, j.outcome AS outcome,
       count(*) AS jobs, sum((before.ask ->> 'ungrounded')::int)::int8 AS ungrounded_before,
       sum((won.ask ->> 'ungrounded')::int)::int8 AS ungrounded
FROM job j JOIN generation_record g ON g.job_id = j.id AND g.run = j.run
CROSS JOIN LATERAL (SELECT ask FROM jsonb_array_elements(g.asks) AS e(ask) WHERE (ask ->> 'won')::bool LIMIT 1) won
CROSS JOIN LATERAL (SELECT ask FROM jsonb_array_elements(g.asks) AS e(ask)
                    WHERE (ask ->> 'better')::bool AND (ask ->> 'level')::int < (won.ask ->> 'level')::int
                    ORDER BY (ask ->> 'round')::int DESC LIMIT 1) before
WHERE j.batch_id = %(batch_id)s AND j.finished_at IS NOT NULL AND g.asks IS NOT NULL
GROUP BY 1, 2, 3 ORDER BY 1, 4 DESC, 2, 3
"""

_LEVELS = f"""
WITH asked AS (
    SELECT a.round / {ROUNDS_PER_LEVEL} AS level, count(DISTINCT a.job_id) AS jobs,
           count(*) AS calls, CASE WHEN bool_and(a.cost_usd IS NOT NULL) THEN sum(a.cost_usd) END AS cost_usd,
           array_agg(DISTINCT a.provider || coalesce(':' || a.model, '')) FILTER (WHERE a.purpose <> 'judge') AS models
    FROM job j JOIN attempt a ON a.job_id = j.id AND a.run = j.run
    WHERE j.batch_id = %(batch_id)s AND a.closed_at IS NOT NULL AND a.shared_from IS NULL GROUP BY 1
), won AS (
    SELECT j.round / {ROUNDS_PER_LEVEL} AS level, count(*) AS won, count(*) FILTER (WHERE j.outcome = 'answered') AS answered
    FROM job j WHERE j.batch_id = %(batch_id)s AND j.state = 'completed' GROUP BY 1
)
SELECT a.level, a.models, a.jobs, a.calls, coalesce(w.won, 0) AS won, coalesce(w.answered, 0) AS answered, a.cost_usd
FROM asked a LEFT JOIN won w USING (level) ORDER BY a.level
"""

# By the worst verdict: contradicted, unsupported, undecided, unchecked; then by the share that is supported.
_WORST = f"""
SELECT j.id FROM job j
WHERE j.batch_id = %(batch_id)s AND j.standing < {Verdict.SUPPORTED.rank} AND j.state = 'completed'
ORDER BY j.standing, j.id LIMIT %(worst)s
"""

# Counted in the index of failures; of the records one a cause is read.
_CAUSES = """
SELECT k.kind, k.jobs, k.position,
       coalesce((SELECT left(g.failure ->> 'message', 300)
                 FROM job j JOIN generation_record g ON g.job_id = j.id AND g.run = j.run
                 WHERE j.batch_id = %(batch_id)s AND j.position = k.position), '') AS example
FROM (SELECT failure_kind AS kind, count(*) AS jobs, min(position) AS position FROM job
      WHERE batch_id = %(batch_id)s AND failure_kind IS NOT NULL GROUP BY 1) k
ORDER BY k.jobs DESC, k.kind
"""

_WITH_CAUSE = """
SELECT j.id FROM job j JOIN generation_record g ON g.job_id = j.id AND g.run = j.run
WHERE j.id = ANY(%(ids)b::uuid[]) AND g.failure ->> 'kind' = ANY(%(causes)b::text[])
ORDER BY j.position
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts of a batch; a row is a group of jobs or calls, by the names of its columns."""

    span: dict[str, Any]
    throughput: Rows
    latency: Rows
    calls: Rows
    scores: Rows
    failures: Rows
    variants: Rows
    rounds: Rows
    levels: Rows
    gains: Rows
    worst: list[UUID]


class BatchFigures(Store):
    """Aggregates over all jobs of one batch; they read it as a whole, so few at a time should."""

    async def read(self, batch_id: UUID, *, worst: int) -> Figures:
        """The figures of a batch and the ids of its worst answers, of one moment; raises ``LedgerUnavailable``."""
        parameters = {"batch_id": batch_id, "buckets": BUCKETS, "bins": BINS, "worst": worst}
        async with self._db.connection(WITHIN_S) as connection, connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            # Connections are set up for rows found by index; these statements read a whole batch, which may be all there is.
            await connection.execute("SET LOCAL enable_seqscan = on")

            async def rows(statement: str) -> Rows:
                cursor = await connection.execute(statement.encode(), parameters)
                return [row._asdict() for row in await cursor.fetchall()]

            return Figures(
                span=(await rows(_SPAN))[0],
                throughput=await rows(_THROUGHPUT),
                latency=await rows(_LATENCY),
                calls=await rows(_CALLS),
                scores=await rows(_SCORES),
                failures=await rows(_FAILURES),
                variants=await rows(_VARIANTS),
                rounds=await rows(_ROUNDS),
                levels=await rows(_LEVELS),
                gains=await rows(_GAINS),
                worst=[row["id"] for row in await rows(_WORST)],
            )

    async def failure_causes(self, batch_id: UUID) -> tuple[FailureCause, ...]:
        """The failed jobs of a batch by cause, the most frequent first."""
        rows = await self._db.rows(_CAUSES, {"batch_id": batch_id})
        return tuple(FailureCause(**{**row._asdict(), "kind": known_kind(row.kind)}) for row in rows)

    async def with_cause(self, job_ids: Sequence[UUID], causes: Collection[FailureKind]) -> list[UUID]:
        """The jobs whose last run ended for one of these causes."""
        parameters = {"ids": list(job_ids), "causes": [cause.value for cause in causes]}
        return await self._db.column(_WITH_CAUSE, parameters)
