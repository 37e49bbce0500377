"""What a checker is given and what it gives back: one form for all layers of the check."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from schemas.answer import Citation
from schemas.generation import CheckerName
from schemas.grounding import Evidence, HeardFrom, JudgeWord, Verdict
from schemas.job import JobRequest
from tasks.checkers.attribution import Attribution
from tasks.text.sentences import Span


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    """A claim to be checked: its words without markers, its place in the response, and what it cites."""

    text: str
    span: Span
    citations: tuple[Citation, ...] = ()
    unknown: tuple[int, ...] = ()
    """Source numbers it cites that were not given."""


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """What one checker says of one claim; ``verdict`` None: it has only a remark to make, or nothing to say."""

    verdict: Verdict | None = None
    score: float | None = None
    evidence: tuple[Evidence, ...] = ()
    miscited: bool = False
    reason: str = ""
    attribution: Attribution | None = None
    """How well its citations carry it; only from a layer that reads meaning."""
    heard_from: HeardFrom | None = None
    """Whose question it was that a judge answered so, if not this answer's."""
    heard: JudgeWord | None = None
    """Of the judge: its own word, before it was weighed."""


@dataclass(frozen=True, slots=True)
class CheckInput:
    """An answer as the checkers see it. ``claims`` are the checkable ones, in the order of the response."""

    request: JobRequest
    claims: tuple[CheckedClaim, ...]
    found: Mapping[CheckerName, Sequence[ClaimFinding]] = field(default_factory=dict)
    """What the layers before this one found."""


class Checker(Protocol):
    """One layer of the check. ``version`` changes whenever a verdict could."""

    name: str
    version: str

    def check(self, answer: CheckInput) -> Sequence[ClaimFinding]:
        """One finding per claim of the answer, in order. Pure; may raise, which leaves its verdicts out."""
        ...
