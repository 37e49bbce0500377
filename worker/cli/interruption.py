"""Says what a command that Ctrl-C or SIGTERM ended had submitted by then: all of its input, or nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from tasks.errors import LedgerError, NotFound, ServiceUnavailable
from worker.cli.session import Session
from worker.cli.terminal import tell
from worker.operations.counts import count_of
from worker.operations.file_submission import Submission

NOTHING_SUBMITTED = "Nothing was submitted."


class Interruption:
    """Tells a person once, at the innermost place that knows, what the interruption left."""

    def __init__(self) -> None:
        self._is_over = False
        self._last_fate: Callable[[], str] | None = None
        """Of the inner block that ended: what is left is the end of the command."""

    @contextmanager
    def tell_fate(self, fate: Callable[[], str]) -> Iterator[None]:
        """Tells the fate of the work when the block is interrupted."""
        try:
            yield
        except KeyboardInterrupt:
            if not self._is_over:
                self._is_over = True
                tell(f"Interrupted. {(self._last_fate or fate)()}".rstrip())
            raise
        self._last_fate = self._last_fate or fate


def fate_of(opened: Session, submission: Submission) -> tuple[str, UUID | None]:
    """The fate of an interrupted submission, by the ledger, and the batch if it is there: it was written whole or not at all."""
    batch_id = submission.batch.id
    try:
        status = opened.on_ledger(lambda ledger: ledger.reading.batch_status(batch_id))
    except NotFound:
        return NOTHING_SUBMITTED, None
    except (KeyboardInterrupt, ServiceUnavailable, LedgerError):
        return f"Nothing was submitted, unless 'nightdesk status {batch_id}' knows of it.", None
    return (
        f"Batch {batch_id} was submitted whole: {count_of(status.jobs, 'job')}. Look at it with: nightdesk status {batch_id}",
        batch_id,
    )
