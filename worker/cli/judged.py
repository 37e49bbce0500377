"""Turns what judges decided into rows that a model of one's own can be trained on."""

from collections.abc import Iterator
from typing import Any

from schemas.grounding import Claim
from schemas.job import JobRequest
from tasks.ports import JobView


def judged_rows(view: JobView) -> Iterator[dict[str, Any]]:
    """A row for each claim of a final job that a judge decided: claim, evidence, verdict, probability, judge.

    ``reused_from`` is the attempt of the call where the judge was not asked again for this job; None: it was asked.

    The claim stands as it does in the response, the evidence in the words of the sources, best first; none where
    neither the judge nor the words found any place. Verdict and probability are those of all layers together; what the
    judge itself said stands under ``judge_verdict`` and ``judge_probability``, what it was weighed against under
    ``before``, and the versions of the layers that this came from under ``lexical`` and ``local``. With a ``label``
    added to it, a row is one of those that ``nightdesk calibrate`` takes.
    """
    grounding = view.record.grounding if view.record is not None else None
    if grounding is None:
        return
    for claim in grounding.claims:
        if claim.checker == "judge":
            yield {
                "claim": claim.text,
                "evidence": _words(claim, view.request),
                "verdict": claim.verdict.value,
                "probability": claim.score,
                "judge": grounding.checkers.get("judge"),
                "judge_verdict": claim.judge.verdict.value if claim.judge else None,
                "judge_probability": claim.judge.probability if claim.judge else None,
                "before": claim.judge.before if claim.judge else None,
                "lexical": grounding.checkers.get("lexical"),
                "local": grounding.checkers.get("local"),
                "reused_from": str(claim.reused_from.attempt_id) if claim.reused_from else None,
                "job_id": str(view.job_id),
                "run": view.run,
            }


def _words(claim: Claim, request: JobRequest) -> list[str]:
    return [request.context[one.source_index].content[one.start : one.end] for one in claim.evidence]
