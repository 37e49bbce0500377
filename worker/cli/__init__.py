"""The command ``nightdesk``: reads the command line, does one command, ends with its exit code.

``commands`` holds one door per command; what they do stands in the modules beside it (``intake`` reads input,
``session`` holds what runs, ``submitting``, ``waiting`` and ``outcome`` are a batch's
way), and ``render`` makes it readable. Results go to standard output, messages to standard error.
"""

import logging
import os
import signal
import sys

from typer import Typer

from worker.cli.commands import load
from worker.cli.exits import INTERRUPTED, exit_code_of
from worker.cli.messages import complain
from worker.process.logs import configure_logging


def main() -> None:
    """Run the command that ``sys.argv`` names and end the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; only a defect of ours leaves as an exception."""
    # A server that drops packets instead of refusing must not hold a command for minutes.
    os.environ.setdefault("PGCONNECT_TIMEOUT", "5")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    # What libraries warn of comes back to us as an error, which is told once and in our words.
    configure_logging("ERROR")
    for handler in logging.getLogger().handlers:
        # Some loggers have a level of their own, which goes before the root's.
        handler.setLevel(logging.ERROR)
    try:
        app: Typer = load(arguments)
        result = app(arguments, standalone_mode=False, prog_name="nightdesk")
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Who read our output has gone; what is left in the buffer must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED
    except Exception as error:
        code = exit_code_of(error)
        if code is None:
            raise
        complain(error)
        return code
    return int(result or 0)
