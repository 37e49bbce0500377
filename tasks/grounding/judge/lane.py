"""Chooses the lane of a judge's call, and parks a call that rides in a provider batch."""

from dataclasses import dataclass

from schemas.generation import WINDOWS, Lane
from schemas.job import GenerationConfig
from tasks.calls.paid_call import OpenCall, finish_first
from tasks.lanes.choice import LaneChoice, LaneChooser
from tasks.lanes.parking import Parking
from tasks.ports import Leased, Turn

RIDES = frozenset({Lane.PROVIDER_BATCH, Lane.AUTO})
"""Lanes of jobs whose judges ride in a provider batch, too."""

MOST_RETURNS = 3
"""Batches that may end without a judge's call being made, before it is made at once."""


def may_ride(job: Leased) -> bool:
    """True if the job's lane lets its judge wait for a provider batch."""
    return job.request.config.lane in RIDES and job.recheck is None


def model_of(lanes: LaneChooser, turn: Turn) -> str | None:
    """The model of a judge, also where that is the provider's default. Raises ``ConfigurationError``."""
    return lanes.providers.get(turn.provider).model_of(GenerationConfig(provider=turn.provider, model=turn.model))


def choose_lane(lanes: LaneChooser, job: Leased, turn: Turn) -> LaneChoice | None:
    """The lane of a judge's first call, by the times read before; None: it is made at once. Raises ``ConfigurationError``."""
    if not may_ride(job):
        return None
    choice = lanes.choose(job, turn.provider, model_of(lanes, turn), WINDOWS.keys())
    return choice if choice.lane is Lane.PROVIDER_BATCH else None


@dataclass(slots=True)
class JudgeLane:
    """Sends the judge of a job in a provider batch by a provider batch, too, where its deadline leaves the time."""

    lanes: LaneChooser
    parking: Parking

    async def choose(self, job: Leased, turn: Turn) -> LaneChoice | None:
        """The lane ``provider_batch`` with its reason; None: the call is made at once.

        A person who repeats a check waits for it. A call that failed is made again at once: its answer waits already.
        """
        if job.spent or job.unknown or job.snoozes >= MOST_RETURNS or not may_ride(job):
            return None
        await self.lanes.refresh_times(turn.provider, model_of(self.lanes, turn) or "")
        return choose_lane(self.lanes, job, turn)

    async def park(self, paid: OpenCall) -> None:
        """Makes the job wait for the batch in which its judge is asked."""
        await finish_first(self.parking.park(paid, {}, ()))
