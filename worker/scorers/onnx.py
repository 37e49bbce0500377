"""Runs a cross-encoder in ONNX form with its tokenizer and its card on the CPU; needs the extra ``onnx``."""

import hashlib
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnxruntime
from pydantic import Field, NonNegativeInt, ValidationError, model_validator
from tokenizers import Encoding, Tokenizer

from schemas.base import Contract
from tasks.errors import ConfigurationError
from tasks.raw_jobs.refusals import problem_words

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
    positive: NonNegativeInt = Field(default=1, description="label or token that means supported")
    negative: NonNegativeInt | None = Field(
        default=None, description="label or token that means not supported; none: all others together"
    )
    max_length: int = Field(default=512, ge=16, le=100_000, description="tokens the model reads")
    decoder_start: NonNegativeInt = Field(default=0, description="first token of the decoder, for models that have one")
    batch: int = Field(default=16, ge=1, le=1_000, description="pairs computed at once")

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
            problems = "; ".join(f"{'.'.join(map(str, at['loc']))}: {problem_words(at)}" for at in error.errors())
            raise ConfigurationError(f"NIGHTDESK_LOCAL_MODEL: {path}: {problems}") from error


MODEL, TOKENIZER = "model.onnx", "tokenizer.json"
KNOWN_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids", "decoder_input_ids"})


