"""What the check found: claims, their verdicts and evidence, and the scores of the whole answer."""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from pydantic import Field

from schemas.base import Contract


class Verdict(StrEnum):
    """What the check says of one claim."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    UNSUPPORTED = "unsupported"
    NOT_CHECKABLE = "not_checkable"
    """A question, a greeting, a word about the sources: nothing to check."""
    UNCHECKED = "unchecked"
    """Checkable, but no checker gave a verdict; never counted as supported."""


Score = Annotated[float, Field(ge=0, le=1)]


class Evidence(Contract):
    """The span of a source that supports or contradicts a claim; ``[start, end)`` in code points of its content."""

    source_index: int = Field(ge=0)
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    score: Score | None = None


class HeardFrom(Contract):
    """The call in which a judge said its word, when it was not asked again for this answer."""

    job_id: UUID
    attempt_id: UUID
    number: int = Field(ge=1, description="of the claim in that call's question")


class JudgeWord(Contract):
    """What a judge itself said of a claim, before it was weighed against what the other layers found."""

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
    judge: JudgeWord | None = Field(default=None, description="what the judge said, if its word counted")
    reason: str = ""
    heard_from: HeardFrom | None = Field(
        default=None, description="the judge's word was heard before in this batch; this job paid nothing for it"
    )


class Grounding(Contract):
    """The check's result for one answer."""

    grounding_score: Score | None = Field(description="supported / checkable claims; None without checkable claims")
    confidence: Score | None = Field(default=None, description="calibrated probability that no claim is unsupported")
    weakest: int | None = Field(default=None, ge=0, description="position of the claim that is worst supported")
    citation_recall: Score | None = Field(
        default=None, description="share of checkable claims that the sources they cite support, all together"
    )
    citation_precision: Score | None = Field(
        default=None, description="share of citations that a supported claim needs (ALCE)"
    )
    claims: tuple[Claim, ...] = ()
    checkers: dict[str, str] = Field(default_factory=dict, description="layer: version that ran")
    failed_checkers: dict[str, str] = Field(default_factory=dict, description="layer: why it gave no verdict")
    counts: dict[Verdict, int] = Field(default_factory=dict)
