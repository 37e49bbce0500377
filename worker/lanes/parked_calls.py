"""Parks the calls of many jobs together."""

from collections.abc import Sequence

from tasks.ports.remote_batches import ParkedCall
from worker.batching import Batcher
from worker.ledger.background_responses import PostgresResponses
from worker.ledger.provider_batches import PostgresRemoteBatches


def parked_together(name: str, store: PostgresRemoteBatches | PostgresResponses) -> Batcher[ParkedCall, bool]:
    """Groups calls that a store parks; each tells whether it is parked now."""

    async def park(calls: Sequence[ParkedCall]) -> list[bool]:
        parked = await store.park(calls)
        return [call.attempt_id in parked for call in calls]

    return Batcher(name, park)
