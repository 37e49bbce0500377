"""``nightdesk results``: the results of a batch, as they stand or when they are all there."""

from typing import Annotated
from uuid import UUID

import orjson
import typer

from tasks.ports import Repeated
from worker.cli import options
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.interrupts import run_interruptible
from worker.cli.judged import judged_rows
from worker.cli.lines import Tally, write_results
from worker.cli.messages import tell
from worker.cli.outfile import check_output, writing
from worker.cli.progress import Silent, progress
from worker.cli.session import Session, session
from worker.cli.styling import Format, Style, Styling, WithConfidence, WithSources
from worker.cli.waiting import Watch, wait_until_final
from worker.settings import load_settings


def command(
    batch: options.BatchId,
    *,
    output: options.Output = "-",
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all jobs are final (or held).")] = False,
    citation_style: Style = None,
    output_format: Format = None,
    with_sources: WithSources = False,
    with_confidence: WithConfidence = False,
    judged: Annotated[
        str | None, typer.Option("--judged", metavar="FILE", help="Also write each claim that a judge decided.")
    ] = None,
    quiet: options.Quiet = False,
) -> int:
    """Write the results of a batch as JSON lines, in the order of its input.

    Without --wait, jobs that are not final stand there with their present state. Answers are rendered anew from the
    record when a style, a format or a closing line is asked for: no call is made, and the ledger keeps what it has.
    """
    styling = Styling(citation_style, output_format, with_sources, with_confidence)
    batch_id = options.batch_id(batch)
    check_output(output)
    if judged is not None:
        check_output(judged, [output])
    with session(load_settings(), writes=False) as desk, progress(quiet=quiet) as told:
        if wait and not desk.supervisor.running() and not quiet:
            tell("no worker of this home runs; waiting for whoever else works on this ledger")
        tally = run_interruptible(_write(desk, batch_id, output, told, styling, wait=wait))
        rows = run_interruptible(_write_judged(desk, batch_id, judged)) if judged is not None else 0
    if not quiet:
        states = ", ".join(f"{count} {state}" for state, count in tally.states.items())
        tell(f"{tally.lines} results: {states or 'none'}")
        if judged is not None:
            tell(f"{rows} judged claims written to {judged}")
    return OK if tally.all_well else INCOMPLETE


async def _write(desk: Session, batch_id: UUID, output: str, told: Silent, styling: Styling, *, wait: bool) -> Tally:
    async with desk.ledger() as ledger:
        if wait:
            elsewhere = [
                line.job_id async for line in ledger.reading.input_lines(batch_id) if isinstance(line, Repeated)
            ]
            await wait_until_final(ledger, batch_id, elsewhere, Watch(desk, told.note), told)
        else:
            await ledger.reading.batch_status(batch_id)
        with writing(output) as file:
            return await write_results(file, ledger, batch_id, result=styling.result)


async def _write_judged(desk: Session, batch_id: UUID, output: str) -> int:
    count = 0
    async with desk.ledger() as ledger:
        with writing(output) as file:
            async for view in ledger.reading.batch_views(batch_id):
                for row in judged_rows(view):
                    file.write(orjson.dumps(row) + b"\n")
                    count += 1
    return count
