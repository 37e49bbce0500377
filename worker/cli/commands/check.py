"""``nightdesk check``: answers that already exist and their sources in, verdicts out."""

from typing import Annotated

import typer

from worker.cli import options
from worker.cli.running import Order, run_batch
from worker.cli.summary import sum_up
from worker.settings import load_settings


def command(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="JSON lines, one answer with its sources a line; .gz is read; - is stdin."),
    ],
    output: options.Output,
    name: options.Name = None,
    key: options.Key = None,
    *,
    workers: Annotated[bool, typer.Option(help="Start workers when none run.")] = True,
    strict: options.Strict = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Check answers that already exist against their sources; no provider is called.

    A line holds 'response' (or 'answer'), 'context' (or 'sources'), and if wanted 'query' (or 'question') and the other
    fields of a job; unknown keys go to its metadata. Otherwise as 'run': one result per line, in order.
    """
    order = Order(
        output,
        files,
        options.said_of_batch(name, key, None),
        strict=strict,
        quiet=quiet,
        with_workers=workers,
        check_only=True,
    )
    return sum_up(run_batch(load_settings(), order), order, as_json=as_json)
