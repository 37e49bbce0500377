"""Reports the progress of a batch: a live line on a terminal, plain lines elsewhere, nothing when asked for quiet."""

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from schemas.batch import BatchStatus
from schemas.model_call import plain_usd
from schemas.states import HeldReason, JobState
from schemas.window import parse_window
from worker.cli.terminal import LOG_COLUMNS, tell
from worker.operations.counts import amount, cost, count_of, duration, spent_of

if TYPE_CHECKING:
    # Loaded for a terminal only.
    from rich.progress import Progress

SPINNER_COLUMNS = 4
"""Columns of the spinner and of the space between the columns."""

LINE_EVERY_S = 5.0
"""Seconds between two plain lines."""

SAME_EVERY_S = 600.0
"""The same where it says what it said: a night of waiting is no reason for thousands of lines."""

RATE_OVER_S = 30.0
"""Seconds over which the rate is taken."""
LEAST_LOOKS = 2


class Rate:
    """The jobs a second that became final lately."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looks: deque[tuple[float, int]] = deque()
        self._looked_at: float | None = None
        self._idle_s = 0.0
        self.per_s = 0.0

    def update(self, final: int, *, idle: bool = False) -> None:
        """Takes note of a count; jobs that were final before the first one do not count.

        ``idle`` tells that no job can be worked on, as in an outage of the provider: that time says nothing of the pace.
        """
        at = self._clock()
        if idle and self._looked_at is not None:
            self._idle_s += at - self._looked_at
        self._looked_at, now = at, at - self._idle_s
        self._looks.append((now, final))
        while len(self._looks) > LEAST_LOOKS and self._looks[0][0] < now - RATE_OVER_S:
            self._looks.popleft()
        began, then = self._looks[0]
        self.per_s = (final - then) / (now - began) if now > began else 0.0

    def describe(self, status: BatchStatus) -> str:
        """Rate and remaining time of the jobs that can end by themselves; empty while nothing moves, or nothing remains."""
        remaining = status.jobs - status.final - sum(status.held.values())
        if remaining <= 0 or self.per_s <= 0 or (status.window is None and all_wait(status)):
            return ""
        affordable = _affordable(status)
        seconds = min(remaining, affordable) / self.per_s
        if status.window is not None:
            # Work goes on only in its hours.
            now = datetime.now(UTC)
            seconds = (parse_window(status.window).finish(now, timedelta(seconds=seconds)) - now).total_seconds()
        if affordable < remaining or HeldReason.BUDGET in status.held:
            return f"{self.per_s:.1f}/s, {duration(seconds)} until the ceiling"
        late_s = 0.0 if status.deadline is None else seconds - (status.deadline - datetime.now(UTC)).total_seconds()
        late = f", {duration(late_s)} late" if late_s > 0 else ""
        return f"{self.per_s:.1f}/s, {duration(seconds)} left{late}"


def _affordable(status: BatchStatus) -> float:
    """The jobs that the ceiling still pays for, if they cost as much as those that ended."""
    if status.max_cost_usd is None or not status.spent_usd or not status.final:
        return math.inf
    return max(0.0, float((status.max_cost_usd - status.spent_usd) / status.spent_usd) * status.final)


def all_wait(status: BatchStatus) -> bool:
    """Tells that each job that is not final and not held waits for its time: the next try, or the beginning."""
    moving = (JobState.AVAILABLE, JobState.RUNNING, JobState.PENDING)
    waiting = status.states.get(JobState.SCHEDULED, 0) - sum(status.held.values())
    return waiting > 0 and not any(status.states.get(state) for state in moving)


def window_text(status: BatchStatus) -> str:
    """The window of a batch with its present state; empty without one."""
    return f"{status.window}, {_window_state(status.window)}" if status.window else ""


def _window_state(text: str) -> str:
    window, now = parse_window(text), datetime.now(UTC)
    interval = window.interval(now)
    state, at = ("open until", interval.ends_at) if interval.holds(now) else ("goes on at", interval.begins_at)
    return f"{state} {at.astimezone(window.zone):%Y-%m-%d %H:%M %Z}"


def money_line(status: BatchStatus) -> str:
    """The money of a batch in a few columns: spent, of the ceiling."""
    if status.spent_usd is None:
        return f"cost {spent_of(status)}"
    ceiling = "" if status.max_cost_usd is None else f" of {plain_usd(status.max_cost_usd)}"
    if not (status.spent_usd or status.reserved_usd or ceiling):
        return ""
    return f"{amount(status.spent_usd)}{ceiling} USD"


def _next_text(status: BatchStatus, next_at: datetime) -> str:
    """The time at which the next job goes on, or the first one begins, by the clocks here; empty once it is past."""
    if next_at <= datetime.now(UTC):
        # Due, and not taken up yet: no worker may run, and others may be busy.
        return ""
    begins = status.not_before is not None and status.not_before > datetime.now(UTC)
    day = "" if next_at.astimezone().date() == datetime.now(UTC).astimezone().date() else "%Y-%m-%d "
    return f"{'begins' if begins else 'next job'} at {next_at.astimezone().strftime(f'{day}%H:%M:%S')}"


def status_line(status: BatchStatus, rate: Rate, columns: int, next_at: datetime | None = None) -> str:
    """The state of a batch in one line that fits: done, pace and money first, then as many counts as there is room for.

    ``next_at`` is the time at which the first of its waiting jobs goes on.
    """
    running = status.states.get(JobState.RUNNING)
    parts = [f"{status.final:,} of {status.jobs:,} final"]
    waits = ""
    if status.window is not None and status.states.get(JobState.SCHEDULED):
        waits = _window_state(status.window)
    elif next_at is not None:
        waits = _next_text(status, next_at)
    parts += filter(None, (rate.describe(status), waits, money_line(status)))
    under_way = [*parts[:1], f"{running:,} running", *parts[1:]] if running else parts
    line = next((line for each in (under_way, parts) if len(line := ", ".join(each)) <= columns), ", ".join(parts))
    separator = ": "
    # Not in one sum with what was spent: it comes and goes with the calls.
    reserved = [f"{cost(status.reserved_usd)} reserved"] if status.reserved_usd else []
    counts = [
        f"{count:,} {name}" for name, count in ending_counts(status) if name != JobState.RUNNING or under_way is parts
    ]
    for count in reserved + counts:
        if len(line) + len(separator) + len(count) > columns:
            break
        line, separator = line + separator + count, ", "
    return line if len(line) <= columns else line[: columns - 1] + "…"


def counts_of(status: BatchStatus) -> str:
    """Counts by outcome and state, without the zeros."""
    return ", ".join(f"{count:,} {name}" for name, count in ending_counts(status)) or "no jobs"


def ending_counts(status: BatchStatus) -> list[tuple[str, int]]:
    """Jobs by outcome, by state where they have none, and held, without the zeros."""
    counts = [(outcome.value, count) for outcome, count in status.outcomes.items()]
    counts += [(state.value, count) for state, count in status.states.items() if state is not JobState.COMPLETED]
    on_hold = sum(status.held.values())
    counts = [(name, count) for name, count in counts if count and not (name == "scheduled" and count == on_hold)]
    return [*counts, (f"held ({', '.join(status.held)})", on_hold)] if on_hold else counts


class Reporter:
    """Reports only what a person must know."""

    def __init__(self) -> None:
        self._rate = Rate()

    def submitting(self, jobs: int) -> None:
        """Reports how many jobs have been read."""
        self.show(f"submitting: {count_of(jobs, 'job')} so far")

    def status(self, status: BatchStatus, next_at: datetime | None = None) -> None:
        """Reports the counts of a batch, its rate and the remaining time; ``next_at`` as ``status_line`` has it."""
        self._rate.update(status.final, idle=all_wait(status))
        self.show(status_line(status, self._rate, self.columns, next_at))

    def pages(self, verb: str, jobs: int, total: int | None) -> None:
        """Reports how many jobs a command has gone through."""
        part = "" if total is None else f"{jobs:,} of "
        self.show(f"{verb}: {part}{count_of(jobs if total is None else total, 'job')} so far")

    def note(self, message: str) -> None:
        """Writes a message."""
        tell(message)

    @property
    def columns(self) -> int:
        """The columns for a line."""
        return LOG_COLUMNS

    def show(self, line: str) -> None:
        """Shows a line on the progress."""

    def end(self) -> None:
        """Takes a live line away, before results go to the same terminal."""


class LineReporter(Reporter):
    """Writes a line every few seconds, without colours or control characters: for logs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._written_at = clock()
        self._line = ""

    def show(self, line: str) -> None:
        """Writes the line when it is time for one."""
        now, same = self._clock(), line == self._line
        if now - self._written_at >= (SAME_EVERY_S if same else LINE_EVERY_S):
            self._line, self._written_at = line, now
            tell(line)


class BarReporter(Reporter):
    """Rewrites a live line; messages appear above it."""

    def __init__(self, progress: "Progress") -> None:
        super().__init__()
        self._progress = progress
        self._task = progress.add_task("starting", total=None)

    @property
    def columns(self) -> int:
        """The columns beside the spinner."""
        return self._progress.console.width - SPINNER_COLUMNS

    def show(self, line: str) -> None:
        """Puts the line in the place of the one before."""
        self._progress.update(self._task, description=line)

    def end(self) -> None:
        """See ``Reporter``."""
        self._progress.stop()


@contextmanager
def reporting(*, quiet: bool) -> Iterator[Reporter]:
    """The reporter that fits where standard error goes."""
    if quiet:
        yield Reporter()
    elif sys.stderr.isatty():
        rich: Any = import_module("rich.progress")
        console = import_module("rich.console").Console(stderr=True)
        # No bar: at 80 columns it would take the place of what the line says.
        columns = rich.SpinnerColumn(), rich.TextColumn("{task.description}")
        with rich.Progress(*columns, console=console, transient=True) as live:
            yield BarReporter(live)
    else:
        yield LineReporter()
