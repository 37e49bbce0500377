"""Prepares a batch of files: makes its submission, and says who answers at what price."""

from collections.abc import Callable

from schemas.batch import BatchStatus
from tasks.errors import InputError
from tasks.ports import Refused
from worker.cli.exits import run_interruptible
from worker.cli.session import Session
from worker.cli.summary import unchanged_line
from worker.cli.terminal import tell, warn
from worker.cli.waiting import warn_of
from worker.ledger.database import HOT_S
from worker.ledger.postgres import PostgresLedger
from worker.operations.answerers import Answerers
from worker.operations.file_intake import InputOrder
from worker.operations.file_submission import Submission
from worker.operations.preflight import check_models, first_jobs, judges_line, models_line
from worker.settings import Settings


def earlier_batch(opened: Session, submission: Submission, *, quiet: bool) -> BatchStatus | None:
    """The batch that the same input with the same settings has already.

    An input that earlier batches have in part takes that part, and says so unless asked for quiet.
    """

    async def find(ledger: PostgresLedger) -> BatchStatus | None:
        earlier = await known_batch(ledger, submission)
        if earlier is None and (unchanged := await submission.take_unchanged(ledger.contents)) and not quiet:
            tell(unchanged_line(unchanged))
        return earlier

    return opened.on_ledger(find, statement_s=HOT_S)


async def known_batch(ledger: PostgresLedger, submission: Submission) -> BatchStatus | None:
    """The same, from an open ledger and of the whole input alone."""
    batch_id = await submission.known_batch(ledger.contents)
    return None if batch_id is None else await ledger.reading.batch_status(batch_id)


def new_submission(
    order: InputOrder, settings: Settings, answerers: Answerers | None = None, **hear: Callable[[str], None]
) -> Submission:
    """Files that are to be submitted, with warnings of the lines refused so far; ``hear``: as ``Submission`` has it.

    Raises: InputError, also for a fault of the command or the settings that leaves no line valid.
    """
    refused: list[Refused] = []
    try:
        submission = Submission(order, settings, answerers, on_refused=refused.append, warn=warn, **hear)
        if (fault := submission.intake.common_fault) is not None:
            refused.clear()
            raise InputError(f"{fault}; nothing was submitted")
    finally:
        warn_of(refused)
    return submission


def announce(submission: Submission, answerers: Answerers) -> None:
    """Says who answers the first jobs of some files at what price; raises ``ConfigurationError`` for what every call would meet."""
    jobs = first_jobs(submission.first_jobs)
    why = f", {answerers.why}" if answerers.why else ""
    for kind in answerers.kinds:
        for line in (
            models_line(kind.providers, kind.settings, jobs.configs),
            judges_line(kind.providers, kind.settings, jobs.judges),
        ):
            if line:
                tell(f"{line}{why}")


def ask_models(settings: Settings, submission: Submission, answerers: Answerers) -> None:
    """Asks the providers of the first jobs for their models and judges; warns of what they did not tell.

    Raises: ConfigurationError, ServiceUnavailable for what every call would meet.
    """
    jobs = first_jobs(submission.first_jobs)
    if answerers.here and answerers.certain and (jobs.configs or jobs.judges):
        for line in run_interruptible(check_models(answerers.first.providers, settings, jobs.configs, jobs.judges)):
            warn(line)
