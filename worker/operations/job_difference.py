"""Reads pairs of jobs and compares their answers; writes a comparison as a document for programs."""

from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

from schemas.answer import Citation
from schemas.grounding import Claim
from tasks.policy.difference import Difference, Side
from worker.ledger.postgres import PostgresLedger

PAGE = 100
"""Pairs read at a time."""


async def differences(ledger: PostgresLedger, pairs: Sequence[tuple[UUID, UUID]]) -> AsyncIterator[Difference]:
    """The comparison of each pair, in order; a pair of which a job is no more is left out."""
    for start in range(0, len(pairs), PAGE):
        page = pairs[start : start + PAGE]
        ids = list(dict.fromkeys(job_id for pair in page for job_id in pair))
        views = {view.job_id: view for view in await ledger.reading.views(ids)}
        for first, second in page:
            if first in views and second in views:
                yield Difference.of(views[first], views[second])


def document(difference: Difference) -> dict[str, Any]:
    """The comparison, for programs."""
    return {
        "position": difference.first.view.position,
        "custom_id": difference.first.view.custom_id,
        "final": difference.final,
        "differs": difference.differs,
        "same_messages": difference.same_messages,
        "first": _side(difference.first),
        "second": _side(difference.second),
        "answer": {
            "same": difference.same_answer,
            "words": [{"kind": kind, "text": text} for kind, text in difference.words if not difference.same_answer],
        },
        "citations": {
            "in_both": difference.common_citations,
            "only_first": [_citation(citation) for citation in difference.former_citations],
            "only_second": [_citation(citation) for citation in difference.new_citations],
        },
        "claims": [{"first": _claim(before), "second": _claim(after)} for before, after in difference.claims],
        "more_usd": None if difference.more_usd is None else f"{difference.more_usd:f}",
    }


def _side(side: Side) -> dict[str, Any]:
    view, result = side.view, side.result
    return {
        "job_id": view.job_id,
        "batch_id": view.batch_id,
        "run": view.run,
        "state": view.state,
        "outcome": view.outcome,
        "held_reason": view.held_reason,
        "model": side.model or None,
        "prompt": side.prompt or None,
        "messages_sha256": side.messages_sha256,
        "shared_answer": result.shared_from is not None,
        "answer": result.response,
        "verdicts": {verdict.value: count for verdict, count in side.verdicts.items()},
        "grounding_score": result.grounding_score,
        "confidence": result.confidence,
        "input_tokens": result.usage and result.usage.input_tokens,
        "output_tokens": result.usage and result.usage.output_tokens,
        "cost_usd": None if view.cost_usd is None else f"{view.cost_usd:f}",
        "failure": result.failure and {"kind": result.failure.kind, "message": result.failure.message},
    }


def _citation(citation: Citation) -> dict[str, Any]:
    return {
        "chunk_id": citation.chunk_id,
        "source_index": citation.source_index,
        "start": citation.source_start,
        "end": citation.source_end,
        "quoted_text": citation.quoted_text,
    }


def _claim(claim: Claim | None) -> dict[str, Any] | None:
    return None if claim is None else {"text": claim.text, "verdict": claim.verdict, "score": claim.score}
