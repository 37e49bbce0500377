"""``nightdesk results`` and ``report``: stored results of a batch, and a batch on one page."""

import sys
from typing import Annotated

from tasks.errors import InputError
from worker.cli import options
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.help import option
from worker.cli.outfile import STDOUT, check_output, writing
from worker.cli.progress import reporting
from worker.cli.session import on_ledger, session
from worker.cli.styling import CitationStyleOption, Format, Styling, WithConfidence, WithSources
from worker.cli.summary import named_counts
from worker.cli.terminal import tell, write_json
from worker.cli.waiting import BatchRun, Watch
from worker.ledger.postgres import PostgresLedger
from worker.operations.batch_report import collect, document
from worker.operations.counts import count_of
from worker.operations.result_lines import Tally
from worker.operations.row_files import form_of


def results(
    batch_id: options.BatchId,
    *,
    output: options.Output = STDOUT,
    wait: Annotated[bool, option("Wait until all jobs are final (or held).", "--wait")] = False,
    citation_style: CitationStyleOption = None,
    output_format: Format = None,
    with_sources: WithSources = False,
    with_confidence: WithConfidence = False,
    form: options.Form = None,
    quiet: options.Quiet = False,
) -> int:
    """Write the results of a batch, in the order of its input.

    Without --wait, jobs that are not final are there with their present state. Answers are rendered again from the
    record when a style, a format or a closing line is asked for: no call is made, and the ledger keeps what it has.
    """
    styling = Styling(citation_style, output_format, with_sources, with_confidence)
    check_output(output)
    form = form_of(output, form)

    async def write(ledger: PostgresLedger) -> Tally:
        run = BatchRun(Watch(opened, ledger, reporter), batch_id)
        await (run.wait() if wait else ledger.reading.batch_status(batch_id))
        return await run.write(output, None if styling == Styling() else styling.result, form)

    with session(writes=False) as opened, reporting(quiet=quiet) as reporter:
        if wait and not opened.supervisor.running() and not quiet:
            tell("no worker of this home runs; waiting for the other workers of this ledger")
        tally = opened.on_ledger(write)
    if not quiet:
        tell(f"{count_of(tally.lines, 'result')}: {named_counts(tally.states) or 'none'}")
        if output == STDOUT and sys.stdout.isatty():
            tell(f"to read them: nightdesk report {batch_id}")
    return OK if tally.all_well else INCOMPLETE


MOST_WORST = 200
"""Answers a page shows at most: a person reads no more, and each brings its sources along."""


def report(
    batch_id: options.BatchId,
    output: Annotated[
        str | None,
        option(
            "Where the page goes; - is standard output. Default: report.html at a terminal, which shows no page; else -.",
            "--output",
            "-o",
            metavar="OUT",
        ),
    ] = None,
    worst: Annotated[int, option("Answers to show with their claims that lack support.", min=0, max=MOST_WORST)] = 20,
    as_json: options.Json = False,
) -> int:
    """Write the report of a batch: one HTML page that needs no network, at any time, also while the batch runs.

    Throughput, latency, tokens, cost by lane and model, scores, outcomes, failures by cause, prompt versions and models
    with intervals, further rounds, and the worst answers with their claims opened at the source.
    """
    if output is None:
        output = "report.html" if sys.stdout.isatty() and not as_json else STDOUT
    if as_json and output != STDOUT:
        raise InputError("--json writes to standard output: leave -o out")
    check_output(output)
    result = on_ledger(lambda ledger: collect(ledger, batch_id, worst=worst))
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
