"""The description of a local model: ``nightdesk.json`` beside ``model.onnx`` and ``tokenizer.json``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, ValidationError, model_validator

from schemas.base import Contract
from tasks.errors import ConfigurationError

CARD = "nightdesk.json"


class Output(StrEnum):
    """The position of the score in the model's first output."""

    LABELS = "labels"
    """One row of labels per pair: shape (pairs, labels). A single label is the log-odds."""
    FIRST_TOKEN = "first_token"  # noqa: S105 - no secret
    """The first token's row: shape (pairs, tokens, labels or vocabulary)."""
    CLAIM_TOKENS = "claim_tokens"
    """The row of the claim's least supported token: shape (pairs, tokens, labels)."""


class Card(Contract):
    """The input and output format of a model; the defaults suit a cross-encoder with two labels."""

    name: str = Field(default="", description="name in records; the directory's name if empty")
    prompt: str = Field(
        default="{evidence}",
        description="text around {evidence}, and {claim} after it; without {claim} the claim is the second text of a pair",
    )
    output: Output = Output.LABELS
    positive: Annotated[int, Field(ge=0)] = Field(default=1, description="label or token that means supported")
    negative: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="label or token that means not supported; none: all others together"
    )
    max_length: Annotated[int, Field(ge=16, le=100_000)] = Field(default=512, description="tokens the model reads")
    decoder_start: Annotated[int, Field(ge=0)] = Field(
        default=0, description="first token of the decoder, for models that have one"
    )
    batch: Annotated[int, Field(ge=1, le=1_000)] = Field(default=16, description="pairs computed at once")

    @model_validator(mode="after")
    def _places(self) -> Self:
        if self.prompt.count("{evidence}") != 1 or "{claim}" in self.prompt.partition("{evidence}")[0]:
            raise ValueError("prompt holds {evidence} once, and {claim} only after it")
        if self.prompt.count("{claim}") > 1 or (self.output is Output.CLAIM_TOKENS and "{claim}" in self.prompt):
            raise ValueError("prompt holds {claim} once at most, and not with the output claim_tokens")
        return self

    @classmethod
    def of(cls, directory: Path) -> Self:
        """Reads the card of a directory, or uses the defaults; raises ``ConfigurationError`` with the file's name."""
        path = directory / CARD
        try:
            return cls.model_validate_json(path.read_bytes()) if path.exists() else cls()
        except OSError as error:
            raise ConfigurationError(f"NIGHTDESK_LOCAL_MODEL: {path} can't be read: {error.strerror}") from error
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, at['loc']))}: {at['msg']}" for at in error.errors())
            raise ConfigurationError(f"NIGHTDESK_LOCAL_MODEL: {path}: {problems}") from error