class OnnxScorer:
    """Implements ``tasks.ports.ClaimScorer``.

    The version is a digest of all files, so that records tell one export from another.

    Args:
        directory: contains model.onnx (with separate weights beside it, if any), tokenizer.json and optionally
            nightdesk.json.
        threads: threads of one computation.

    Raises ``ConfigurationError`` for a directory without such a model.
    """

    def __init__(self, directory: Path, *, threads: int = 1) -> None:
        self._card = Card.of(directory)
        for name in (MODEL, TOKENIZER):
            if not (directory / name).is_file():
                raise ConfigurationError(f"NIGHTDESK_LOCAL_MODEL: {directory} holds no {name}")
        try:
            self._tokenizer = Tokenizer.from_file(str(directory / TOKENIZER))
            self._session = onnxruntime.InferenceSession(
                str(directory / MODEL), _options(threads), providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            # Both libraries raise bare exceptions of their own.
            raise ConfigurationError(f"NIGHTDESK_LOCAL_MODEL: {directory} can't be loaded: {error}") from error
        self._inputs = {entry.name: entry.type for entry in self._session.get_inputs()}
        if unknown := self._inputs.keys() - KNOWN_INPUTS:
            raise ConfigurationError(
                f"NIGHTDESK_LOCAL_MODEL: the model needs {', '.join(sorted(unknown))}; the supported inputs are"
                f" {', '.join(sorted(KNOWN_INPUTS))}"
            )
        # This class truncates and pads by itself, because the tokenizer's own settings truncate the claim.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        special = [token.content for token in self._tokenizer.get_added_tokens_decoder().values() if token.special]
        self._special = re.compile("|".join(map(re.escape, special)) or r"(?!)")
        padding = (self._tokenizer.token_to_id(token) for token in ("<pad>", "[PAD]"))
        self._padding = next((token for token in padding if token is not None), 0)
        before, _, rest = self._card.prompt.partition("{evidence}")
        self._before, self._between, self._after = before, *_around_claim(rest)
        self.name = self._card.name or directory.resolve().name
        self.version = _digest(directory)
        self.max_tokens = self._card.max_length
        self._try_out()

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Implements ``ClaimScorer.score``; pairs of similar length share a batch, so that padding is short."""
        encoded = [self._encode(evidence, claim) for evidence, claim in pairs]
        order = sorted(range(len(pairs)), key=lambda at: len(encoded[at].ids))
        scores = [0.0] * len(pairs)
        for start in range(0, len(order), self._card.batch):
            chosen = order[start : start + self._card.batch]
            for at, score in zip(chosen, self._run([encoded[at] for at in chosen]), strict=True):
                scores[at] = score
        return scores

    def _try_out(self) -> None:
        """Scores one pair, so that a card that does not fit its model fails at the start and not in every job."""
        try:
            (score,) = self.score([("The desk opens at nine.", "It opens at nine.")])
        except Exception as error:
            raise ConfigurationError(f"NIGHTDESK_LOCAL_MODEL: the model and its {CARD} don't fit: {error}") from error
        if not np.isfinite(score):
            raise ConfigurationError(f"NIGHTDESK_LOCAL_MODEL: the model says {score}, which is no score")

    # ---- text to tokens ----

    def _encode(self, evidence: str, claim: str) -> Encoding:
        """Both texts as tokens; the evidence is truncated to the model's length."""
        # A source must not end itself, or begin the claim, with a control token.
        evidence, claim = self._special.sub(" ", evidence), self._special.sub(" ", claim)
        encoding = self._join(evidence, claim)
        excess = len(encoding.ids) - self._card.max_length
        while excess > 0 and evidence:
            offsets = self._tokenizer.encode(evidence, add_special_tokens=False).offsets
            evidence = evidence[: offsets[-excess][0]] if excess < len(offsets) else ""
            encoding = self._join(evidence, claim)
            excess = len(encoding.ids) - self._card.max_length
        if excess > 0:
            encoding.truncate(self._card.max_length)
        return encoding

    def _join(self, evidence: str, claim: str) -> Encoding:
        if self._after is None:
            return self._tokenizer.encode(self._before + evidence + self._between, claim)
        return self._tokenizer.encode(self._before + evidence + self._between + claim + self._after)

    # ---- tokens to scores ----

    def _run(self, encoded: Sequence[Encoding]) -> list[float]:
        width = max(len(encoding.ids) for encoding in encoded)
        tensors = {
            "input_ids": _pad([encoding.ids for encoding in encoded], width, self._padding),
            "attention_mask": _pad([encoding.attention_mask for encoding in encoded], width, 0),
            "token_type_ids": _pad([encoding.type_ids for encoding in encoded], width, 0),
            "decoder_input_ids": np.full((len(encoded), 1), self._card.decoder_start, dtype=np.int64),
        }
        inputs = {
            name: tensors[name].astype(np.int32 if "int32" in kind else np.int64) for name, kind in self._inputs.items()
        }
        output = np.asarray(self._session.run(None, inputs)[0], dtype=np.float64)
        if self._card.output is Output.LABELS:
            rows = output.reshape(len(encoded), -1)
        elif self._card.output is Output.FIRST_TOKEN:
            rows = output[:, 0, :]
        else:
            return [self._least(output[at], encoding) for at, encoding in enumerate(encoded)]
        return [float(value) for value in self._odds(rows)]

    def _least(self, rows: Any, encoding: Encoding) -> float:
        claims = [at for at, sequence in enumerate(encoding.sequence_ids) if sequence == 1]
        return float(self._odds(rows[claims]).min())

    def _odds(self, rows: Any) -> Any:
        """Log-odds of the positive label in each row of logits: shape (rows,) from (rows, labels)."""
        if rows.shape[1] == 1:
            return rows[:, 0]
        positive = rows[:, self._card.positive]
        if self._card.negative is not None:
            return positive - rows[:, self._card.negative]
        negatives = np.delete(rows, self._card.positive, axis=1)
        most = negatives.max(axis=1)
        return positive - most - np.log(np.exp(negatives - most[:, None]).sum(axis=1))


def _options(threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Spinning threads take the CPU from the worker's loop.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _around_claim(rest: str) -> tuple[str, str | None]:
    """The text between evidence and claim and the text after the claim; None: the claim is a separate text."""
    between, placeholder, after = rest.partition("{claim}")
    return between, after if placeholder else None


def _pad(rows: Sequence[Sequence[int]], width: int, padding: int) -> Any:
    return np.array([[*row, *[padding] * (width - len(row))] for row in rows], dtype=np.int64)


def _digest(directory: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        if path.is_file() and (path.name in {MODEL, TOKENIZER, CARD} or path.name.startswith(MODEL)):
            digest.update(f"{path.name}\0".encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:12]
