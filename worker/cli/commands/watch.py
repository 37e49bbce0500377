"""``nightdesk watch``: follows a batch or a job until it is final."""

from collections.abc import Callable
from typing import Annotated
from uuid import UUID

import typer

from schemas.batch import BatchStatus
from schemas.states import FINAL_STATES, JobState
from tasks.errors import InputError, NotFound
from tasks.ports import InputLine, JobView, Ledger, Refused, Repeated
from worker.cli import options
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.following import follow
from worker.cli.interrupts import run_interruptible
from worker.cli.listening import listening
from worker.cli.messages import tell
from worker.cli.output import write_json
from worker.cli.progress import Silent, counts_of, progress
from worker.cli.session import Session, session
from worker.cli.summary import held_lines, money
from worker.cli.waiting import Watch, wait_until_final
from worker.settings import load_settings


def command(
    target: Annotated[
        str, typer.Argument(metavar="BATCH|JOB", help="A batch's or a job's id, or BATCH:CUSTOM_ID, or BATCH:POSITION.")
    ],
    *,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Follow a batch's progress, or each change of a job's state, until all is final or held.

    The answer of a job with 'stream' is written to standard output as it comes, from its start, whenever you look.
    It only looks on: it may be interrupted and started again at any time, from anywhere that reaches the ledger. The
    exit codes are those of 'run'.
    """
    first, _, name = target.partition(":")
    try:
        first_id = UUID(first)
    except ValueError:
        raise InputError(f"{first!r} is no id; give a batch's or a job's, BATCH:CUSTOM_ID or BATCH:POSITION") from None
    with session(load_settings(), writes=False) as desk, progress(quiet=quiet) as told:
        if not desk.supervisor.running() and not quiet:
            tell("no worker of this home runs; watching what others do on this ledger")
        try:
            found, lines = run_interruptible(_watch(desk, first_id, name, told, quiet=quiet, text=not as_json))
        except KeyboardInterrupt:
            tell(f"Interrupted; the work goes on. Look again with: nightdesk watch {target}")
            raise
    if as_json:
        write_json(found.model_dump(mode="json") if isinstance(found, BatchStatus) else _json(found))
    if isinstance(found, JobView):
        return OK if found.state is JobState.COMPLETED else INCOMPLETE
    refused = sum(isinstance(line, Refused) for line in lines)
    if not quiet:
        _sum_up(found, refused)
    return OK if found.jobs == found.states.get(JobState.COMPLETED, 0) and not refused else INCOMPLETE


async def _watch(
    desk: Session, first: UUID, name: str, told: Silent, *, quiet: bool, text: bool
) -> tuple[BatchStatus | JobView, list[InputLine]]:
    watch = Watch(desk, told.note)
    async with desk.ledger() as ledger:
        job_id = await ledger.reading.locate(first, name) if name else await _job(ledger, first)
        if job_id is None:
            lines = [line async for line in ledger.reading.input_lines(first)]
            elsewhere = [line.job_id for line in lines if isinstance(line, Repeated)]
            return await wait_until_final(ledger, first, elsewhere, watch, told), lines
        say: Callable[[str], None] = (lambda _: None) if quiet else tell
        (view,) = await ledger.reading.views([job_id])
        if not (text and view.request.config.stream):
            return await follow(ledger, job_id, watch, told, say), []
        async with listening(desk.where.redis_url, desk.settings.key_prefix, view, say) as voice:
            view = await follow(ledger, job_id, watch, told, say)
            if view.state in FINAL_STATES:
                voice.over.set()
        voice.finish(view)
        return view, []


async def _job(ledger: Ledger, given: UUID) -> UUID | None:
    """The id if it is a job's, None if it is a batch's; raises ``NotFound`` when it is neither."""
    if await ledger.reading.views([given]):
        return given
    try:
        await ledger.reading.batch_status(given)
    except NotFound:
        raise NotFound(
            f"{given} is neither a batch nor a job of this ledger; 'nightdesk status' lists batches"
        ) from None
    return None


def _sum_up(status: BatchStatus, refused: int) -> None:
    tell(f"{status.jobs} {'job' if status.jobs == 1 else 'jobs'}: {counts_of(status)}; cost {money(status)}")
    for line in held_lines(status):
        tell(line)
    if refused:
        tell(f"{refused} lines of the input were not valid")


def _json(view: JobView) -> dict[str, object]:
    return {
        "job_id": view.job_id, "batch_id": view.batch_id, "state": view.state, "outcome": view.outcome,
        "held_reason": view.held_reason, "run": view.run, "round": view.round, "cost_usd": view.cost_usd,
    }  # fmt: skip
