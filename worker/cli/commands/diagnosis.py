"""``nightdesk doctor``: names what is wrong, each with its remedy."""

from dataclasses import asdict
from typing import Annotated, Any

from rich.text import Text

from worker.cli import options
from worker.cli.console import console, safe, table_of
from worker.cli.exits import INCOMPLETE, OK, UNREACHABLE, run_interruptible
from worker.cli.help import option
from worker.cli.terminal import write_json
from worker.doctor import examine
from worker.doctor.finding import Report, Severity
from worker.operations.counts import count_of

STYLES = {
    Severity.NOTE: "dim",
    Severity.WARNING: "yellow",
    Severity.PROBLEM: "red",
    Severity.UNREACHABLE: "bold red",
}


def doctor(
    invariants: Annotated[
        bool,
        option(
            "Also check the invariants by SQL over the whole ledger: one record per run, one answer taken, "
            "every sum of money. Reads all rows.",
            "--invariants",
        ),
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Examine settings, servers, workers and jobs, and say what is wrong and what to do about it.

    Changes nothing. Exit 0: nothing wrong (notes don't count). 1: there are findings. 3: a service can't be reached.
    """
    report = run_interruptible(examine(invariants=invariants))
    if as_json:
        write_json(to_json(report))
    else:
        show_report(report)
    return exit_code(report)


def exit_code(report: Report) -> int:
    """The exit code for the worst finding."""
    if report.worst is Severity.UNREACHABLE:
        return UNREACHABLE
    return OK if report.worst in {None, Severity.NOTE} else INCOMPLETE


def show_report(report: Report) -> None:
    """A row a finding with its remedy, the worst first, and a line that names the checks."""
    out = console()
    if report.findings:
        # The remedy is below the finding: in a column of its own, commands to copy would be broken into pieces.
        table = table_of("", "")
        order = list(Severity)
        for finding in sorted(report.findings, key=lambda finding: -order.index(finding.severity)):
            severity = Text(finding.severity.value, style=STYLES[finding.severity])
            table.add_row(severity, Text("\n").join([safe(finding.what), safe(f"→ {finding.remedy}", "dim")]))
        out.print(table)
    out.print(safe(f"looked at {', '.join(report.checked)}; {_summary(report)}"))


def _summary(report: Report) -> str:
    counts = {
        severity: sum(finding.severity is severity for finding in report.findings) for severity in reversed(Severity)
    }
    texts = [
        count_of(count, severity.value, severity.value if severity is Severity.UNREACHABLE else "")
        for severity, count in counts.items()
        if count
    ]
    return f"found {', '.join(texts)}" if texts else "all is well"


def to_json(report: Report) -> dict[str, Any]:
    """The report for programs."""
    return {
        "worst": report.worst,
        "checked": report.checked,
        "findings": [asdict(finding) for finding in report.findings],
    }
