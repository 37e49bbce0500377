"""Follows one job: tells each change of its state until it is final, or held and stays so."""

import asyncio
from collections.abc import Callable
from uuid import UUID

from schemas.states import FINAL_STATES, JobState
from tasks.errors import NotFound
from tasks.ports import JobView, Ledger
from worker.cli.waiting import Progress, Watch, patiently

LOOK_EVERY_S = 0.2


def standing(view: JobView) -> str:
    """Where a job stands, in a line: state, step while it has one to go, and why it is held or how it ended."""
    parts = [view.state.value]
    if view.state not in FINAL_STATES:
        parts.append(view.step.value)
    if view.held_reason:
        parts.append(f"held: {view.held_reason}")
    if view.outcome is not None:
        parts.append(view.outcome.value)
    if view.record is not None and view.record.failure is not None and view.state is JobState.FAILED:
        parts.append(f"{view.record.failure.kind.value}: {view.record.failure.message}")
    again = f" (run {view.run}, round {view.round})" if (view.run, view.round) > (1, 0) else ""
    return ", ".join(parts) + again


async def follow(
    ledger: Ledger, job_id: UUID, watch: Watch, progress: Progress, tell: Callable[[str], None]
) -> JobView:
    """Return the job once it is final, or held in two looks; changes between two looks are told as one.

    Args:
        ledger: open.
        job_id: the job.
        watch: embedded servers to keep alive.
        progress: told when the ledger is away.
        tell: gets each change, as a line.
    """
    before = None
    held_before = False
    while True:
        watch.look()
        views = await patiently(watch.session, progress, lambda: ledger.reading.views([job_id]))
        if not views:
            raise NotFound(f"there is no job {job_id}")
        view = views[0]
        now = standing(view)
        if now != before:
            tell(f"job {job_id}: {now}")
            before = now
        held = view.held_reason is not None
        if view.state in FINAL_STATES or (held and held_before):
            return view
        held_before = held
        await asyncio.sleep(LOOK_EVERY_S)
