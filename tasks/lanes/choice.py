"""Chooses the lane of a job that leaves it open: the cheapest one that is expected to finish before its deadline."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic

from schemas.generation import WINDOWS, Lane
from schemas.job import GenerationConfig
from tasks.errors import ConfigurationError
from tasks.ports import Leased, Providers
from tasks.ports.remote_batches import BatchTimes

SHARE = 0.75
"""Share of the observed batches that took at most the expected time: one slow batch of four changes nothing."""

MINUTE_S, MINUTES_OF_HOUR = 60, 60

READ_AGAIN_S = 30.0
"""Age of the observed times after which they are read again."""

REFUSED_S = 3_600.0
"""Time for which a lane is not chosen that the provider refused for a model."""

_Key = tuple[str, str, Lane]


@dataclass(frozen=True, slots=True)
class LaneTerms:
    """Times by which calls choose and leave a lane; one set for all processes."""

    unobserved: timedelta = timedelta(hours=24)
    """Expected time of a batch while none of its model was observed: both providers promise this one."""
    gathering: timedelta = timedelta(minutes=5)
    """Longest time until parked calls are sent."""
    margin: timedelta = timedelta(minutes=20)
    """Time that a batch gets to be cancelled, and its jobs to be checked."""
    standard_s: Callable[[str, str, int, int], float] = lambda *_: 0.0
    """Seconds that so many calls, with bodies of so many bytes, take at once: of a provider's model."""

    def needed(self, provider: str, model: str, calls: int, body_bytes: int) -> timedelta:
        """The time before their deadline at which calls leave a batch to be made at once."""
        return self.margin + timedelta(seconds=self.standard_s(provider, model, calls, body_bytes))

    def until_sent(self, lane: Lane) -> timedelta:
        """The longest time until a call of this lane is sent."""
        return self.gathering if lane is Lane.PROVIDER_BATCH else timedelta(0)

    def without_observation(self, lane: Lane) -> timedelta:
        """The expected time of a lane of which nothing was observed."""
        return WINDOWS.get(lane, self.unobserved)


@dataclass(frozen=True, slots=True)
class LaneChoice:
    """A lane, and the reason for people."""

    lane: Lane
    reason: str


@dataclass(frozen=True, slots=True)
class SentCalls:
    """Calls of a model that were sent in a lane so long ago, and are to be made again together if they leave it."""

    provider: str
    model: str
    lane: Lane
    age: timedelta
    calls: int = 1
    body_bytes: int = 0


