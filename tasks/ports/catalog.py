"""What a door needs to know of the installation: which providers, prices and lanes will serve a job."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.generation import GenerationConfig


@dataclass(frozen=True, slots=True)
class Objection:
    """Something in a job's config that can't be served.

    Attributes:
        field: dotted path in the job.
        message: why, and what can be served.
        certain: False where the workers may have other settings than the door: a warning, not a refusal.
    """

    field: str
    message: str
    certain: bool = True


class Catalog(Protocol):
    """The providers, prices and lanes of an installation, known without calling anyone."""

    def objections(self, config: GenerationConfig, *, generates: bool, priced: bool) -> Sequence[Objection]:
        """Find what can't be served.

        Args:
            config: of the job.
            generates: whether an answer is written; False for a check-only job.
            priced: whether the batch has a ceiling, so that every call needs a known price.
        """
        ...


class Everything(Catalog):
    """The catalog of a door that leaves it to the workers."""

    def objections(self, config: GenerationConfig, *, generates: bool, priced: bool) -> Sequence[Objection]:  # noqa: ARG002 - the port's
        """Find nothing."""
        return ()
