"""``nightdesk report``: a batch on one page, or the same as JSON."""

import sys
from typing import Annotated

from tasks.errors import InputError
from worker.cli import options
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.help import option
from worker.cli.outfile import STDOUT, check_output, writing
from worker.cli.session import on_ledger
from worker.cli.terminal import tell, write_json
from worker.operations.batch_report import collect, document
from worker.operations.counts import count_of
from worker.settings import load_settings

MOST_WORST = 200
"""Answers a page shows at most: a person reads no more, and each brings its sources along."""


def report(
    batch: options.BatchId,
    output: Annotated[
        str, option("Where the page goes; - is standard output.", "--output", "-o", metavar="OUT")
    ] = STDOUT,
    worst: Annotated[int, option("Answers to show with their claims that lack support.", min=0, max=MOST_WORST)] = 20,
    with_estimate: Annotated[
        bool,
        option("Estimate the batch as of its submission, beside the truth; every prompt is rendered again."),
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Write the report of a batch: one HTML page that needs no network, at any time, also while the batch runs.

    Throughput, latency, tokens, cost by lane and model, scores, outcomes, failures by cause, prompt versions and models
    with intervals, further rounds, and the worst answers with their claims opened at the source.
    """
    batch_id = options.batch_id(batch)
    if as_json and output != STDOUT:
        raise InputError("--json writes to standard output: leave -o out")
    if not as_json and output == STDOUT and sys.stdout.isatty():
        raise InputError(
            "a report is an HTML page, which no terminal shows: name a file for it, such as -o report.html"
        )
    check_output(output)
    settings = load_settings()

    result = on_ledger(
        lambda ledger: collect(ledger, batch_id, settings, worst=worst, with_estimate=with_estimate), settings
    )
    content = document(result)
    if as_json:
        write_json(content)
    else:
        # The template engine is for a page alone.
        from worker.operations.report_page import page  # noqa: PLC0415

        with writing(output, batch_id) as file:
            file.write(page(content).encode())
        if output != STDOUT:
            tell(f"report of {result.status.final:,} of {count_of(result.status.jobs, 'job')} written to {output}")
    return OK if result.status.final == result.status.jobs else INCOMPLETE
