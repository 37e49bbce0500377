"""Shows what checking again has changed, on standard error: standard output is for results."""

from rich.console import Console
from rich.table import Table

from worker.cli.comparing import Comparison
from worker.cli.render.console import safe


def show_comparison(comparison: Comparison) -> None:
    """A row per verdict and outcome, before and after, and a line that sums it up."""
    out = Console(stderr=True, highlight=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("before", "after"):
        table.add_column(heading, justify="right")
    for row in comparison.rows():
        table.add_row(*map(safe, row))
    out.print(table)
    told = f"{len(comparison.pairs)} answers checked again: {comparison.changed} have another outcome"
    out.print(safe(f"{told}; the judge cost {comparison.cost_usd.normalize():f} USD"))
