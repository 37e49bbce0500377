"""``nightdesk recheck``: the present check over stored answers, with what it changes as a table."""

import asyncio
from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer
from uuid_utils.compat import uuid7

from schemas.generation import CheckerName, Recheck
from schemas.states import FINAL_STATES, JobState
from tasks.errors import InputError
from tasks.ports import Ledger
from worker.cli import options
from worker.cli.actor import actor
from worker.cli.comparing import Comparison, Stand
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.interrupts import run_interruptible
from worker.cli.lines import Tally, write_results
from worker.cli.messages import tell, warn
from worker.cli.old_results import old_results
from worker.cli.outfile import check_output, writing
from worker.cli.paging import Paging, paging
from worker.cli.progress import progress
from worker.cli.render.comparison import show_comparison
from worker.cli.session import Session, session
from worker.cli.waiting import Watch, wait_until_final
from worker.ledger.pages import paged
from worker.settings import load_settings


def command(
    batch: options.BatchId,
    *,
    checkers: Annotated[
        str | None, typer.Option(metavar="LAYERS", help="structure,lexical,judge; what each job asks for unless given.")
    ] = None,
    judge: Annotated[
        str | None, typer.Option(metavar="PROVIDER[:MODEL]", help="Who judges; the job's own, or NIGHTDESK_JUDGE.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="OUT", help="Where the new results go, as JSON lines.")
    ] = None,
    quiet: options.Quiet = False,
) -> int:
    """Check the answers of a batch again, as they came from the model, and say what that changes.

    Nothing is generated and nothing but a judge is paid for. Each job with an answer gets a new run that begins at its
    check; the record of the run before stays. Jobs that were cancelled, expired or have no answer stay as they are.
    Ended midway, what was begun goes on; the same command again takes all that are final by then.
    """
    batch_id = options.batch_id(batch)
    recheck = Recheck(checkers=_layers(checkers), judge=judge, id=uuid7())
    if output is not None:
        check_output(output)
    again = (
        f"What was begun goes on with the workers: 'nightdesk watch {batch_id}'. 'nightdesk recheck {batch_id}' takes all "
        "jobs that are final by then, those that were rechecked meanwhile too"
    )
    with (
        session(load_settings(), staffs=True) as desk,
        progress(quiet=quiet) as told,
        paging("rechecked", told, again=again) as course,
    ):
        comparison, tally = run_interruptible(_recheck(desk, batch_id, recheck, output, course))
    if not quiet:
        show_comparison(comparison)
        if output is not None:
            tell(f"{tally.lines} results written to {output}")
    return OK if comparison.all_done and not course.refused else INCOMPLETE


def _layers(given: str | None) -> tuple[CheckerName, ...] | None:
    if given is None:
        return None
    try:
        return tuple(CheckerName(name.strip()) for name in given.split(","))
    except ValueError as error:
        known = ", ".join(name.value for name in CheckerName)
        raise InputError(f"{error}; the layers are {known}", field="--checkers") from None


async def _recheck(
    desk: Session, batch_id: UUID, recheck: Recheck, output: str | None, course: Paging
) -> tuple[Comparison, Tally]:
    told = course.progress
    watch = Watch(desk, told.note, check_only=True)
    async with desk.ledger() as ledger:
        await ledger.reading.batch_status(batch_id)
        before = await _stands(ledger, batch_id)
        unfinished = sum(stand.state not in FINAL_STATES for stand in before.values())
        if unfinished:
            warn(f"{unfinished} jobs of the batch are not final yet; they are left to their first check")
        done = [job_id for job_id, stand in before.items() if stand.state in {JobState.COMPLETED, JobState.FAILED}]
        again = await _begin(desk, ledger, done, recheck, course)
        await asyncio.to_thread(watch.staff)
        await wait_until_final(ledger, batch_id, (), watch, told)
        after = await _stands(ledger, batch_id)
        tally = Tally()
        if output is not None:
            with writing(output) as file:
                tally = await write_results(file, ledger, batch_id)
    return Comparison([(before[job_id], after[job_id]) for job_id in again]), tally


async def _stands(ledger: Ledger, batch_id: UUID) -> dict[UUID, Stand]:
    return {view.job_id: Stand.of(view) async for view in ledger.reading.batch_views(batch_id)}


async def _begin(
    desk: Session, ledger: Ledger, job_ids: Sequence[UUID], recheck: Recheck, course: Paging
) -> list[UUID]:
    """Begin the new runs page by page; returns the ids of the jobs that have an answer to check."""
    course.total = len(job_ids)
    begun: list[UUID] = []
    async with old_results(desk) as old:
        for page in paged(job_ids):
            again = await ledger.actions.recheck(page, recheck, actor(), course.add)
            await old.delete(again)
            begun += again
    return begun
