"""Local models for tests, selected by their import path like an operator's own module."""

import re
from collections.abc import Sequence


class NamedScorer:
    """Checks the actor: a passage supports a claim if it contains the claim's first two words in a row.

    The lexical layer ignores word order, so that the verdicts of the two differ where they should.
    """

    name = "says-who"
    version = "3"
    max_tokens = 128

    def __init__(self) -> None:
        self.calls: list[list[tuple[str, str]]] = []

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """4 for support, else -4."""
        self.calls.append(list(pairs))
        return [4.0 if " ".join(_words(claim)[:2]) in " ".join(_words(evidence)) else -4.0 for evidence, claim in pairs]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


class Silent(NamedScorer):
    """Has no opinion."""

    name = "silent"

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Zeros."""
        return [0.0 for _ in super().score(pairs)]


class Short(NamedScorer):
    """Returns one score too few."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """All scores but the last."""
        return super().score(pairs)[:-1]


def nameless() -> object:
    """No model at all."""
    return object()


def broken() -> NamedScorer:
    """A factory that fails."""
    raise FileNotFoundError("no weights")
