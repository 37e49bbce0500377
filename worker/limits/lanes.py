"""Pauses lanes, by an operator's word or the failures of their calls, and knows which provider is unreachable."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic, time
from typing import NamedTuple

from schemas.failure import Failure, FailureKind
from tasks.calls.retry import REFUSED_LANE
from tasks.errors import NightdeskError
from worker.cancellation import is_set_within
from worker.ledger.fleet import Fleet

log = logging.getLogger(__name__)

_K = FailureKind

ALL_MODELS = ""
"""In place of a model: every model of the provider."""

SCOPE_OF_PROVIDER = frozenset({_K.QUOTA, _K.AUTHENTICATION, _K.UNAVAILABLE})
"""Failures that concern every model of a provider; the other ones that pause a lane concern one model."""

REFUSALS_TO_PAUSE = 3
"""Refusals in a row before a pause: a single one may be a hiccup of a gateway, or the request's own fault."""

LOST_TO_REPORT = 3
"""Calls in a row without a connection after which operators are notified."""

FIRST_CALLS = 4
FIRST_CALLS_S = 2.0
"""Calls at once of a model that has not answered yet; they double each such time: a refusal comes soon, and slow answers
must not make the other calls wait for long."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A provider that accepts no connection."""

    provider: str
    since_s: float
    """Unix time of the first call without a connection."""
    why: str


class SlowStart:
    """Lets few calls go until a model has answered one, so that hundreds of calls do not try a refused key at once."""

    def __init__(self) -> None:
        self._calls = 0
        self._began: float | None = None
        self._over = asyncio.Event()

    @property
    def over(self) -> bool:
        """True once calls go without a count."""
        return self._over.is_set()

    async def admit(self) -> None:
        """Returns when a call may go: at once for the first few, then as the count doubles, or when the start is over."""
        while not self.over:
            now = monotonic()
            began = self._began = now if self._began is None else self._began
            steps = int((now - began) / FIRST_CALLS_S)
            if self._calls < FIRST_CALLS << min(steps, 32):
                self._calls += 1
                return
            await is_set_within(self._over, began + (steps + 1) * FIRST_CALLS_S - now)

    def end(self) -> None:
        """Lets all calls go."""
        self._over.set()


class LaneHealth:
    """The refusals in a row of each provider and model, and the time that a provider is unreachable.

    Args:
        unreachable_s: after so long without a connection the lane is paused.
        clock: monotonic seconds.
    """

    def __init__(self, unreachable_s: float, clock: Callable[[], float] = monotonic) -> None:
        self._unreachable_s = unreachable_s
        self._clock = clock
        self.refusals: Counter[tuple[str, str, FailureKind]] = Counter()
        """In a row, by provider and model."""
        self.outages: dict[str, _Outage] = {}
        """By provider; both are empty while all calls are answered."""

    def answered(self, provider: str, model: str) -> None:
        """Notes that a call was answered: key and model are served."""
        self._reach(provider)
        for kind in REFUSED_LANE:
            self.refusals.pop((provider, _scope(kind, model), kind), None)

    def failed(self, provider: str, model: str, failure: Failure) -> str | None:
        """Notes a failed call; returns the model whose lane needs a pause, ``ALL_MODELS``, or None for no pause."""
        kind = failure.kind
        if kind is _K.UNAVAILABLE:
            return ALL_MODELS if self._lose(provider, failure) else None
        if kind not in {_K.UNKNOWN_OUTCOME, _K.CANCELLED, _K.INTERNAL, _K.CONFIGURATION}:
            # Any other failure proves a connection.
            self._reach(provider)
        if kind is _K.QUOTA:
            return ALL_MODELS
        if kind not in REFUSED_LANE:
            return None
        scope = _scope(kind, model)
        self.refusals[provider, scope, kind] += 1
        # The count stays: after a release the first refusal pauses the lane again.
        return scope if self.refusals[provider, scope, kind] >= REFUSALS_TO_PAUSE else None

    def lost(self, provider: str) -> bool:
        """True if several calls in a row got no connection."""
        outage = self.outages.get(provider)
        return outage is not None and outage.calls >= LOST_TO_REPORT

    def unreachable(self) -> tuple[Unreachable, ...]:
        """The providers to report to operators."""
        return tuple(
            Unreachable(provider, lost.since_s, lost.why)
            for provider, lost in sorted(self.outages.items())
            if lost.calls >= LOST_TO_REPORT
        )

    def _lose(self, provider: str, failure: Failure) -> bool:
        lost = self.outages.setdefault(provider, _Outage(self._clock(), time()))
        lost.calls, lost.why = lost.calls + 1, failure.message
        if lost.calls == LOST_TO_REPORT:
            log.warning("%s; its jobs wait, and are tried again", lost.why)
        return self._clock() - lost.since >= self._unreachable_s

    def _reach(self, provider: str) -> None:
        """Notes a connection."""
        lost = self.outages.pop(provider, None)
        if lost is not None and lost.calls >= LOST_TO_REPORT:
            log.warning("%s is reached again, after %.0f s", provider, self._clock() - lost.since)


