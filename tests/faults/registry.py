"""The registry of experiments, and the decorator that adds to it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.lab import Lab, Report, open_lab

JOBS = 80


class NotPossibleHere(Exception):
    """This machine can't be broken in this way; the message says why."""


@dataclass(frozen=True)
class Experiment:
    """One way to break the system."""

    name: str
    run: Callable[[Lab], Report]
    jobs: int
    stub: dict[str, Any]
    quick: bool
    """True for the selection that every change must pass."""

    def __call__(self, folder: Path) -> Report:
        """Runs in a new lab."""
        with open_lab(folder, self.jobs, **self.stub) as lab:
            return self.run(lab)


REGISTRY: list[Experiment] = []


def experiment(
    name: str, *, jobs: int = JOBS, quick: bool = False, **stub: Any
) -> Callable[[Callable[[Lab], Report]], Callable[[Lab], Report]]:
    """Adds a function to the registry."""

    def register(run: Callable[[Lab], Report]) -> Callable[[Lab], Report]:
        REGISTRY.append(Experiment(name, run, jobs, stub, quick))
        return run

    return register
