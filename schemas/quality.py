"""The constants of the answer's quality and sufficiency, each with the origin of its value."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from schemas.base import Submitted

Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, le=100)]
Boost = Annotated[float, Field(ge=1, le=2)]
Words = Annotated[int, Field(ge=0, le=10_000)]


def _constant(default: float, description: str, origin: str) -> Any:
    """A constant; its origin tells whether the value of the first design stays, with the reason for a change."""
    return Field(default=default, description=description, json_schema_extra={"origin": origin})


class QualityConstants(Submitted):
    """The constants of ``answer_quality`` and ``sufficient_context``; a job may change any of them.

    Weights are relative: each is divided by the sum of the weights of the available components.
    """

    relevance_weight: Weight = _constant(0.5, "weight of the relevance of the cited sources", "kept")
    coverage_weight: Weight = _constant(
        0.5, "weight of the share of sentences that carry a citation", "new: what can be looked up counts as much"
    )
    source_count_weight: Weight = _constant(0.3, "weight of the number of sources used", "kept")
    agreement_weight: Weight = _constant(0.2, "weight of the agreement of the sources", "kept")
    enough_sources: Annotated[int, Field(ge=1, le=100)] = _constant(3, "sources used that count in full", "kept")
    no_source_factor: Share = _constant(
        0.0,
        "value of the number of sources for an answer without sources",
        "replaced (0.5): nothing used, nothing earned",
    )
    single_source_agreement: Share = _constant(
        0.8, "agreement of a claim that one source alone supports", "kept: it was the figure for every answer"
    )
    strong_uncertainty: Share = _constant(0.6, "factor for strongly uncertain wording", "kept")
    moderate_uncertainty: Share = _constant(0.8, "factor for moderately uncertain wording", "kept")
    specificity_per_figure: Annotated[float, Field(ge=0, le=1)] = _constant(
        0.02, "gain per amount, percentage, time or age", "chosen: five figures reach the most"
    )
    max_specificity: Boost = _constant(
        1.1, "most that figures multiply by", "chosen: less than any uncertain wording takes away"
    )
    very_short_words: Words = _constant(5, "words below which an answer is very short", "kept")
    short_words: Words = _constant(10, "words below which an answer is short", "kept")
    adequate_words: Words = _constant(15, "words below which an answer is rather short", "kept")
    very_short: Share = _constant(0.7, "factor for a very short answer", "kept")
    short: Share = _constant(0.85, "factor for a short answer", "kept")
    adequate: Share = _constant(0.95, "factor for a rather short answer", "kept")
    floor: Share = _constant(0.0, "least quality of an answer", "chosen: an answer may be worth nothing")
    simple_query_words: Words = _constant(3, "most words of a simple question", "kept")
    standard_query_words: Words = _constant(6, "most words of a standard question", "kept")
    simple_relevance: Share = _constant(0.25, "least mean relevance for a simple question", "kept")
    standard_relevance: Share = _constant(0.3, "least mean relevance for a standard question", "kept")
    complex_relevance: Share = _constant(0.35, "least mean relevance for a longer question", "kept")
    factual_min_words: Words = _constant(
        2, "least words of an answer to a factual question", "chosen: a name, or an amount with its unit"
    )
    default_min_words: Words = _constant(
        5, "least words of any other answer", "chosen: below it the answer is very short, too"
    )
    addressed_share: Share = _constant(
        0.2, "least share of the question's content words in the answer", "chosen: one of five"
    )
    addressed_support: Share = _constant(
        0.5, "or the least share of claims that are supported", "chosen: an answer may use other words or a pronoun"
    )

    subject_log_odds: Annotated[float, Field(ge=-20, le=20)] = _constant(
        -0.3,
        "least log-odds that the evidence is about the subject of the question",
        "chosen: below 0, where the offline provider abstains, because a model may use other words",
    )

    @model_validator(mode="after")
    def _in_order(self) -> "QualityConstants":
        if not self.very_short_words <= self.short_words <= self.adequate_words:
            raise ValueError("very_short_words, short_words and adequate_words must not decrease")
        if not self.very_short <= self.short <= self.adequate:
            raise ValueError("very_short, short and adequate must not decrease")
        if self.strong_uncertainty > self.moderate_uncertainty:
            raise ValueError("strong_uncertainty must not be above moderate_uncertainty")
        if self.simple_query_words > self.standard_query_words:
            raise ValueError("simple_query_words must not be above standard_query_words")
        return self
