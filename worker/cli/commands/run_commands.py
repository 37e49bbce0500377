"""``nightdesk run``, ``check`` and ``submit``: files in, results out."""

from dataclasses import replace
from typing import Annotated, Any
from uuid import UUID

from schemas.batch import BatchStatus
from tasks.errors import InputError
from worker.cli import options
from worker.cli.exits import BAD_INPUT, INCOMPLETE, OK
from worker.cli.help import argument
from worker.cli.summary import describe, refused_document, sum_up
from worker.cli.terminal import tell, write_json, write_line
from worker.cli.whole_run import WholeRun
from worker.operations.file_form import FileForm
from worker.operations.file_submission import Accepted
from worker.operations.row_files import form_of
from worker.settings import Settings, load_settings
from worker.supervise.state_directory import state_of
from worker.supervise.workers import supervisor_of


@options.with_handover()
def run(
    *,
    handover: options.Handover,
    output: options.Output = "",
    files: options.Files = None,
    form: options.Form = None,
    resume: Annotated[UUID | None, options.batch_option("Go on with a batch instead of submitting files.")] = None,
    workers: options.Workers = True,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
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
    if not output:
        raise InputError("name where the results go: -o OUT, or - for standard output")
    order = handover.order(files) if resume is None else None
    return _run(
        output, form, as_json=as_json, order=order, preflight=handover.preflight, batch_id=resume, quiet=quiet,
        with_workers=workers,
    )  # fmt: skip


def _run(output: str, form: FileForm | None, *, as_json: bool, **options: Any) -> int:
    whole_run = WholeRun(output=output, form=form_of(output, form), **options)
    return sum_up(whole_run.report(load_settings()), output, quiet=whole_run.quiet, as_json=as_json)


@options.with_handover(
    "name", "key", "columns", "source_delimiter", "group_by", "encoding", "preflight", "strict", "again"
)
def check(
    files: Annotated[
        list[str],
        argument("As for 'run', each row with an answer and its sources; - is standard input.", "FILE"),
    ],
    output: options.Output,
    *,
    handover: options.Handover,
    judge: options.Judge = None,
    form: options.Form = None,
    workers: options.Workers = True,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> int:
    """Check answers that already exist against their sources; no provider but a judge is called.

    A row holds 'response' (or 'answer'), 'context' (or 'sources'), and if wanted 'query' (or 'question') and the other
    fields of a job; unknown keys go to its metadata. Otherwise as 'run': one result per row, in order.
    """
    order = replace(handover, config=options.judged_by(judge)).order(files, check_only=True)
    return _run(
        output,
        form,
        as_json=as_json,
        order=order,
        preflight=handover.preflight,
        quiet=quiet,
        with_workers=workers,
    )


@options.with_handover()
def submit(
    files: options.Files,
    *,
    handover: options.Handover,
    as_json: options.Json = False,
) -> int:
    """Hand in the questions of files as one batch and return at once.

    Workers take it from there: those of 'nightdesk up', or any that use the same database.
    """
    settings = load_settings()
    order = handover.order(files)
    whole_run = WholeRun(order=order, waits=False, quiet=as_json, with_workers=False, preflight=handover.preflight)
    report = whole_run.report(settings)
    if (accepted := report.accepted) is None:
        return BAD_INPUT
    if as_json:
        write_json(_document(accepted))
    else:
        _tell(accepted, report.status, options.describe_window(order.batch), settings)
    if not accepted.jobs:
        return BAD_INPUT
    return INCOMPLETE if accepted.refused else OK


def _tell(accepted: Accepted, earlier: BatchStatus | None, times: str, settings: Settings) -> None:
    for batch_id in [accepted.batch_id] if accepted.batch_id else accepted.holders:
        write_line(str(batch_id))
    tell(describe(accepted) + ("" if earlier is None else "; --again pays anew"))
    if accepted.created and times:
        tell(times)
    idle = settings.embedded() and not supervisor_of(settings, state_of(settings)).running()
    if idle and (earlier is None or earlier.final < earlier.jobs):
        tell("no worker runs: 'nightdesk up' starts them")


def _document(accepted: Accepted) -> dict[str, object]:
    return {
        "batch_id": str(accepted.batch_id) if accepted.batch_id else None,
        "created": accepted.created,
        "jobs": accepted.jobs,
        "submitted_at": accepted.submitted_at.isoformat() if accepted.submitted_at else None,
        "known_before": len(accepted.repeated),
        "held_by": {str(batch_id): count for batch_id, count in accepted.holders.items()},
        "invalid_lines": refused_document(accepted.refused),
    }