@dataclass(slots=True)
class _Outage:
    since: float
    since_s: float
    calls: int = 0
    why: str = ""


def _scope(kind: FailureKind, model: str) -> str:
    return ALL_MODELS if kind in SCOPE_OF_PROVIDER else model


# ---- paused lanes ----------------------------------------------------------------------------------------------------


class PausedLane(NamedTuple):
    """A way to call a provider; an empty model means all of them."""

    provider: str
    lane: str
    model: str = ""

    def __str__(self) -> str:
        return f"the lane {self.lane} of {self.provider}" + (f" for the model {self.model}" if self.model else "")


class Lanes:
    """The paused lanes as this process knows them; belongs to one event loop."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.pauses: frozenset[PausedLane] = frozenset()
        """The paused lanes, as far as this process knows."""
        self._refreshed_at = float("-inf")
        self._refreshing = asyncio.Lock()
        self.writing: dict[PausedLane, asyncio.Task[None]] = {}
        """The pauses that it is just writing."""

    def maybe_paused(self, provider: str, lane: str, model: str) -> bool:
        """Tells whether a lane is paused as far as this process knows, including pauses that it is just writing."""
        return any(name in self.pauses or name in self.writing for name in _covering(provider, lane, model))

    async def paused(self, provider: str, lane: str, model: str = "") -> bool:
        """Tells whether a lane is paused. The ledger confirms a pause, so that jobs just released are not held again."""
        if not self.maybe_paused(provider, lane, model):
            return False
        covering = _covering(provider, lane, model)
        if writing := [self.writing[name] for name in covering if name in self.writing]:
            await asyncio.wait(writing)
        await self.refresh(since=monotonic())
        return any(name in self.pauses for name in covering)

    async def refresh(self, *, since: float | None = None) -> None:
        """Asks the ledger, unless it was asked after ``since``; callers that wait meanwhile share the next answer."""
        async with self._refreshing:
            if since is None or self._refreshed_at < since:
                began = monotonic()
                self.pauses = frozenset(PausedLane(*row) for row in await self._fleet.paused_lanes())
                self._refreshed_at = began

    def note(self, paused: Sequence[tuple[str, str, str]], *, since: float) -> None:
        """Takes over the paused lanes of a reply to a question of ``since``, unless there was a later one."""
        if self._refreshed_at < since and not self._refreshing.locked():
            self.pauses = frozenset(PausedLane(*row) for row in paused)
            self._refreshed_at = since

    def pause(self, lane: PausedLane, kind: FailureKind, why: str) -> None:
        """Pauses a lane for all workers; returns at once."""
        if lane not in self.pauses and lane not in self.writing:
            self.writing[lane] = asyncio.get_running_loop().create_task(
                self._write(lane, kind, why), name="pause a lane"
            )

    async def _write(self, lane: PausedLane, kind: FailureKind, why: str) -> None:
        try:
            await self._fleet.pause_lane(lane.provider, lane.lane, why, model=lane.model, kind=kind)
        except NightdeskError as error:
            # The job itself is held all the same, and the next refused call tries again.
            log.warning("the pause of %s could not be noted: %s", lane, error)
        else:
            self.pauses |= {lane}
            log.warning("%s is paused: %s", lane, why)
        finally:
            self.writing.pop(lane, None)

    async def retry(self, older_than: timedelta) -> Sequence[PausedLane]:
        """Resumes lanes with a pause older than this; returns them."""
        resumed = [PausedLane(*row) for row in await self._fleet.retry_lanes(older_than)]
        for lane in resumed:
            log.warning("%s is tried again", lane)
        return resumed

    async def close(self) -> None:
        """Waits for pauses that are being written."""
        if self.writing:
            await asyncio.wait(self.writing.values())


def _covering(provider: str, lane: str, model: str) -> tuple[PausedLane, ...]:
    """The lanes that a call belongs to: of its model, and of all models."""
    return (PausedLane(provider, lane), PausedLane(provider, lane, model)) if model else (PausedLane(provider, lane),)
