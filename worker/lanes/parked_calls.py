"""Parks the calls of many jobs together."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from tasks.ports.remote_batches import ParkedCall
from worker.batching import Batcher


def parked_together(
    name: str, park: Callable[[Sequence[ParkedCall]], Awaitable[set[UUID]]]
) -> Batcher[ParkedCall, bool]:
    """Groups calls that the ledger parks; each tells whether it is parked now."""

    async def park_all(calls: Sequence[ParkedCall]) -> list[bool]:
        parked = await park(calls)
        return [call.attempt_id in parked for call in calls]

    return Batcher(name, park_all)
