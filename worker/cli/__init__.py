"""The command ``nightdesk``: reads the command line, does one command, ends with its exit code.

``commands`` holds the commands; ``session`` opens servers and schema for them, ``whole_run`` takes a batch from its files
to its results by the steps of ``batch_run``, ``console`` and ``job_view`` make things readable.
The work itself is in ``worker.operations``. Results go to standard output, messages to standard error.
"""

import logging
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from worker.cli.project import adopt_project
from worker.cli.terminal import INTERRUPTED, complain, warn
from worker.process.logs import configure_logging

if TYPE_CHECKING:
    from typer import Typer


def main() -> None:
    """Runs the command that ``sys.argv`` names and ends the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code; only a defect of ours leaves as an exception."""
    # A server that drops packets instead of refusing must not hold a command for minutes.
    os.environ.setdefault("PGCONNECT_TIMEOUT", "5")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    # What libraries warn of comes back as an error, which is reported once and in our words.
    configure_logging("ERROR")
    for handler in logging.getLogger().handlers:
        # Some loggers have a level of their own, which goes before the root's.
        handler.setLevel(logging.ERROR)
    with suppress(FileNotFoundError):
        # Of a folder that was removed under the shell there is no project.
        adopt_project(os.environ, Path.cwd())
    try:
        # The parser is the half of what a command without work loads: main has a word before it.
        from worker.cli.commands import load, with_own_name  # noqa: PLC0415

        arguments = with_own_name(arguments)
        app: Typer = load(arguments)
        _warn_of_mistyped_settings()
        result = app(arguments, standalone_mode=False, prog_name="nightdesk")
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone; the rest of the buffer must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED
    except Exception as error:
        # The error tree brings the wire contract along: loaded only when there is an error.
        code: int | None = import_module("worker.cli.exits").exit_code_of(error)
        if code is None:
            raise
        complain(error)
        return code
    return int(result or 0)


def _warn_of_mistyped_settings() -> None:
    if any(name.startswith("NIGHTDESK_") for name in os.environ):
        # Without any, a command that needs no settings does not load them.
        for line in import_module("worker.settings").mistyped(os.environ):
            warn(line)
