"""Input and output of a checker: one form for all layers of the check."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from schemas.answer import Citation
from schemas.generation import CheckerName
from schemas.grounding import Evidence, JudgeVerdict, ReusedFrom, Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import Processed
from tasks.answers.rendered import strip_markers
from tasks.grounding.attribution import Attribution
from tasks.text.sentences import Span
from tasks.text.statements import why_not_checkable


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    """A claim to be checked: its words without markers, its place in the response, and its citations."""

    text: str
    span: Span
    citations: tuple[Citation, ...] = ()
    unknown: tuple[int, ...] = ()
    """Source numbers it cites that the request does not have."""


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """One checker's finding on one claim; ``verdict`` None: a remark only, or nothing."""

    verdict: Verdict | None = None
    score: float | None = None
    evidence: tuple[Evidence, ...] = ()
    miscited: bool = False
    reason: str = ""
    attribution: Attribution | None = None
    """Recall and precision of its citations; only from a layer that reads meaning."""
    reused_from: ReusedFrom | None = None
    """The call that a reused verdict of a judge came from."""
    judge: JudgeVerdict | None = None
    """The judge's own verdict, before fusion."""


@dataclass(frozen=True, slots=True)
class CheckInput:
    """An answer as the checkers see it. ``claims`` are the checkable ones, in the order of the response."""

    request: JobRequest
    claims: tuple[CheckedClaim, ...]
    earlier: Mapping[CheckerName, Sequence[ClaimFinding]] = field(default_factory=dict)
    """Findings of the layers that ran before."""


def checkable_claims(processed: Processed) -> tuple[tuple[CheckedClaim, ...], tuple[str | None, ...]]:
    """The checkable claims of an answer, and for each of its statements the reason that it is not checkable, or None."""
    bare = strip_markers(processed.response, processed.markers)
    claims = []
    reasons = []
    for statement in processed.statements:
        text = bare[statement.start : statement.end]
        reason = why_not_checkable(text)
        reasons.append(reason)
        if reason is None:
            citations = tuple(processed.citations[position] for position in statement.citations)
            claims.append(CheckedClaim(text, Span(statement.start, statement.end), citations, statement.unknown))
    return tuple(claims), tuple(reasons)


class Checker(Protocol):
    """One layer of the check. ``version`` changes whenever a verdict could."""

    name: str
    version: str

    def check(self, answer: CheckInput) -> Sequence[ClaimFinding]:
        """Checks all claims: one finding each, in order. Pure; a checker that raises gives no verdicts."""
        ...
