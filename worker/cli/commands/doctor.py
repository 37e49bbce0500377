"""``nightdesk doctor``: what is wrong, and what to do about it."""

from typing import Annotated

import typer

from worker import doctor
from worker.cli import options
from worker.cli.exits import INCOMPLETE, OK, UNREACHABLE
from worker.cli.interrupts import run_interruptible
from worker.cli.output import write_json
from worker.cli.render.findings import show_report, to_json
from worker.doctor import Report, Severity
from worker.settings import load_settings
from worker.wiring import endpoints


def command(
    ping: Annotated[
        bool,
        typer.Option(
            "--ping",
            help="Only ask the worker of this host whether it listens, for health checks: exit 0 if it does, or if "
            "Redis can't be asked.",
        ),
    ] = False,
    invariants: Annotated[
        bool,
        typer.Option(
            "--invariants",
            help="Also prove by SQL over the whole ledger what must always hold: one record per run, one answer taken, "
            "every sum of money. Reads all rows.",
        ),
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Examine settings, servers, workers and jobs, and say what is wrong and what to do about it.

    Changes nothing. Exit 0: nothing wrong (notes don't count). 1: there are findings. 3: a service can't be reached.
    """
    if ping:
        settings = load_settings()
        return OK if doctor.answers_here(settings, endpoints(settings).redis_url) else INCOMPLETE
    report = run_interruptible(doctor.examine(invariants=invariants))
    if as_json:
        write_json(to_json(report))
    else:
        show_report(report)
    return exit_code(report)


def exit_code(report: Report) -> int:
    """The exit code that says how bad it is."""
    if report.worst is Severity.UNREACHABLE:
        return UNREACHABLE
    return OK if report.worst in {None, Severity.NOTE} else INCOMPLETE
