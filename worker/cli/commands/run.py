"""``nightdesk run``: files in, results out."""

from typing import Annotated

import typer

from tasks.errors import InputError
from worker.cli import options
from worker.cli.running import Order, run_batch
from worker.cli.summary import sum_up
from worker.settings import load_settings


def command(
    *,
    output: options.Output,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="JSON lines, one job a line; .gz is read; - is standard input."),
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="BATCH", help="Go on with a batch instead of submitting files.")
    ] = None,
    name: options.Name = None,
    key: options.Key = None,
    max_cost_usd: options.MaxCost = None,
    workers: Annotated[bool, typer.Option(help="Start workers when none run.")] = True,
    strict: options.Strict = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Answer the questions of files, from start to finish.

    Starts what is missing (servers, schema, workers), submits all files as one batch, waits until every job is final,
    writes one result per line of input, and stops what it started. Interrupted, the jobs stay in the ledger, and
    --resume goes on with them.
    """
    said = options.said_of_batch(name, key, max_cost_usd)
    if resume is not None and (files or said):
        raise InputError("--resume goes on with a batch as it is: give no FILE, --name, --key or --max-cost-usd")
    order = Order(
        output,
        list(files or ()),
        said,
        resume=None if resume is None else options.batch_id(resume),
        strict=strict,
        quiet=quiet,
        with_workers=workers,
    )
    return sum_up(run_batch(load_settings(), order), order, as_json=as_json)
