"""``nightdesk submit``: files in."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from schemas.batch import BatchStatus
from schemas.states import Step
from tasks.errors import SameInputSubmitted
from tasks.ports import Refused, Repeated
from worker.cli import options
from worker.cli.batch_run import BatchRun
from worker.cli.exits import BAD_INPUT, INCOMPLETE, OK, run_interruptible
from worker.cli.full_disk import naming_full_disk
from worker.cli.input_files import earlier_batch, known_batch, new_submission
from worker.cli.interruption import NOTHING_SUBMITTED, Interruption, fate_of
from worker.cli.preflight_messages import announce, ask_models
from worker.cli.progress import Reporter
from worker.cli.session import Session, has_ledger, session
from worker.cli.summary import describe, refused_document
from worker.cli.terminal import tell, warn, write_json, write_line
from worker.cli.waiting import Watch
from worker.operations.answerers import find_answerers
from worker.operations.counts import count_of
from worker.operations.file_submission import Accepted, Submission
from worker.operations.input_content import same_input_of
from worker.settings import Settings, load_settings


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
        answerers = run_interruptible(find_answerers(settings, Step.GENERATE, starts=False))
        submission = new_submission(
            files,
            batch,
            settings,
            answerers,
            strict=handover.strict,
            columns=handover.reading,
            tell=tell,
            same_input=same_input_of(again=handover.again),
            priority=handover.priority or 0,
        )
        if submission.empty:
            warn(f"none of {count_of(submission.intake.lines, 'line')} holds a valid job; nothing was submitted")
            return BAD_INPUT
        announce(settings, submission, files, answerers, quiet=as_json)
        ask = partial(ask_models, settings, submission, answerers) if handover.preflight else None
        handed_in = _hand_in(settings, submission, interruption, ask, quiet=as_json)
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
    settings: Settings,
    submission: Submission,
    interruption: Interruption,
    ask: Callable[[], object] | None,
    *,
    quiet: bool,
) -> _HandedIn:
    """Submits, unless the same input is there already; ``ask`` is called before calls are to be made."""
    local = settings.embedded()
    looks = submission.may_be_known and (not local or has_ledger(settings))
    if not looks and ask is not None:
        ask()
    # Only 'migrate' and 'up' change a server's schema; an embedded one is migrated here.
    with (
        session(settings, writes=local) as opened,
        naming_full_disk(settings),
        interruption.tell_fate(lambda: fate_of(opened, submission)[0]),
    ):
        earlier = earlier_batch(opened, submission, quiet=quiet) if looks else None
        if looks and earlier is None and ask is not None:
            ask()
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
    # Without a worker of this home there is none that an embedded Redis could wake.
    if not opened.settings.embedded() or opened.supervisor.running():
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
