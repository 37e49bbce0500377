"""``nightdesk status``: how batches stand."""

from typing import Annotated

import typer

from schemas.batch import BatchStatus
from worker.cli import options
from worker.cli.interrupts import run_interruptible
from worker.cli.output import write_json
from worker.cli.render.batches import show_batch, show_batches
from worker.cli.session import Session, session
from worker.cli.summary import status_document
from worker.ledger.fleet import LaneNotice
from worker.settings import load_settings


def command(
    batch: Annotated[str | None, typer.Argument(metavar="[BATCH]", help="A batch's id; without, the newest.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many batches to list.")] = 20,
    as_json: options.Json = False,
) -> int:
    """Show how a batch stands: jobs by state and outcome, what is held and why, cost. Without BATCH, list the newest."""
    chosen = None if batch is None else options.batch_id(batch)

    async def read(desk: Session) -> tuple[list[BatchStatus], list[LaneNotice]]:
        async with desk.ledger() as ledger:
            found = (
                await ledger.reading.batches(limit) if chosen is None else [await ledger.reading.batch_status(chosen)]
            )
            return found, await ledger.fleet.lane_notices()

    with session(load_settings(), writes=False) as desk:
        found, lanes = run_interruptible(read(desk))
        workers = desk.supervisor.running()
    if as_json:
        documents = [status_document(status, lanes) for status in found]
        write_json(documents if chosen is None else documents[0])
    elif chosen is None:
        show_batches(found, lanes, workers=len(workers))
    else:
        show_batch(found[0], lanes)
    return 0
