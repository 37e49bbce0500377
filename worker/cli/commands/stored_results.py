"""``nightdesk results`` and ``report``: stored results of a batch, and a batch on one page."""

import sys
from dataclasses import dataclass
from typing import Annotated, Any

from schemas.generation import CitationStyle, OutputFormat, Style
from schemas.job import GenerationConfig
from schemas.record import JobResult
from tasks.errors import InputError
from tasks.ports import JobView
from worker.cli import options
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.help import option
from worker.cli.outfile import STDOUT, check_output, writing
from worker.cli.progress import reporting
from worker.cli.session import on_ledger, session
from worker.cli.summary import named_counts
from worker.cli.terminal import tell, write_json
from worker.cli.waiting import BatchRun, Watch
from worker.ledger.postgres import PostgresLedger
from worker.operations.batch_report import collect, document
from worker.operations.counts import count_of
from worker.operations.result_lines import Tally
from worker.operations.row_files import form_of


def style_of(text: str) -> Style:
    """Reads a style of citations, or a marker of one's own; raises ``InputError``."""
    # Results are mostly written as they are stored: then no step of an answer is loaded.
    from tasks.submit import validated  # noqa: PLC0415

    config: GenerationConfig = validated(GenerationConfig, {"citation_style": text})
    return config.citation_style


CitationStyleOption = Annotated[
    Any,
    option(
        f"Render the citations anew, without a call: {', '.join(CitationStyle)}, or a marker of your own "
        "with {index} or {title}: '({index})'.",
        "--citation-style",
        metavar="STYLE",
        parser=style_of,
    ),
]
Format = Annotated[
    OutputFormat | None,
    option("Render the answers in this format; makes no provider call.", "--output-format"),
]
WithSources = Annotated[bool, option("Close each answer with the list of the sources it cites.", "--with-sources")]
WithConfidence = Annotated[
    bool, option("Close each answer with its confidence, or its answer quality.", "--with-confidence")
]


@dataclass(frozen=True, slots=True)
class Styling:
    """The rendering of stored answers. Raises ``InputError`` for ``auto``: a stored answer has its format."""

    style: Style | None = None
    output_format: OutputFormat | None = None
    with_sources: bool = False
    with_confidence: bool = False

    def __post_init__(self) -> None:
        if self.output_format is OutputFormat.AUTO:
            raise InputError("--output-format auto: name a format, or leave the option out to keep the one it has")

    def result(self, view: JobView) -> JobResult:
        """The result of a job, rendered again."""
        # As above.
        from tasks.policy.restyle import restyle  # noqa: PLC0415

        return restyle(
            view,
            self.style,
            self.output_format,
            with_sources=self.with_sources,
            with_confidence=self.with_confidence,
        )


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
