"""``nightdesk run``, ``check`` and ``submit``: files in, results out, or only files in."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from schemas.batch import BatchStatus
from tasks.errors import InputError, SameInputSubmitted
from tasks.ports import Refused, Repeated
from worker.cli import options
from worker.cli.batch_run import BatchRun, RunRequest, earlier_batch, known_batch, new_submission, run_batch
from worker.cli.exits import BAD_INPUT, INCOMPLETE, OK, run_interruptible
from worker.cli.full_disk import naming_full_disk
from worker.cli.interruption import NOTHING_SUBMITTED, Interruption, fate_of
from worker.cli.preflight_messages import announce, ask_models
from worker.cli.progress import Reporter
from worker.cli.session import Session, has_ledger, session
from worker.cli.summary import describe, refused_document, sum_up
from worker.cli.terminal import tell, warn, write_json, write_line
from worker.cli.waiting import Watch
from worker.operations.counts import count_of
from worker.operations.file_submission import Accepted, Submission
from worker.operations.input_columns import ColumnMap
from worker.operations.input_content import same_input_of
from worker.operations.json_lines import check_files
from worker.operations.output_forms import form_of
from worker.settings import Settings, load_settings
from worker.wiring import embedded


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
        bool, typer.Option("--dry-run", help="Only estimate tokens, cost and time; submit nothing.")
    ] = False,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="BATCH", help="With --dry-run: go by the calls of this batch alone, as 'nightdesk estimate'."
        ),
    ] = None,
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate", help="Estimate first, keep that with the batch, and say at the end how far it was off."
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

        return estimate_input(
            list(files or ()),
            batch,
            handover.reading,
            as_json=as_json,
            with_workers=workers,
            trial=None if like is None else options.batch_id(like),
            same_input=same_input_of(again=handover.again),
        )
    if like is not None:
        raise InputError("goes with --dry-run, which estimates by the calls of that batch", field="--like")
    if output is None:
        raise InputError("name where the results go: -o OUT, or - for standard output")
    request = RunRequest(
        output,
        list(files or ()),
        batch,
        resume=None if resume is None else options.batch_id(resume),
        strict=handover.strict,
        quiet=quiet,
        with_workers=workers,
        estimate=estimate,
        columns=handover.reading,
        preflight=handover.preflight,
        form=form_of(output, form),
        same_input=same_input_of(again=handover.again),
        force=force,
        priority=handover.priority or 0,
    )
    if estimate and resume is None:
        from worker.operations.first_estimate import check_readable_twice  # noqa: PLC0415 - as above

        check_files(request.files)
        check_readable_twice(request.files)
    return sum_up(run_batch(load_settings(), request), request, as_json=as_json)


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
    request = RunRequest(
        output,
        files,
        options.batch_fields(name, key, None),
        strict=strict,
        quiet=quiet,
        with_workers=workers,
        check_only=True,
        columns=ColumnMap.parse(columns or (), source_delimiter, encoding),
        preflight=preflight,
        form=form_of(output, form),
        same_input=same_input_of(again=again),
        force=force,
    )
    return sum_up(run_batch(load_settings(), request), request, as_json=as_json)


@options.with_handover
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
    batch = handover.batch
    interruption = Interruption()
    with interruption.tell_fate(lambda: NOTHING_SUBMITTED):
        submission = new_submission(
            files,
            batch,
            settings,
            strict=handover.strict,
            columns=handover.reading,
            tell=tell,
            same_input=same_input_of(again=handover.again),
            priority=handover.priority or 0,
        )
        if submission.empty:
            warn(f"none of {count_of(submission.intake.lines, 'line')} holds a valid job; nothing was submitted")
            return BAD_INPUT
        announce(settings, submission, files, quiet=as_json, certain=embedded(settings))
        handed_in = _hand_in(settings, submission, interruption, preflight=handover.preflight, quiet=as_json)
    return _tell_handed_in(handed_in, batch, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _HandedIn:
    """The outcome of a submission."""

    accepted: Accepted
    earlier: BatchStatus | None
    """The batch that the same input has already."""
    waits_for_workers: bool
    """No worker of this home runs, and jobs wait for one."""


def _hand_in(
    settings: Settings, submission: Submission, interruption: Interruption, *, preflight: bool, quiet: bool
) -> _HandedIn:
    """Submits, unless the same input is there already."""
    local = embedded(settings)
    looks = submission.may_be_known and (not local or has_ledger(settings))
    if not looks and preflight:
        ask_models(settings, submission, certain=local)
    # Only 'migrate' and 'up' change a server's schema; an embedded one is migrated here.
    with (
        session(settings, writes=local) as opened,
        naming_full_disk(settings),
        interruption.tell_fate(lambda: fate_of(opened, submission)[0]),
    ):
        earlier = run_interruptible(earlier_batch(opened, submission, quiet=quiet)) if looks else None
        if looks and earlier is None and preflight:
            ask_models(settings, submission, certain=local)
        if earlier is None:
            accepted, earlier = run_interruptible(_submit(opened, submission))
        else:
            accepted = run_interruptible(_accepted(opened, earlier))
        works = bool(opened.supervisor.running()) or (earlier is not None and earlier.final == earlier.jobs)
    return _HandedIn(accepted, earlier, local and not works)


def _tell_handed_in(handed_in: _HandedIn, batch: dict[str, Any], *, as_json: bool) -> int:
    accepted = handed_in.accepted
    if as_json:
        write_json(_document(accepted))
    else:
        for batch_id in [accepted.batch_id] if accepted.batch_id else accepted.holders:
            write_line(str(batch_id))
        tell(describe(accepted) + ("" if handed_in.earlier is None else "; --again pays anew"))
        if accepted.created and (times := options.describe_window(batch)):
            tell(times)
        if handed_in.waits_for_workers:
            tell("no worker runs: 'nightdesk up' starts them")
    if not accepted.jobs:
        return BAD_INPUT
    return INCOMPLETE if accepted.refused else OK


async def _submit(opened: Session, submission: Submission) -> tuple[Accepted, BatchStatus | None]:
    """The outcome, and the batch that another command made of the same input meanwhile."""
    async with opened.ledger() as ledger:
        try:
            accepted = await BatchRun(Watch(opened, ledger, Reporter())).submit(submission)
        except SameInputSubmitted:
            if (earlier := await known_batch(ledger, submission)) is None:
                raise
            return await _accepted(opened, earlier), earlier
    await submission.hint(opened.settings, opened.where)
    return accepted, None


async def _accepted(opened: Session, earlier: BatchStatus) -> Accepted:
    """The outcome of a submission whose batch is there."""
    async with opened.ledger() as ledger:
        lines = [line async for line in ledger.reading.input_lines(earlier.batch_id)]
    return Accepted(
        earlier.batch_id,
        created=False,
        jobs=earlier.jobs,
        refused=tuple(line for line in lines if isinstance(line, Refused)),
        repeated=tuple(line for line in lines if isinstance(line, Repeated)),
        submitted_at=earlier.created_at,
    )


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
