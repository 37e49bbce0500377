"""Tells how a batch goes: a live bar on a terminal, plain lines elsewhere, nothing when asked for quiet."""

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from schemas.batch import BatchStatus
from schemas.states import JobState
from worker.cli.messages import tell

LINE_EVERY_S = 5.0
"""Seconds between two plain lines."""

RATE_OVER_S = 30.0
"""Seconds over which the rate is taken."""
LEAST_LOOKS = 2

TENTHS_S = 10
MINUTES_FROM_S = 100
"""Seconds up to which a time span is told in tenths, and from which in minutes."""


class Rate:
    """How many jobs a second became final lately, and how long the rest takes at that."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()
        self.per_s = 0.0

    def update(self, final: int) -> None:
        """Take note of a count; what was final before the first look does not count."""
        now = time.monotonic()
        self._looks.append((now, final))
        while len(self._looks) > LEAST_LOOKS and self._looks[0][0] < now - RATE_OVER_S:
            self._looks.popleft()
        began, then = self._looks[0]
        self.per_s = (final - then) / (now - began) if now > began else 0.0

    def left_s(self, remaining: int) -> float | None:
        """Seconds until the rest is final; None while nothing moves, or nothing is left."""
        return remaining / self.per_s if remaining and self.per_s > 0 else None


def counts_of(status: BatchStatus) -> str:
    """Counts by outcome and state, without those that are nought."""
    named = [(outcome.value, count) for outcome, count in status.outcomes.items()]
    named += [(state.value, count) for state, count in status.states.items() if state is not JobState.COMPLETED]
    held = sum(status.held.values())
    parts = [f"{count} {name}" for name, count in named if count and not (name == "scheduled" and count == held)]
    if held:
        parts.append(f"{held} held ({', '.join(status.held)})")
    return ", ".join(parts) or "no jobs"


class Silent:
    """Tells only what a person must know."""

    def submitting(self, jobs: int) -> None:
        """Nothing."""

    def status(self, status: BatchStatus) -> None:
        """Nothing."""

    def pages(self, verb: str, jobs: int, total: int | None) -> None:
        """Nothing."""

    def note(self, message: str) -> None:
        """Write it."""
        tell(message)


class Lines(Silent):
    """A line every few seconds, without colours or control characters: for logs."""

    def __init__(self) -> None:
        self._rate = Rate()
        self._told = time.monotonic()

    def _due(self) -> bool:
        now = time.monotonic()
        if now - self._told < LINE_EVERY_S:
            return False
        self._told = now
        return True

    def submitting(self, jobs: int) -> None:
        """How many jobs have been read."""
        if self._due():
            tell(f"submitting: {jobs} jobs so far")

    def status(self, status: BatchStatus) -> None:
        """Counts, rate and what is left."""
        self._rate.update(status.final)
        if self._due():
            tell(f"{status.final} of {status.jobs} final{_pace(self._rate, status)}: {counts_of(status)}")

    def pages(self, verb: str, jobs: int, total: int | None) -> None:
        """Show how many jobs a command has gone through."""
        if self._due():
            tell(f"{verb}: {jobs}{'' if total is None else f' of {total}'} jobs so far")


def _pace(rate: Rate, status: BatchStatus) -> str:
    left = rate.left_s(status.jobs - status.final)
    return "" if left is None else f", {rate.per_s:.1f} a second, about {duration(left)} left"


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


class Bar(Silent):
    """A live bar with rate, remaining time and counts; what is written meanwhile appears above it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._rate = Rate()
        self._task = progress.add_task("starting", total=None, pace="", counts="")

    def submitting(self, jobs: int) -> None:
        """How many jobs have been read."""
        self._progress.update(self._task, description="submitting", counts=f"{jobs} jobs")

    def status(self, status: BatchStatus) -> None:
        """Move the bar."""
        self._rate.update(status.final)
        self._progress.update(
            self._task,
            description=f"{status.final} of {status.jobs} final",
            total=status.jobs,
            completed=status.final,
            pace=_pace(self._rate, status).removeprefix(", "),
            counts=counts_of(status),
        )

    def pages(self, verb: str, jobs: int, total: int | None) -> None:
        """Show how many jobs a command has gone through."""
        self._progress.update(self._task, description=verb, total=total, completed=jobs, counts=f"{jobs} jobs")


@contextmanager
def progress(*, quiet: bool) -> Iterator[Silent]:
    """The way to tell that fits where standard error goes."""
    if quiet:
        yield Silent()
    elif sys.stderr.isatty():
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[pace]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[counts]}"),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as live:
            yield Bar(live)
    else:
        yield Lines()
