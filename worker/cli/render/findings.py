"""Shows the findings of the doctor."""

from typing import Any

from rich.table import Table
from rich.text import Text

from worker.cli.render.console import console, safe
from worker.doctor import Report, Severity

STYLES = {
    Severity.NOTE: "dim",
    Severity.WARNING: "yellow",
    Severity.PROBLEM: "red",
    Severity.UNREACHABLE: "bold red",
}


def show_report(report: Report) -> None:
    """A row a finding with its remedy, the worst first, and a line that says what was looked at."""
    out = console()
    if report.findings:
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column()
        # What to do stands below what was found: beside it, commands to copy would be broken into pieces.
        table.add_column(overflow="fold")
        order = list(Severity)
        for finding in sorted(report.findings, key=lambda finding: -order.index(finding.severity)):
            label = Text(finding.severity.value, style=STYLES[finding.severity])
            table.add_row(label, Text("\n").join([safe(finding.what), safe(f"→ {finding.remedy}", "dim")]))
        out.print(table)
    out.print(safe(f"looked at {', '.join(report.checked)}; {_summary(report)}"))


def _summary(report: Report) -> str:
    counts = {
        severity: sum(finding.severity is severity for finding in report.findings) for severity in reversed(Severity)
    }
    parts = [f"{count} {severity.value}" for severity, count in counts.items() if count]
    return f"found {', '.join(parts)}" if parts else "all is well"


def to_json(report: Report) -> dict[str, Any]:
    """The report for programs."""
    return {
        "worst": report.worst,
        "checked": report.checked,
        "findings": [
            {"check": finding.check, "severity": finding.severity, "what": finding.what, "remedy": finding.remedy}
            for finding in report.findings
        ],
    }
