"""``nightdesk submit``: files in."""

from schemas.batch import BatchStatus
from worker.cli import options
from worker.cli.exits import BAD_INPUT, INCOMPLETE, OK
from worker.cli.summary import describe, refused_document
from worker.cli.terminal import tell, write_json, write_line
from worker.cli.whole_run import RunRequest, run_batch
from worker.operations.file_submission import Accepted
from worker.settings import Settings, load_settings
from worker.supervise.state_directory import state_of
from worker.supervise.workers import supervisor_of


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
    order = handover.order(files)
    report = run_batch(
        settings,
        RunRequest("", order, waits=False, quiet=as_json, with_workers=False, preflight=handover.preflight),
    )
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
