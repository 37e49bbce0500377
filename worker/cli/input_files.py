"""Makes the submission of a command's files, and finds the batch that has the same input already."""

from typing import Any

from schemas.batch import BatchStatus
from tasks.errors import InputError
from tasks.ports import Refused
from worker.cli.batch_run import warn_of
from worker.cli.session import Session
from worker.cli.summary import unchanged_line
from worker.cli.terminal import tell, warn
from worker.ledger.database import HOT_S
from worker.ledger.postgres import PostgresLedger
from worker.operations.answerers import Answerers
from worker.operations.file_submission import Submission
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
    files: list[str], batch: dict[str, Any], settings: Settings, answerers: Answerers | None = None, **options: Any
) -> Submission:
    """Files that are to be submitted, with warnings of the lines refused so far.

    Raises: InputError, also for a fault of the command or the settings that leaves no line valid.
    """
    refused: list[Refused] = []
    try:
        submission = Submission(
            files, batch, settings, answerers=answerers, on_refused=refused.append, warn=warn, **options
        )
        if (fault := submission.intake.common_fault) is not None:
            refused.clear()
            raise InputError(f"{fault}; nothing was submitted")
    finally:
        warn_of(refused)
    return submission
