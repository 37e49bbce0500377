"""Fitted model of the lexical check: a logistic regression with its calibration, read from a file with a version."""

import hashlib
import math
from functools import cached_property, lru_cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from schemas.base import Contract
from tasks.errors import ConfigurationError
from tasks.grounding.calibration import Knots, probability
from tasks.grounding.features import WEIGHED, Features
from tasks.grounding.weights import JudgeWeights, LocalWeights

SHIPPED = "lexical-3.json"

VERBATIM = 6.0
"""Log-odds of a claim that stands in a source word for word: beyond all weighted scores, so the last knot gives its
probability."""


def _rises(knots: Knots) -> Knots:
    if not knots or any(not 0 <= value <= 1 for _, value in knots):
        raise ValueError("knots are (score, probability), at least one, with probabilities in [0, 1]")
    if any(a[0] >= b[0] or a[1] > b[1] for a, b in pairwise(knots)):
        raise ValueError("knots must rise")
    return knots


class Calibration(Contract):
    """Meaning of scores for one kind of data: written by ``nightdesk calibrate``, named by NIGHTDESK_CALIBRATION."""

    model: str = Field(description="name and version of the model whose scores it reads")
    knots: Knots
    supported_at: float = Field(ge=0, le=1, description="least probability of a supported claim")
    labels: int = Field(ge=0, description="labelled rows it was made from")
    labels_sha256: str = ""
    made_at: str = ""
    judges: tuple[JudgeWeights, ...] = Field(default=(), description="weights of each judge")
    metrics: dict[str, Any] = Field(default_factory=dict)
    local: LocalWeights | None = Field(default=None, description="weights of a local model")
    dependence: float | None = Field(
        default=None, ge=0, le=1, description="dependence between the claims of an answer; none: the model's"
    )

    _rising = field_validator("knots")(_rises)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Reads a calibration file; raises ``ConfigurationError`` that names it."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise ConfigurationError(f"NIGHTDESK_CALIBRATION: {path} can't be read: {error.strerror}") from error
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, at['loc']))}: {at['msg']}" for at in error.errors())
            raise ConfigurationError(f"NIGHTDESK_CALIBRATION: {path} is no calibration: {problems}") from error


class LexicalModel(Contract):
    """Weights over the ``WEIGHED`` features, standardised by ``centre`` and ``spread``; log-odds out."""

    name: str
    version: str
    features: tuple[str, ...]
    weights: tuple[float, ...]
    intercept: float
    centre: tuple[float, ...]
    spread: tuple[float, ...]
    knots: Knots
    supported_at: float = Field(ge=0, le=1)
    dependence: float = Field(ge=0, le=1, description="dependence between the claims of an answer: see ``together``")
    trained_on: dict[str, str] = Field(description="file: SHA-256 of its bytes")
    trained_at: str
    recipe: str
    metrics: dict[str, Any] = Field(default_factory=dict)

    _rising = field_validator("knots")(_rises)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.features != WEIGHED:
            raise ValueError(f"made for the features {self.features}, but this version has {WEIGHED}")
        if not len(self.weights) == len(self.centre) == len(self.spread) == len(self.features):
            raise ValueError("weights, centre and spread are one each per feature")
        return self

    @cached_property
    def _slopes(self) -> tuple[tuple[float, ...], float]:
        slopes = tuple(weight / spread for weight, spread in zip(self.weights, self.spread, strict=True))
        return slopes, self.intercept - math.fsum(
            slope * centre for slope, centre in zip(slopes, self.centre, strict=True)
        )

    def log_odds(self, features: Features) -> float:
        """Score of a claim before calibration."""
        if features.verbatim:
            return VERBATIM
        slopes, constant = self._slopes
        total = constant
        for slope, value in zip(slopes, features, strict=False):  # the last feature has no weight
            total += slope * value
        return total

    def probability(self, features: Features) -> float:
        """Calibrated probability that the claim is supported; holds for data like the calibration's."""
        return probability(self.knots, self.log_odds(features))

    def calibrated(self, calibration: Calibration) -> "LexicalModel":
        """Copy of this model with an operator's calibration; raises ``ConfigurationError`` if it was made for another model."""
        if calibration.model != self.identity:
            raise ConfigurationError(
                f"NIGHTDESK_CALIBRATION was made for {calibration.model}, but this version has {self.identity}: "
                "run nightdesk calibrate again"
            )
        dependence = self.dependence if calibration.dependence is None else calibration.dependence
        curve = (calibration.knots, calibration.supported_at, dependence)
        if curve == (self.knots, self.supported_at, self.dependence):
            return self
        # Only these: nothing else in the file changes a lexical probability.
        document = calibration.model_dump_json(include={"model", "knots", "supported_at", "dependence"})
        digest = hashlib.sha256(document.encode()).hexdigest()[:8]
        return self.model_copy(
            update={
                "knots": calibration.knots,
                "supported_at": calibration.supported_at,
                "dependence": dependence,
                "version": f"{self.version}+{digest}",
            }
        )

    @property
    def identity(self) -> str:
        """Name and version of the weights, whatever the calibration."""
        return f"{self.name}-{self.version.partition('+')[0]}"


@lru_cache(maxsize=1)
def shipped() -> LexicalModel:
    """Model that ships with this version."""
    return LexicalModel.model_validate_json((resources.files("tasks.grounding") / "models" / SHIPPED).read_bytes())
