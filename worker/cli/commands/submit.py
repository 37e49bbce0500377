"""``nightdesk submit``: hands in files and returns."""

from worker.cli import options
from worker.cli.exits import BAD_INPUT, INCOMPLETE, OK
from worker.cli.interrupts import run_interruptible
from worker.cli.messages import tell, warn
from worker.cli.output import write_json, write_line
from worker.cli.session import Session, session
from worker.cli.submitting import Accepted, Submission
from worker.settings import load_settings
from worker.wiring import embedded


def command(
    files: options.Files,
    *,
    name: options.Name = None,
    key: options.Key = None,
    max_cost_usd: options.MaxCost = None,
    strict: options.Strict = False,
    as_json: options.Json = False,
) -> int:
    """Hand in the questions of files as one batch and return at once.

    Workers take it from there: those of 'nightdesk up', or any that use the same database.
    """
    settings = load_settings()
    submission = Submission(files, options.said_of_batch(name, key, max_cost_usd), settings, strict=strict)
    if submission.empty:
        warn(f"none of {submission.intake.lines} lines holds a valid job; nothing was submitted")
        return BAD_INPUT
    # A server's schema is changed by 'migrate' and 'up' only; an embedded one has nobody else to do it.
    with session(settings, writes=embedded(settings)) as desk:
        accepted = run_interruptible(_submit(desk, submission))
        works = bool(desk.supervisor.running())
    if as_json:
        write_json(_json(accepted))
    else:
        for batch_id in [accepted.batch_id] if accepted.batch_id else accepted.holders:
            write_line(str(batch_id))
        tell(accepted.said)
        if embedded(settings) and not works:
            tell("no worker runs: 'nightdesk up' starts them")
    if not accepted.jobs:
        return BAD_INPUT
    return INCOMPLETE if accepted.refused else OK


async def _submit(desk: Session, submission: Submission) -> Accepted:
    async with desk.ledger() as ledger:
        accepted = await submission.write(ledger, lambda _: None)
    await submission.hint(desk.settings, desk.where)
    return accepted


def _json(accepted: Accepted) -> dict[str, object]:
    return {
        "batch_id": str(accepted.batch_id) if accepted.batch_id else None,
        "created": accepted.created,
        "jobs": accepted.jobs,
        "submitted_at": accepted.submitted_at.isoformat() if accepted.submitted_at else None,
        "known_before": len(accepted.repeated),
        "held_by": {str(batch_id): count for batch_id, count in accepted.holders.items()},
        "invalid_lines": [
            {"position": bad.position, "where": bad.place, "message": bad.message} for bad in accepted.refused
        ],
    }
