"""Collects the state of batches, with the lanes that make no calls."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from schemas.batch import BatchStatus, LaneStatus, RemoteBatchStatus
from schemas.states import JobState
from worker.ledger.fleet import LaneNotice
from worker.ledger.postgres import PostgresLedger
from worker.ledger.remote_overview import RemoteNotice


@dataclass(frozen=True, slots=True)
class Overview:
    """Batches, newest first, and the lanes without calls."""

    batches: list[BatchStatus]
    lanes: list[LaneNotice]
    remote: Sequence[RemoteNotice] = ()
    """Provider batches in which the jobs of a single batch wait."""
    unserved: Sequence[str] = ()
    """Queues with available jobs that no worker takes."""


async def overview(ledger: PostgresLedger, *, newest: int) -> Overview:
    """The newest batches."""
    lanes, unserved = await ledger.fleet.lane_notices(), await ledger.fleet.unserved()
    return Overview(await ledger.reading.batches(newest), lanes, unserved=unserved)


async def batch_overview(ledger: PostgresLedger, batch_id: UUID) -> Overview:
    """One batch, with the kinds of error in its answers; raises ``NotFound``."""
    status = await ledger.reading.batch_status(batch_id)
    errors = await ledger.reading.error_kinds(batch_id)
    remote = await ledger.remote_overview.notices(batch_id) if JobState.PENDING in status.states else ()
    spilled = await ledger.remote_overview.spilled(batch_id)
    further = {"errors": errors, "spilled": spilled, "provider_batches": tuple(map(_remote_status, remote))}
    lanes, unserved = await ledger.fleet.lane_notices(), await ledger.fleet.unserved()
    return Overview([status.model_copy(update=further)], lanes, remote, unserved)


def unserved_line(queues: Sequence[str]) -> str:
    """The words for queues with available jobs that no worker takes."""
    names = " and ".join(queues)
    return f"no worker takes jobs of the queue{'s' if len(queues) > 1 else ''} {names}; 'nightdesk up' starts what is missing"


def _remote_status(notice: RemoteNotice) -> RemoteBatchStatus:
    return RemoteBatchStatus(**{name: getattr(notice, name) for name in RemoteBatchStatus.model_fields})


def status_document(status: BatchStatus, lanes: Sequence[LaneNotice]) -> dict[str, Any]:
    """The status of a batch with the lanes without calls, for programs."""
    paused = tuple(LaneStatus(**asdict(lane), remedy=lane.remedy) for lane in lanes)
    return status.model_copy(update={"lanes": paused}).model_dump(mode="json")
