"""The result of the check: claims with verdicts and evidence, and the scores of the whole answer."""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import Field

from schemas.base import Contract
from schemas.claim_error import ClaimError, ErrorKind


class Verdict(StrEnum):
    """The verdict of the check on one claim."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    UNSUPPORTED = "unsupported"
    """A judge, a local model or a person says that the sources do not say it; words alone never do."""
    UNDECIDED = "undecided"
    """Words can't tell: the claim is neither a copy nor a copy with another fact in it, and nobody has read it."""
    NOT_CHECKABLE = "not_checkable"
    """Nothing to check: a question, a greeting, a refusal, a remark about the answer."""
    UNCHECKED = "unchecked"
    """Checkable, but no checker gave a verdict; never counted as supported."""

    @property
    def sign(self) -> str:
        """A character for screens and pages, so that colour never tells alone."""
        return _SIGNS[self]

    @property
    def rank(self) -> int:
        """The place among the verdicts, the worst first; 0 to 5."""
        return [*_SIGNS].index(self)

    @property
    def is_doubtful(self) -> bool:
        """The claim lacks support: a person should look at it."""
        return self.rank < Verdict.SUPPORTED.rank


# The worst first.
_SIGNS = {
    Verdict.CONTRADICTED: "✗",
    Verdict.UNSUPPORTED: "!",
    Verdict.UNDECIDED: "~",
    Verdict.UNCHECKED: "?",
    Verdict.SUPPORTED: "✓",
    Verdict.NOT_CHECKABLE: "·",
}


Score = Annotated[float, Field(ge=0, le=1)]


class Evidence(Contract):
    """A span ``[start, end)`` of a source that supports or contradicts a claim, in code points of its content."""

    source_index: int = Field(ge=0)
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    score: Score | None = None


class ReusedFrom(Contract):
    """The earlier call that gave a cached judge verdict."""

    job_id: UUID
    attempt_id: UUID
    number: int = Field(ge=1, description="of the claim in that call's question")


class JudgeVerdict(Contract):
    """A judge's own verdict on a claim, before fusion with the other layers."""

    verdict: Verdict = Field(
        description="of one that gives a probability: supported from one half on, else unsupported"
    )
    probability: Score | None = Field(default=None, description="that it is supported, where the judge gives one")
    before: Score | None = Field(default=None, description="the probability without the judge; none: no layer had one")


class Claim(Contract):
    """One atomic statement of the answer with its verdict; ``[start_pos, end_pos)`` in code points of the response."""

    text: str
    start_pos: int = Field(ge=0)
    end_pos: int = Field(ge=0)
    verdict: Verdict
    score: Score | None = None
    miscited: bool = Field(default=False, description="supported, but only by a source that the claim does not cite")
    evidence: tuple[Evidence, ...] = ()
    checker: str | None = Field(default=None, description="the layer that decided")
    judge: JudgeVerdict | None = Field(default=None, description="the judge's own verdict, if it counted")
    error: ClaimError | None = Field(
        default=None,
        description="the fact that differs from the sources, or that none of them holds; of a supported claim, from another source",
    )
    reason: str = ""
    unaccounted: tuple[str, ...] = Field(
        default=(), description="words of an undecided claim that no place of the sources accounts for"
    )
    reused_from: ReusedFrom | None = Field(
        default=None, description="source of a cached judge verdict; this job paid nothing for it"
    )

    @property
    def is_disputed(self) -> bool:
        """One source supports it, and another says something else."""
        return self.verdict is Verdict.SUPPORTED and self.error is not None


class Value(Contract):
    """One leaf of the object for ``output_schema``, with its verdict."""

    path: str = Field(description="such as $.items[0].price")
    value: bool | int | float | str
    verdict: Verdict = Field(description="supported: located in the quoted evidence")
    evidence: tuple[Evidence, ...] = ()
    reason: str = ""


class Grounding(Contract):
    """The check's result for one answer."""

    grounding_score: Score | None = Field(
        description="supported / checkable claims and values of the object; None without any"
    )
    confidence: Score | None = Field(
        default=None,
        description="share of right verdicts to expect among the decided claims; None where none is, or no rate is known",
    )
    decided: dict[str, int] = Field(
        default_factory=dict,
        description="claims that are supported, contradicted or unsupported, by the layer that says so",
    )
    weakest: int | None = Field(default=None, ge=0, description="position of the claim that is worst supported")
    citation_recall: Score | None = Field(
        default=None, description="share of checkable claims that the sources they cite support, all together"
    )
    citation_precision: Score | None = Field(
        default=None, description="share of citations that a supported claim needs (ALCE)"
    )
    claims: tuple[Claim, ...] = ()
    values: tuple[Value, ...] = Field(default=(), description="the leaves of the object for output_schema")
    checkers: dict[str, str] = Field(default_factory=dict, description="layer: version that ran")
    failed_checkers: dict[str, str] = Field(default_factory=dict, description="layer: reason that it gave no verdict")
    skipped_checkers: dict[str, str] = Field(
        default_factory=dict, description="layer by default: reason that it was not asked about some claims, or all"
    )
    counts: dict[Verdict, int] = Field(default_factory=dict)
    errors: dict[ErrorKind, int] = Field(
        default_factory=dict, description="unsupported and contradicted claims by the kind of their error"
    )

    @property
    def standing(self) -> float | None:
        """The place of the answer in a queue of reviewers: by its worst verdict, then the share of what is supported; from 0.

        None where nothing was checkable.
        """
        verdicts = (Verdict.SUPPORTED, *self.counts, *(value.verdict for value in self.values))
        score = self.grounding_score
        return None if score is None else min(verdict.rank for verdict in verdicts) + score
