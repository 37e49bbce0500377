"""Exit codes, and the one place that maps errors to them."""

from typer import Abort

from tasks.errors import (
    ConfigurationError,
    InputError,
    LedgerError,
    NightdeskError,
    NotFound,
    ServiceUnavailable,
    Unstorable,
)
from worker.cli.terminal import INTERRUPTED
from worker.local import LocalServerError

OK = 0
"""All jobs are final and none failed."""
INCOMPLETE = 1
"""Some jobs failed, were cancelled, expired, are held or not final yet."""
BAD_INPUT = 2
"""The input, the command line or a setting is wrong; nothing of it was done, or the message says what was."""
UNREACHABLE = 3
"""A service that is needed can't be reached or can't serve."""


class OutputFailed(ServiceUnavailable):
    """The results could not be written down; they still are in the ledger."""


_CODES: tuple[tuple[type[Exception], int], ...] = (
    (InputError, BAD_INPUT),
    (ConfigurationError, BAD_INPUT),
    (NotFound, BAD_INPUT),
    (Unstorable, BAD_INPUT),
    (ServiceUnavailable, UNREACHABLE),
    (LedgerError, UNREACHABLE),
    (LocalServerError, UNREACHABLE),
    (NightdeskError, INCOMPLETE),
    (Abort, INTERRUPTED),
)


def exit_code_of(error: Exception) -> int | None:
    """The exit code for an error; None when it is a defect of ours and deserves its traceback."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    # Errors of the command line itself bring their own code and can show themselves.
    own: int | None = getattr(error, "exit_code", None)
    return own if hasattr(error, "format_message") else None
