"""Local models for tests, as an operator's own module would hold one: named by their import path."""

import re
from collections.abc import Sequence


class SaysWho:
    """Knows who did it: a claim is supported by a passage that has its first two words in a row.

    What the lexical layer can't see (who did what to whom), so that verdicts differ where they should.
    """

    name = "says-who"
    version = "3"
    max_tokens = 128

    def __init__(self) -> None:
        self.asked: list[list[tuple[str, str]]] = []

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """4 or -4."""
        self.asked.append(list(pairs))
        return [4.0 if " ".join(_words(claim)[:2]) in " ".join(_words(evidence)) else -4.0 for evidence, claim in pairs]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


class Silent(SaysWho):
    """Has no opinion."""

    name = "silent"

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Zeros."""
        return [0.0 for _ in super().score(pairs)]


class Contrary(SaysWho):
    """Says no where it should say yes."""

    name = "contrary"

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The opposite."""
        return [-score for score in super().score(pairs)]


class Short(SaysWho):
    """Gives one score too few."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """All but the last."""
        return super().score(pairs)[:-1]


def nameless() -> object:
    """No model at all."""
    return object()


def broken() -> SaysWho:
    """A factory that fails."""
    raise FileNotFoundError("no weights")
