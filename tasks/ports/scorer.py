"""A model that reads a passage and a claim and says, by one number, whether the passage supports the claim."""

from collections.abc import Sequence
from typing import Protocol


class ClaimScorer(Protocol):
    """A local model of the check. ``name`` and ``version`` are what a record names; the version changes with its scores."""

    name: str
    version: str
    max_tokens: int
    """Tokens that it reads of a passage and a claim together; a longer passage is cut by it, never the claim."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
        """The log-odds of support for each (evidence, claim), in order: above 0 it rather is supported.

        Called from one thread at a time, with all pairs of an answer. May raise, which leaves its verdicts out.
        """
