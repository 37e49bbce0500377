"""Knows whether workers that take nothing else serve the urgent jobs, so that the others leave them to those."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

HELP_S = 10.0
"""Seconds for which the other workers take urgent jobs, too, after some waited."""


@dataclass(slots=True)
class UrgentWorkers:
    """The workers of urgent jobs alone, as one process knows them.

    Attributes:
        only: this process is one of them.
        present: there is one. A beat of theirs may be some seconds old, so the others also look if something urgent waits.
    """

    only: bool = False
    present: bool = False
    clock: Callable[[], float] = monotonic
    _help_until: float = -math.inf

    @property
    def leave(self) -> bool:
        """True while this process leaves urgent jobs to them."""
        return self.present and not self.only and self.clock() >= self._help_until

    def help(self) -> None:
        """Takes urgent jobs here, too, for a while: they can't keep up, or died."""
        self._help_until = self.clock() + HELP_S
