"""Chooses the lane of a job that leaves it open: the cheapest one that is expected to finish before its deadline."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic

from schemas.generation import Lane
from schemas.job import GenerationConfig
from tasks.errors import ConfigurationError
from tasks.ports import Leased, Providers
from tasks.ports.remote_batches import BatchTimes

SHARE = 0.75
"""Share of the observed batches that took at most the expected time: one slow batch of four changes nothing."""

MINUTE_S, MINUTES_OF_HOUR = 60, 60

READ_AGAIN_S = 30.0
"""Age of the observed times after which they are read again."""


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


@dataclass(frozen=True, slots=True)
class LaneChoice:
    """A lane, and the reason for people."""

    lane: Lane
    reason: str


@dataclass(slots=True)
class LaneChooser:
    """Chooses between calls at once and provider batches; ``refresh`` goes before the choice."""

    providers: Providers
    times: Callable[[str, str], Awaitable[BatchTimes]]
    """Reads the times of a provider's model."""
    terms: LaneTerms = field(default_factory=LaneTerms)
    _cache: dict[tuple[str, str], tuple[float, BatchTimes]] = field(default_factory=dict)
    _reads: dict[tuple[str, str], "asyncio.Task[None]"] = field(default_factory=dict)

    async def refresh(self, config: GenerationConfig, level: int = 0) -> None:
        """Reads the times of the models of a level of a job, where those known are old."""
        for turn in self.providers.turns(config, level):
            if not self.providers.cheaper_in_batches(turn.provider):
                continue
            own = config if turn.model == config.model else config.model_copy(update={"model": turn.model})
            try:
                model = self.providers.get(turn.provider).model_of(own)
            except ConfigurationError:
                # The plan of its call says what is missing.
                continue
            key = (turn.provider, model or "")
            if key not in self._cache or self._cache[key][0] < monotonic() - READ_AGAIN_S:
                await asyncio.shield(self._reads.get(key) or self._read(key))

    def _read(self, key: tuple[str, str]) -> "asyncio.Task[None]":
        """Reads the times of a model once for all jobs that ask for them meanwhile."""

        async def read() -> None:
            try:
                self._cache[key] = monotonic(), await self.times(*key)
            finally:
                del self._reads[key]

        task = self._reads[key] = asyncio.create_task(read(), name="times of provider batches")
        return task

    def choose(self, job: Leased, provider: str, model: str | None) -> LaneChoice:
        """Chooses the lane of a job's next call."""
        if not self.providers.cheaper_in_batches(provider):
            return LaneChoice(Lane.STANDARD, f"no cheaper lane of the provider {provider!r} is known")
        if job.request.config.stream:
            return LaneChoice(Lane.STANDARD, "an answer in a provider batch is not streamed")
        if job.priority > 0:
            return LaneChoice(Lane.STANDARD, f"urgent, with priority {job.priority}")
        if job.time_left is None:
            return LaneChoice(Lane.PROVIDER_BATCH, "the cheapest lane, for there is no deadline")
        _, times = self._cache.get((provider, model or ""), (0.0, BatchTimes()))
        batch, basis = expected(times, self.terms.unobserved)
        needed = self.terms.gathering + batch + self.terms.needed(provider, model or "", 1, 0)
        fits = needed <= job.time_left
        reason = (
            f"{in_words(job.time_left)} to the deadline; a batch is expected to take {in_words(batch)} ({basis}), "
            f"with gathering and margin {in_words(needed)}"
        )
        return LaneChoice(Lane.PROVIDER_BATCH if fits else Lane.STANDARD, reason)


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
