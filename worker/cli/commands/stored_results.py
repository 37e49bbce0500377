"""``nightdesk results`` and ``report``: stored results of a batch, and a batch on one page."""

import sys
from collections.abc import Iterator
from typing import Annotated
from uuid import UUID

from tasks.errors import InputError
from tasks.ports import Refused
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
from worker.operations.file_form import FileForm
from worker.operations.result_lines import Tally, write_failed
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
    failed: Annotated[
        bool,
        option("Write the jobs that ended without an answer instead, with the reason, as input for 'run'.", "--failed"),
    ] = False,
    quiet: options.Quiet = False,
) -> int:
    """Write the results of a batch, in the order of its input.

    Without --wait, jobs that are not final are there with their present state. Answers are rendered again from the
    record when a style, a format or a closing line is asked for: no call is made, and the ledger keeps what it has.
    """
    styling = Styling(citation_style, output_format, with_sources, with_confidence)
    check_output(output)
    form = form_of(output, form)
    if failed:
        if wait or styling != Styling():
            raise InputError(
                "--failed writes jobs, not answers: leave the other options out, but -o, --format and --quiet"
            )
        return _export_failed(batch_id, output, form, quiet=quiet)

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


def _export_failed(batch_id: UUID, output: str, form: FileForm, *, quiet: bool) -> int:
    async def export(ledger: PostgresLedger) -> tuple[Tally, int]:
        await ledger.reading.batch_status(batch_id)
        with writing(output) as file:
            tally = await write_failed(file, ledger, batch_id, form)
        lines = [line async for line in ledger.reading.input_lines(batch_id) if isinstance(line, Refused)]
        return tally, len(lines)

    tally, refused = on_ledger(export)
    if not quiet:
        for line in failed_lines(tally.lines, refused, output):
            tell(line)
    return OK


def failed_lines(jobs: int, refused: int, output: str) -> Iterator[str]:
    """The end of ``results --failed``, for people."""
    if jobs:
        target = "standard output" if output == STDOUT else output
        again = f"nightdesk run {output} -o OUT"
        yield f"{count_of(jobs, 'job')} without an answer written to {target}; ask again: {again}"
    else:
        yield "no job of the batch ended without an answer: there is nothing to ask again"
    if refused:
        yield f"{count_of(refused, 'refused line')} not in it: the text is in the input alone; correct it there"


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
