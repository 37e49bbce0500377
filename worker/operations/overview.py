"""Collects the state of batches, with the lanes that make no calls."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from schemas.batch import BatchStatus, LaneStatus
from worker.ledger.fleet import LaneNotice
from worker.ledger.postgres import PostgresLedger


@dataclass(frozen=True, slots=True)
class Overview:
    """Batches, newest first, and the lanes without calls."""

    batches: list[BatchStatus]
    lanes: list[LaneNotice]


async def overview(ledger: PostgresLedger, *, newest: int) -> Overview:
    """The newest batches."""
    return Overview(await ledger.reading.batches(newest), await ledger.fleet.lane_notices())


async def batch_overview(ledger: PostgresLedger, batch_id: UUID) -> Overview:
    """One batch, with the kinds of error in its answers; raises ``NotFound``."""
    status = await ledger.reading.batch_status(batch_id)
    errors = await ledger.reading.error_kinds(batch_id)
    return Overview([status.model_copy(update={"errors": errors})], await ledger.fleet.lane_notices())


def status_document(status: BatchStatus, lanes: Sequence[LaneNotice]) -> dict[str, Any]:
    """The status of a batch with the lanes without calls, for programs."""
    paused = tuple(LaneStatus(**asdict(lane), remedy=lane.remedy) for lane in lanes)
    return status.model_copy(update={"lanes": paused}).model_dump(mode="json")
