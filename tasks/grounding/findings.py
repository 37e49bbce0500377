"""Input and output of a checker, in one form for all layers of the check, with the attribution of a claim."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from schemas.answer import Citation
from schemas.generation import CheckerName
from schemas.grounding import Evidence, JudgeVerdict, ReusedFrom, Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import Processed
from tasks.answers.rendered import strip_markers
from tasks.text.sentences import Span
from tasks.text.wording import why_not_checkable


@dataclass(frozen=True, slots=True)
class Attribution:
    """Citations of one claim: whether they support it, their number, and the number of precise ones."""

    recalled: bool
    cited: int = 0
    precise: int = 0


def attribution(cited: frozenset[int], *, supported: bool, entails: Callable[[frozenset[int]], bool]) -> Attribution:
    """Judges the citations of one claim, as ALCE defines it (Gao et al. 2023, section 3.2).

    Recall: a claim counts when the sources that it cites support it, all together. Precision: one of its citations counts
    when the claim is supported and the citation is needed: alone it supports the claim, or without it the others don't.

    Args:
        cited: the sources it cites.
        supported: all of them together support it.
        entails: true if some of them support it; called only for several citations.
    """
    if not cited or not supported:
        return Attribution(recalled=False, cited=len(cited))
    if len(cited) == 1:
        return Attribution(recalled=True, cited=1, precise=1)
    precise = sum(entails(frozenset({source})) or not entails(cited - {source}) for source in cited)
    return Attribution(recalled=True, cited=len(cited), precise=precise)


def citation_scores(attributions: Iterable[Attribution]) -> tuple[float | None, float | None]:
    """Recall and precision of an answer's citations: None without attributions, and without citations."""
    claims = list(attributions)
    cited = sum(claim.cited for claim in claims)
    recall = sum(claim.recalled for claim in claims) / len(claims) if claims else None
    return recall, sum(claim.precise for claim in claims) / cited if cited else None


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
