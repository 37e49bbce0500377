"""Keeps jobs that are leased before there is a slot for them, as many as may come free at once, urgent ones first."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from time import monotonic
from typing import Generic, NamedTuple, TypeVar

from tasks.ports import Leased, LeaseKey

BURST_S = 0.2
"""Slots that come free within so many seconds count as coming at once: two leases take less on a busy machine."""

AHEAD_SHARE = 0.2
"""Of a process's slots: most jobs that are leased ahead."""

AHEAD_LEAST = 50
"""The same bound where there are few slots: all of them may come free at once, when their calls take equally long."""

STUCK_S = 2.0
"""Seconds after which a job that found no slot is given back: another worker may have one. Bursts are remembered for as long."""

MARGIN_SHARE = 0.1
"""Of a burst: jobs leased beyond it, for the slots that come free just before and after it."""

SETTLE_S = 0.3
"""Seconds after a burst of calls that began before jobs are leased for its end: other workers have taken theirs by then."""

Work = TypeVar("Work")


class Prepared(NamedTuple, Generic[Work]):
    """A job, and the work on it that was begun."""

    job: Leased
    work: Work


class _Entry(NamedTuple, Generic[Work]):
    job: Leased
    work: Work
    since: float


class _Bursts:
    """Remembers the bursts of some event that no later one exceeded, for ``STUCK_S``."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()
        """Of the last ``BURST_S``."""
        self._bursts: deque[tuple[float, int]] = deque()
        """Times and sizes, so that the first is the largest."""

    def note(self, now: float) -> None:
        """Notes the event."""
        self._times.append(now)
        while self._times[0] < now - BURST_S:
            self._times.popleft()
        while self._bursts and self._bursts[-1][1] <= len(self._times):
            self._bursts.pop()
        self._bursts.append((now, len(self._times)))

    def largest(self, now: float) -> tuple[float, int]:
        """The time and the size of the largest one in memory; of none at all the size is 0."""
        while self._bursts and self._bursts[0][0] < now - STUCK_S:
            self._bursts.popleft()
        return self._bursts[0] if self._bursts else (now, 0)


class LeasedAhead(Generic[Work]):
    """The leased jobs without a slot, urgent ones first, then in the order of their leases, each with what was prepared for it.

    There are as many as the largest burst of slots that came free in the last moment, or of calls that began in it: these may
    end together, too. Where calls take minutes, that is none for most of the time: a job would wait for its slot, and another
    worker may have one.

    Args:
        slots: of the process; 0: nothing is leased ahead.
        clock: monotonic, in seconds.
    """

    def __init__(self, slots: int, clock: Callable[[], float] = monotonic) -> None:
        self.most = max(int(slots * AHEAD_SHARE), min(slots, AHEAD_LEAST))
        self._clock = clock
        self._starts, self._ends = _Bursts(), _Bursts()
        self._urgent: dict[LeaseKey, _Entry[Work]] = {}
        self._jobs: dict[LeaseKey, _Entry[Work]] = {}

    @property
    def has_urgent(self) -> bool:
        """The first job is an urgent one."""
        return bool(self._urgent)

    def __len__(self) -> int:
        return len(self._urgent) + len(self._jobs)

    @property
    def room(self) -> int:
        """Number of jobs that may be leased beyond the free slots."""
        return max(0, self._target() - len(self))

    @property
    def is_full_by_half(self) -> bool:
        """Enough wait for the slots that come free in the next moment."""
        return len(self) > self._target() // 2

    def _target(self) -> int:
        now = self._clock()
        _, ends = self._ends.largest(now)
        since, starts = self._starts.largest(now)
        burst = max(ends, starts if now - since >= SETTLE_S else 0)
        return min(self.most, burst + int(burst * MARGIN_SHARE))

    def note_start(self) -> None:
        """Notes that a call begins in a slot."""
        self._starts.note(self._clock())

    def note_end(self) -> None:
        """Notes that a slot came free."""
        self._ends.note(self._clock())

    def add(self, job: Leased, work: Work) -> None:
        """Adds a job."""
        jobs = self._urgent if job.priority > 0 else self._jobs
        jobs[LeaseKey(job.job_id, job.token)] = _Entry(job, work, self._clock())

    def take(self) -> Prepared[Work]:
        """Removes and returns the first job, older by the time that it waited here."""
        jobs = self._urgent or self._jobs
        job, work, since = jobs.pop(next(iter(jobs)))
        waited_ms = (self._clock() - since) * 1000
        older = replace(
            job,
            age_ms=job.age_ms + waited_ms,
            waited_ms=job.waited_ms + waited_ms,
            started_ago_ms=job.started_ago_ms + waited_ms,
            time_left=None if job.time_left is None else job.time_left - timedelta(milliseconds=waited_ms),
        )
        return Prepared(older, work)

    def drop(self, key: LeaseKey) -> Leased | None:
        """Removes and returns a job; None: it is not here any more."""
        entry = self._urgent.pop(key, None) or self._jobs.pop(key, None)
        return entry.job if entry is not None else None

    def stuck(self) -> list[LeaseKey]:
        """The jobs that wait for too long."""
        before = self._clock() - STUCK_S
        return [key for jobs in (self._urgent, self._jobs) for key, entry in jobs.items() if entry.since < before]

    def keys(self) -> list[LeaseKey]:
        """All jobs."""
        return [*self._urgent, *self._jobs]
