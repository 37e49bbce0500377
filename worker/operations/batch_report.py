"""Collects the report of a batch: its figures, its worst answers with their sources."""

import math
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from schemas.batch import BatchStatus
from schemas.grounding import Claim
from schemas.model_call import total_usd
from tasks.policy.comparison import Z, wilson
from tasks.ports import JobView
from worker.ledger.batch_figures import Figures
from worker.ledger.postgres import PostgresLedger

MOST_CLAIMS = 12
"""Claims shown of one of the worst answers."""

MARGIN = 300
"""Code points of a source that are shown on each side of a span."""


class Report(NamedTuple):
    """A batch at one moment, all that its report shows."""

    at: datetime
    status: BatchStatus
    errors: dict[str, int]
    """Claims by the kind of their error."""
    figures: Figures
    worst: list[JobView]


async def collect(ledger: PostgresLedger, batch_id: UUID, *, worst: int) -> Report:
    """The report of a batch, in whatever state it is, with the ``worst`` answers; raises ``NotFound``."""
    status = await ledger.reading.batch_status(batch_id)
    status = status.model_copy(update={"refused_lines": await ledger.uploads.refused_lines(batch_id)})
    figures = await ledger.figures.read(batch_id, worst=worst)
    errors = await ledger.reading.error_kinds(batch_id)
    # An answer that was erased or asked again in between is left out.
    views = [view for view in await ledger.reading.views(figures.worst) if view.record and view.record.grounding]
    named = {kind.label: count for kind, count in errors.items()}
    return Report(datetime.now(UTC), status, named, figures, views)


def document(report: Report) -> dict[str, Any]:
    """The report, for programs and for the page; amounts in USD are decimals."""
    figures = report.figures
    return {
        "at": report.at,
        "status": report.status.model_dump(mode="json"),
        "began": figures.span["began"],
        "ended": figures.span["ended"],
        "latency_ms": figures.latency,
        "throughput": figures.throughput,
        "calls": figures.calls,
        "scores": figures.scores,
        "failures": figures.failures,
        "errors": report.errors,
        "variants": [_variant(row) for row in figures.variants],
        "rounds": [_round(row, figures) for row in figures.rounds],
        "levels": [_level(row, figures) for row in figures.levels] if len(figures.levels) > 1 else [],
        "worst": [_worst(view) for view in report.worst],
    }


def _variant(row: dict[str, Any]) -> dict[str, Any]:
    """A prompt version and model with the intervals of its shares and means."""
    scored = row["scored"]
    answered = wilson(row["answered"], row["jobs"])
    # Scores are from 0 to 1, so their mean is no surer than a share of as many answers.
    grounding = wilson(row["grounding"] * scored, scored) if scored else None
    return {
        **{name: value for name, value in row.items() if not name.endswith("_deviation")},
        "answered_share": answered and asdict(answered),
        "grounding": grounding and asdict(grounding),
        "cost_usd": _mean_cost(row),
    }


def _mean_cost(row: dict[str, Any]) -> dict[str, float | None] | None:
    """The mean cost of the jobs whose price is known; a single one has no bounds."""
    mean, deviation = row["cost_usd"], row["cost_deviation"]
    if mean is None or deviation is None:
        return mean and {"value": mean, "low": None, "high": None}
    reach = Z * deviation / math.sqrt(row["priced"])
    return {"value": mean, "low": max(0.0, mean - reach), "high": mean + reach}


def _round(row: dict[str, Any], figures: Figures) -> dict[str, Any]:
    """The jobs that ended in a round, with the calls that were made in it for all jobs."""
    calls = [call for call in figures.calls if call["round"] == row["round"]]
    return {
        **row,
        "calls": sum(call["calls"] for call in calls),
        "calls_usd": total_usd(*(call["cost_usd"] for call in calls)),
    }


def _level(row: dict[str, Any], figures: Figures) -> dict[str, Any]:
    """A model of the cascade: the jobs that came to it, their cost, and the gain of its answers over those before."""
    gains = [gain for gain in figures.gains if gain["level"] == row["level"]]
    rescued = sum(gain["jobs"] for gain in gains if gain["outcome"] == "answered" != gain["outcome_before"])
    cost = row["cost_usd"]
    return {
        **row,
        "newly_answered": rescued,
        "usd_each": None if cost is None or not rescued else (cost / rescued).quantize(Decimal("1e-8")),
        "ungrounded_before": sum(gain["ungrounded_before"] for gain in gains),
        "ungrounded": sum(gain["ungrounded"] for gain in gains),
        "gains": [{name: value for name, value in gain.items() if name != "level"} for gain in gains],
    }


def _worst(view: JobView) -> dict[str, Any]:
    record = view.record
    assert record is not None
    grounding = record.grounding
    assert grounding is not None
    # A value of an object is a claim about its path.
    values = (
        Claim(
            text=f"{each.path}: {each.value}", start_pos=0, end_pos=0, verdict=each.verdict, evidence=each.evidence,
            reason=each.reason,
        )
        for each in grounding.values
    )  # fmt: skip
    listed = [*grounding.claims, *values]
    wrong = sorted((claim for claim in listed if claim.verdict.is_doubtful), key=lambda claim: claim.verdict.rank)
    return {
        "job_id": view.job_id,
        "position": view.position,
        "custom_id": view.custom_id,
        "outcome": view.outcome,
        "query": view.request.query,
        "answer": record.answer,
        "grounding": grounding.grounding_score,
        "provider": record.model_provider,
        "model": record.model_name,
        "claims": [_claim(claim, view) for claim in wrong[:MOST_CLAIMS]],
        "more_claims": max(0, len(wrong) - MOST_CLAIMS),
    }


def _claim(claim: Claim, view: JobView) -> dict[str, Any]:
    spans = []
    for evidence in claim.evidence:
        if evidence.source_index >= len(view.request.context):
            continue
        source = view.request.context[evidence.source_index]
        content = source.content
        start, end = max(0, evidence.start - MARGIN), min(len(content), evidence.end + MARGIN)
        spans.append(
            {
                "source": evidence.source_index + 1,
                "document_id": source.document_id,
                "before": ("…" if start else "") + content[start : evidence.start],
                "span": content[evidence.start : evidence.end],
                "after": content[evidence.end : end] + ("…" if end < len(content) else ""),
            }
        )
    return {
        **claim.model_dump(include={"text", "verdict", "score", "reason", "unaccounted"}),
        "error": claim.error and claim.error.model_dump(mode="json"),
        "spans": spans,
    }
