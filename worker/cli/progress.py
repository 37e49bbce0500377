"""Reports the progress of a batch: a live bar on a terminal, plain lines elsewhere, nothing when asked for quiet."""

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from schemas.batch import BatchStatus
from schemas.states import JobState
from worker.cli.terminal import tell

if TYPE_CHECKING:
    # Loaded for a terminal only.
    from rich.progress import Progress

LINE_EVERY_S = 5.0
"""Seconds between two plain lines."""

RATE_OVER_S = 30.0
"""Seconds over which the rate is taken."""
LEAST_LOOKS = 2

TENTHS_S = 10
MINUTES_FROM_S = 100
"""Seconds up to which a time span is written in tenths, and from which in minutes."""


class Rate:
    """The jobs a second that became final lately."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()
        self.per_s = 0.0

    def update(self, final: int) -> None:
        """Takes note of a count; jobs that were final before the first one do not count."""
        now = time.monotonic()
        self._looks.append((now, final))
        while len(self._looks) > LEAST_LOOKS and self._looks[0][0] < now - RATE_OVER_S:
            self._looks.popleft()
        began, then = self._looks[0]
        self.per_s = (final - then) / (now - began) if now > began else 0.0

    def describe(self, status: BatchStatus) -> str:
        """Rate and remaining time; empty while nothing moves, or nothing remains."""
        remaining = status.jobs - status.final
        if not remaining or self.per_s <= 0:
            return ""
        return f"{self.per_s:.1f} a second, about {duration(remaining / self.per_s)} left"


def counts_of(status: BatchStatus) -> str:
    """Counts by outcome and state, without the zeros."""
    counts = [(outcome.value, count) for outcome, count in status.outcomes.items()]
    counts += [(state.value, count) for state, count in status.states.items() if state is not JobState.COMPLETED]
    on_hold = sum(status.held.values())
    parts = [f"{count} {name}" for name, count in counts if count and not (name == "scheduled" and count == on_hold)]
    if on_hold:
        parts.append(f"{on_hold} held ({', '.join(status.held)})")
    return ", ".join(parts) or "no jobs"


def duration(seconds: float) -> str:
    """A time span for people."""
    if seconds < TENTHS_S:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < MINUTES_FROM_S:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


class Reporter:
    """Reports only what a person must know."""

    def submitting(self, jobs: int) -> None:
        """Reports how many jobs have been read."""

    def status(self, status: BatchStatus) -> None:
        """Reports the counts of a batch, its rate and the remaining time."""

    def pages(self, verb: str, jobs: int, total: int | None) -> None:
        """Reports how many jobs a command has gone through."""

    def note(self, message: str) -> None:
        """Writes a message."""
        tell(message)


class LineReporter(Reporter):
    """Writes a line every few seconds, without colours or control characters: for logs."""

    def __init__(self) -> None:
        self._rate = Rate()
        self._last = time.monotonic()

    def _write(self, line: str) -> None:
        now = time.monotonic()
        if now - self._last >= LINE_EVERY_S:
            self._last = now
            tell(line)

    def submitting(self, jobs: int) -> None:
        """See ``Reporter``."""
        self._write(f"submitting: {jobs} jobs so far")

    def status(self, status: BatchStatus) -> None:
        """See ``Reporter``."""
        self._rate.update(status.final)
        pace = self._rate.describe(status)
        self._write(f"{status.final} of {status.jobs} final{', ' if pace else ''}{pace}: {counts_of(status)}")

    def pages(self, verb: str, jobs: int, total: int | None) -> None:
        """See ``Reporter``."""
        self._write(f"{verb}: {jobs}{'' if total is None else f' of {total}'} jobs so far")


class BarReporter(Reporter):
    """Moves a live bar with rate, remaining time and counts; messages appear above it."""

    def __init__(self, progress: "Progress") -> None:
        self._progress = progress
        self._rate = Rate()
        self._task = progress.add_task("starting", total=None, pace="", counts="")

    def submitting(self, jobs: int) -> None:
        """See ``Reporter``."""
        self._progress.update(self._task, description="submitting", counts=f"{jobs} jobs")

    def status(self, status: BatchStatus) -> None:
        """See ``Reporter``."""
        self._rate.update(status.final)
        self._progress.update(
            self._task,
            description=f"{status.final} of {status.jobs} final",
            total=status.jobs,
            completed=status.final,
            pace=self._rate.describe(status),
            counts=counts_of(status),
        )

    def pages(self, verb: str, jobs: int, total: int | None) -> None:
        """See ``Reporter``."""
        self._progress.update(self._task, description=verb, total=total, completed=jobs, counts=f"{jobs} jobs")


@contextmanager
def reporting(*, quiet: bool) -> Iterator[Reporter]:
    """The reporter that fits where standard error goes."""
    if quiet:
        yield Reporter()
    elif sys.stderr.isatty():
        rich: Any = import_module("rich.progress")
        columns = (
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.TaskProgressColumn(),
            rich.TextColumn("{task.fields[pace]}"),
            rich.TimeElapsedColumn(),
            rich.TextColumn("{task.fields[counts]}"),
        )
        console = import_module("rich.console").Console(stderr=True)
        with rich.Progress(*columns, console=console, transient=True) as live:
            yield BarReporter(live)
    else:
        yield LineReporter()
