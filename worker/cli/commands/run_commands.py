"""``nightdesk run`` and ``check``: files in, results out."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tasks.errors import InputError
from worker.cli import options
from worker.cli.help import MONEY
from worker.operations.file_form import FileForm
from worker.settings import load_settings

if TYPE_CHECKING:
    from worker.operations.file_intake import InputOrder


@options.with_handover
def run(
    *,
    handover: options.Handover,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="Where the results go: JSON lines, .csv or .parquet; - is standard output.",
        ),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help=options.FILE_HELP),
    ] = None,
    form: options.Form = None,
    resume: Annotated[
        str | None, typer.Option(metavar="BATCH", help="Go on with a batch instead of submitting files.")
    ] = None,
    workers: options.Workers = True,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", rich_help_panel=MONEY, help="Only estimate tokens, cost and time; submit nothing."),
    ] = False,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="BATCH",
            rich_help_panel=MONEY,
            help="With --dry-run: go by the calls of this batch alone, as 'nightdesk estimate'.",
        ),
    ] = None,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate",
            rich_help_panel=MONEY,
            help="Estimate first, keep that with the batch, and say at the end how far it was off.",
        ),
    ] = False,
) -> int:
    """Answer the questions of files, from start to finish.

    Starts what is missing (servers, schema, workers), submits all files as one batch, waits until every job is final,
    writes one result per row of input, and stops what it started. Interrupted, the jobs stay in the ledger, and
    --resume goes on with them.
    """
    batch = handover.batch
    if resume is not None and (files or batch or handover.priority is not None or handover.again):
        raise InputError(
            "--resume goes on with a batch as it is: give no FILE, --name, --key, --max-cost-usd, --lane, --escalate, "
            "--not-before, --window, --deadline, --callback-url, --priority, --again or options of a job"
        )
    if dry_run:
        if resume is not None:
            raise InputError("--dry-run estimates files; of a batch: nightdesk estimate --batch BATCH")
        # Only an estimate pays for the planning of calls.
        from worker.cli.commands.cost_estimate import estimate_input  # noqa: PLC0415

        trial = None if like is None else options.batch_id(like)
        return estimate_input(handover.order(list(files or ())), as_json=as_json, with_workers=workers, trial=trial)
    if like is not None:
        raise InputError("goes with --dry-run, which estimates by the calls of that batch", field="--like")
    if output is None:
        raise InputError("name where the results go: -o OUT, or - for standard output")
    if estimate and resume is None:
        _check_readable_twice(list(files or ()))
    batch_id = None if resume is None else options.batch_id(resume)
    order = handover.order(list(files or ())) if resume is None else None
    return _run(
        order, output, form, as_json=as_json, preflight=handover.preflight, resume=batch_id, quiet=quiet,
        with_workers=workers, estimate=estimate, force=force,
    )  # fmt: skip


def _run(order: "InputOrder | None", output: str, form: FileForm | None, *, as_json: bool, **options: Any) -> int:
    settings = load_settings()
    # The help of the command needs none of these.
    from worker.cli.summary import sum_up  # noqa: PLC0415
    from worker.cli.whole_run import RunRequest, run_batch  # noqa: PLC0415
    from worker.operations.row_files import form_of  # noqa: PLC0415

    request = RunRequest(output, order, form=form_of(output, form), **options)
    return sum_up(run_batch(settings, request), output, quiet=request.quiet, as_json=as_json)


def _check_readable_twice(files: list[str]) -> None:
    # Only an estimate reads its files before they are submitted.
    from worker.operations.input_content import readable_twice  # noqa: PLC0415
    from worker.operations.json_lines import check_files  # noqa: PLC0415

    check_files(files)
    if not readable_twice(files):
        raise InputError(
            "standard input and pipes can be read only once, and an estimate reads them first: save them to a file",
            field="--estimate",
        )


def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="As for 'run', each row with an answer and its sources; - is standard input."
        ),
    ],
    output: options.Output,
    name: options.Name = None,
    key: options.Key = None,
    *,
    judge: options.Judge = None,
    form: options.Form = None,
    columns: options.Map = None,
    source_delimiter: options.SourceDelimiter = None,
    encoding: options.Encoding = None,
    preflight: options.Preflight = True,
    workers: options.Workers = True,
    strict: options.Strict = False,
    again: options.Again = False,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Check answers that already exist against their sources; no provider but a judge is called.

    A row holds 'response' (or 'answer'), 'context' (or 'sources'), and if wanted 'query' (or 'question') and the other
    fields of a job; unknown keys go to its metadata. Otherwise as 'run': one result per row, in order.
    """
    handover = options.Handover(
        name=name, key=key, columns=columns, source_delimiter=source_delimiter, encoding=encoding, strict=strict,
        again=again, config=options.judged_by(judge),
    )  # fmt: skip
    order = handover.order(files, check_only=True)
    return _run(
        order, output, form, as_json=as_json, preflight=preflight, quiet=quiet, with_workers=workers, force=force
    )
