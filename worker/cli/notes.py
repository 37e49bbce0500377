"""Keeps beside the ledger what it does not hold of a submission: refused lines, and jobs that other batches hold."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from uuid import UUID

import orjson

from tasks.errors import ConfigurationError, LedgerError
from worker.cli.intake import BadLine
from worker.cli.messages import warn
from worker.supervise.files import write_atomically
from worker.supervise.state_directory import StateDirectory


@dataclass(frozen=True, slots=True)
class Notes:
    """What completes a batch's results to one line per line of input."""

    bad: tuple[BadLine, ...] = ()
    elsewhere: dict[int, UUID] = field(default_factory=dict)
    """Position to job id, of lines whose idempotency key names a job that was there before."""

    def save(self, state: StateDirectory, batch_id: UUID) -> None:
        """Write the notes, when there are any; without a place for them, say what will be missing later."""
        if self.bad or self.elsewhere:
            content = {
                "bad": [asdict(line) for line in self.bad],
                "elsewhere": {str(position): str(job_id) for position, job_id in self.elsewhere.items()},
            }
            try:
                state.create()
                write_atomically(_path(state, batch_id), orjson.dumps(content).decode())
            except (ConfigurationError, OSError) as error:
                # The jobs are accepted by now: that must not look like a failure.
                warn(f"{error}; later 'results' of this batch leave out the lines that are no job of it")


def load_notes(state: StateDirectory, batch_id: UUID) -> Notes:
    """The notes on a batch; none when it was submitted whole, or from another home."""
    path = _path(state, batch_id)
    try:
        content = orjson.loads(path.read_bytes())
        return Notes(
            tuple(BadLine(**line) for line in content["bad"]),
            {int(position): UUID(job_id) for position, job_id in content["elsewhere"].items()},
        )
    except FileNotFoundError:
        return Notes()
    except (ValueError, TypeError, KeyError) as error:
        raise LedgerError(
            f"{path} is damaged ({error}); without it the refused lines are left out: remove it"
        ) from None


def drop_notes(state: StateDirectory, batch_id: UUID) -> None:
    """Remove the notes on a batch: its refused lines quote what stood in them."""
    _path(state, batch_id).unlink(missing_ok=True)


def _path(state: StateDirectory, batch_id: UUID) -> Path:
    return state.submissions / f"{batch_id}.json"
