"""``nightdesk results`` and ``show``: stored results of a batch, and everything known of one job."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

import orjson
import typer

from schemas.generation import CitationStyle, OutputFormat
from schemas.record import JobResult
from tasks.answers.restyle import restyle
from tasks.errors import InputError
from tasks.ports import JobDetail, JobView, Refused
from tasks.results import result_of
from worker.cli import options
from worker.cli.batch_run import BatchRun
from worker.cli.exits import INCOMPLETE, OK, run_interruptible
from worker.cli.job_view import show_job
from worker.cli.outfile import check_output, writing
from worker.cli.progress import Reporter, reporting
from worker.cli.session import Session, session
from worker.cli.summary import named_counts
from worker.cli.terminal import tell, write_json
from worker.cli.waiting import Watch
from worker.operations.audit import audit_of, find_job, to_json
from worker.operations.counts import count_of
from worker.operations.output_form import OutputForm
from worker.operations.output_forms import form_of
from worker.operations.result_lines import Tally, judged_rows, write_failed
from worker.settings import load_settings

Style = Annotated[
    CitationStyle | None,
    typer.Option("--citation-style", help="Render the citations in this style; makes no provider call."),
]
Format = Annotated[
    OutputFormat | None,
    typer.Option("--output-format", help="Render the answers in this format; makes no provider call."),
]
WithSources = Annotated[
    bool, typer.Option("--with-sources", help="Close each answer with the list of the sources it cites.")
]
WithConfidence = Annotated[
    bool, typer.Option("--with-confidence", help="Close each answer with its confidence, or its answer quality.")
]


@dataclass(frozen=True, slots=True)
class Styling:
    """The rendering of stored answers. Raises ``InputError`` for ``auto``: a stored answer has its format."""

    style: CitationStyle | None = None
    output_format: OutputFormat | None = None
    with_sources: bool = False
    with_confidence: bool = False

    def __post_init__(self) -> None:
        if self.output_format is OutputFormat.AUTO:
            raise InputError("--output-format auto: name a format, or leave the option out to keep the one it has")

    def result(self, view: JobView) -> JobResult:
        """The result of a job, rendered again when a style, a format or a closing line is asked for."""
        if self == Styling():
            return result_of(view)
        return restyle(
            view,
            self.style,
            self.output_format,
            with_sources=self.with_sources,
            with_confidence=self.with_confidence,
        )


def results(
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
    form: options.Form = None,
    failed: Annotated[
        bool,
        typer.Option(
            "--failed", help="Write the jobs that ended without an answer instead, with the reason, as input for 'run'."
        ),
    ] = False,
    quiet: options.Quiet = False,
) -> int:
    """Write the results of a batch, in the order of its input.

    Without --wait, jobs that are not final are there with their present state. Answers are rendered again from the
    record when a style, a format or a closing line is asked for: no call is made, and the ledger keeps what it has.
    """
    styling = Styling(citation_style, output_format, with_sources, with_confidence)
    batch_id = options.batch_id(batch)
    check_output(output)
    form = form_of(output, form)
    if failed:
        if wait or judged is not None or styling != Styling():
            raise InputError(
                "--failed writes jobs, not answers: leave the other options out, but -o, --format and --quiet"
            )
        return _export_failed(batch_id, output, form, quiet=quiet)
    if judged is not None:
        check_output(judged, [output])
    with session(load_settings(), writes=False) as opened, reporting(quiet=quiet) as reporter:
        if wait and not opened.supervisor.running() and not quiet:
            tell("no worker of this home runs; waiting for the other workers of this ledger")
        tally = run_interruptible(_write(opened, batch_id, output, reporter, styling, form=form, wait=wait))
        rows = run_interruptible(_write_judged(opened, batch_id, judged)) if judged is not None else 0
    if not quiet:
        tell(f"{count_of(tally.lines, 'result')}: {named_counts(tally.states) or 'none'}")
        if judged is not None:
            tell(f"{count_of(rows, 'judged claim')} written to {judged}")
    return OK if tally.all_well else INCOMPLETE


async def _write(
    opened: Session,
    batch_id: UUID,
    output: str,
    reporter: Reporter,
    styling: Styling,
    *,
    form: OutputForm,
    wait: bool,
) -> Tally:
    async with opened.ledger() as ledger:
        run = BatchRun(Watch(opened, ledger, reporter, lanes=True), batch_id)
        await (run.wait() if wait else ledger.reading.batch_status(batch_id))
        return await run.write(output, None if styling == Styling() else styling.result, form)


def _export_failed(batch_id: UUID, output: str, form: OutputForm, *, quiet: bool) -> int:
    async def export() -> tuple[Tally, int]:
        async with opened.ledger() as ledger:
            await ledger.reading.batch_status(batch_id)
            with writing(output) as file:
                tally = await write_failed(file, ledger, batch_id, form)
            lines = [line async for line in ledger.reading.input_lines(batch_id) if isinstance(line, Refused)]
            return tally, len(lines)

    with session(load_settings(), writes=False) as opened:
        tally, refused = run_interruptible(export())
    if not quiet:
        for line in failed_lines(tally.lines, refused, output):
            tell(line)
    return OK


def failed_lines(jobs: int, refused: int, output: str) -> Iterator[str]:
    """The end of ``results --failed``, for people."""
    if jobs:
        target = "standard output" if output == "-" else output
        again = f"nightdesk run {output} -o OUT"
        yield f"{count_of(jobs, 'job')} without an answer written to {target}; ask again: {again}"
    else:
        yield "no job of the batch ended without an answer: there is nothing to ask again"
    if refused:
        yield f"{count_of(refused, 'refused line')} not in it: the text is in the input alone; correct it there"


async def _write_judged(opened: Session, batch_id: UUID, output: str) -> int:
    count = 0
    async with opened.ledger() as ledger:
        with writing(output) as file:
            async for view in ledger.reading.batch_views(batch_id):
                for row in judged_rows(view):
                    file.write(orjson.dumps(row) + b"\n")
                    count += 1
    return count


def show(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="A job's id, or BATCH:CUSTOM_ID, or BATCH:POSITION (from 0).")
    ],
    *,
    citation_style: Style = None,
    output_format: Format = None,
    with_sources: WithSources = False,
    with_confidence: WithConfidence = False,
    as_json: options.Json = False,
) -> int:
    """Show everything known of a job: the answer with its claims and evidence, every attempt, the messages sent.

    The answer is rendered again when a style, a format or a closing line is asked for; the records stay as they are.
    """
    styling = Styling(citation_style, output_format, with_sources, with_confidence)
    first_id, name = options.job_target(job, "a job's id")
    with session(load_settings(), writes=False) as opened:
        detail = run_interruptible(_read(opened, first_id, name))
    audit = audit_of(detail, styling.result(detail.view))
    if as_json:
        write_json(to_json(audit))
    else:
        show_job(audit)
    return OK


async def _read(opened: Session, first: UUID, name: str) -> JobDetail:
    async with opened.ledger() as ledger:
        return await find_job(ledger, first, name)