@dataclass(slots=True)
class LaneChooser:
    """Chooses between calls at once and the cheaper lanes; ``refresh`` goes before the choice."""

    providers: Providers
    times: Callable[[str, str, Lane], Awaitable[BatchTimes]]
    """Reads the times of a provider's model in a lane."""
    terms: LaneTerms = field(default_factory=LaneTerms)
    _cache: dict[_Key, tuple[float, BatchTimes]] = field(default_factory=dict)
    _reads: dict[_Key, "asyncio.Task[None]"] = field(default_factory=dict)
    _refused_at: dict[_Key, float] = field(default_factory=dict)

    async def refresh(self, config: GenerationConfig, level: int = 0) -> None:
        """Reads the times of the models of a level of a job, where those known are old."""
        for turn in self.providers.turns(config, level):
            if not self.providers.cheaper_lanes(turn.provider):
                continue
            own = config if turn.model == config.model else config.model_copy(update={"model": turn.model})
            try:
                model = self.providers.get(turn.provider).model_of(own)
            except ConfigurationError:
                # The plan of its call says what is missing.
                continue
            await self.refresh_times(turn.provider, model or "")

    async def refresh_times(self, provider: str, model: str) -> None:
        """Reads the times of a model where those known are old."""
        for lane in self.providers.cheaper_lanes(provider):
            key = (provider, model, lane)
            if key not in self._cache or self._cache[key][0] < monotonic() - READ_AGAIN_S:
                await asyncio.shield(self._reads.get(key) or self._read(key))

    def _read(self, key: _Key) -> "asyncio.Task[None]":
        """Reads the times of a model once for all jobs that ask for them meanwhile."""

        async def read() -> None:
            try:
                self._cache[key] = monotonic(), await self.times(*key)
            finally:
                del self._reads[key]

        task = self._reads[key] = asyncio.create_task(read(), name="times of provider batches")
        return task

    def refuse(self, provider: str, model: str | None, lane: Lane) -> None:
        """Keeps jobs out of a lane for a while that the provider has not for this model."""
        self._refused_at[provider, model or "", lane] = monotonic()

    def _lanes(self, provider: str, model: str | None, without: Collection[Lane]) -> list[Lane]:
        oldest = monotonic() - REFUSED_S
        return [
            lane
            for lane in self.providers.cheaper_lanes(provider)
            if lane not in without and self._refused_at.get((provider, model or "", lane), oldest) <= oldest
        ]

    def _expected(self, provider: str, model: str | None, lane: Lane) -> tuple[timedelta, str]:
        _, times = self._cache.get((provider, model or "", lane), (0.0, BatchTimes()))
        return expected(times, self.terms.without_observation(lane))

    def expected_time(self, provider: str, model: str | None, lane: Lane) -> tuple[timedelta, str]:
        """The time until a call in a cheaper lane is answered, and the basis for people."""
        time, basis = self._expected(provider, model, lane)
        return self.terms.until_sent(lane) + time, f"the lane {lane.value} takes {in_words(time)} ({basis})"

    def choose(
        self, job: Leased, provider: str, model: str | None, without: Collection[Lane] = frozenset()
    ) -> LaneChoice:
        """Chooses the lane of a job's next call, ``without`` those that just refused it."""
        if not self.providers.cheaper_lanes(provider):
            reason = f"no cheaper lane of the provider {provider!r} is known"
        elif job.request.config.stream:
            reason = "only an answer at once is streamed"
        elif job.priority > 0:
            reason = f"urgent, with priority {job.priority}"
        elif not (lanes := self._lanes(provider, model, without)):
            reason = "no calls are made in cheaper lanes now"
        elif job.calls_left is None:
            return LaneChoice(lanes[0], "the cheapest lane, for there is no deadline")
        else:
            return self._before_deadline(provider, model, lanes, job)
        return LaneChoice(Lane.STANDARD, reason)

    def _before_deadline(self, provider: str, model: str | None, lanes: Sequence[Lane], job: Leased) -> LaneChoice:
        """Chooses the first lane that is expected to end while calls may still be made at once."""
        time_left = job.calls_left or timedelta(0)
        reason = f"{in_words(time_left)} to the deadline"
        if job.window_gap:
            reason = f"{in_words(time_left)} to the end of the last window before the deadline"
        for lane in lanes:
            time, basis = self._expected(provider, model, lane)
            needed = self.terms.until_sent(lane) + time + self.terms.needed(provider, model or "", 1, 0)
            reason += _part(lane, time, basis, needed)
            if needed <= time_left:
                return LaneChoice(lane, reason)
        return LaneChoice(Lane.STANDARD, reason)

    def leave_in(self, calls: SentCalls, due_in: timedelta) -> timedelta:
        """The time until calls have to leave a lane to meet their deadline; zero or less: now.

        Calls that are late by the expected time of their lane leave it for a quicker one that is still cheaper, at the
        last moment for that. All others leave it at the last moment for calls at once.
        """
        at_once = self.terms.needed(calls.provider, calls.model, calls.calls, calls.body_bytes)
        late_in = self._expected(calls.provider, calls.model, calls.lane)[0] - calls.age
        moments = [due_in - at_once]
        lanes = self._lanes(calls.provider, calls.model, ())
        for quicker in lanes[lanes.index(calls.lane) + 1 :] if calls.lane in lanes else ():
            last = due_in - self._expected(calls.provider, calls.model, quicker)[0] - at_once
            # A cancel takes time too.
            moment = max(late_in, last - self.terms.margin)
            if timedelta(0) <= last and moment <= last:
                moments.append(moment)
        return min(moments)


def _part(lane: Lane, time: timedelta, basis: str, needed: timedelta) -> str:
    """The expected time of a lane, for people."""
    if lane is Lane.PROVIDER_BATCH:
        return f"; a batch is expected to take {in_words(time)} ({basis}), with gathering and margin {in_words(needed)}"
    return f"; the lane {lane.value} is expected to take {in_words(time)} ({basis}), with margin {in_words(needed)}"


def expected(times: BatchTimes, unobserved: timedelta) -> tuple[timedelta, str]:
    """The time that a batch is expected to take, and the basis.

    >>> expected(BatchTimes((600, 1200, 900, 86400)), timedelta(hours=24))
    (datetime.timedelta(seconds=1200), 'as 3 of the last 4')
    >>> expected(BatchTimes(), timedelta(hours=24))
    (datetime.timedelta(days=1), 'none was observed')
    """
    if not times.ended_s:
        return unobserved, "none was observed"
    usual_s = _usual(times.ended_s)
    # A batch that is still open after the usual time is known to take longer.
    samples = [*times.ended_s, *(age_s for age_s in times.open_s if age_s > usual_s)]
    return timedelta(seconds=_usual(samples)), f"as {_rank(samples)} of the last {len(samples)}"


def _usual(samples: Sequence[float]) -> float:
    return sorted(samples)[_rank(samples) - 1]


def _rank(samples: Sequence[float]) -> int:
    return math.ceil(SHARE * len(samples))


def in_words(time: timedelta) -> str:
    """A time for people.

    >>> in_words(timedelta(minutes=500)), in_words(timedelta(seconds=95)), in_words(timedelta(seconds=9.6))
    ('8 h 20 min', '2 min', '10 s')
    """
    seconds = max(0.0, time.total_seconds())
    if seconds < MINUTE_S:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / MINUTE_S), MINUTES_OF_HOUR)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
