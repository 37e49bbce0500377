"""The list of experiments, and how one is put on it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.ground import Account, Ground, ground

JOBS = 80


class NotPossibleHere(Exception):
    """This machine can't be broken in this way; the message says why."""


@dataclass(frozen=True)
class Experiment:
    """One way to break the system."""

    name: str
    run: Callable[[Ground], Account]
    jobs: int
    stub: dict[str, Any]
    quick: bool
    """Whether it belongs to the selection that every change must pass."""

    def __call__(self, folder: Path) -> Account:
        """Do it on fresh ground."""
        with ground(folder, self.jobs, **self.stub) as here:
            return self.run(here)


LISTED: list[Experiment] = []


def experiment(
    name: str, *, jobs: int = JOBS, quick: bool = False, **stub: Any
) -> Callable[[Callable[[Ground], Account]], Callable[[Ground], Account]]:
    """Put a function on the list."""

    def listed(run: Callable[[Ground], Account]) -> Callable[[Ground], Account]:
        LISTED.append(Experiment(name, run, jobs, stub, quick))
        return run

    return listed
