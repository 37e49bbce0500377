"""Sums results up by kind, as a table."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from schemas.states import Outcome
from worker.cli.render.console import safe

SHOWN = (Outcome.ANSWERED, Outcome.PARTIAL, Outcome.ABSTAINED, Outcome.NO_EVIDENCE)


@dataclass(slots=True)
class _Sums:
    jobs: int = 0
    outcomes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    groundings: list[float] = field(default_factory=list)
    citations: int = 0

    def add(self, result: Mapping[str, Any]) -> None:
        self.jobs += 1
        self.outcomes[result["outcome"] or result["state"]] += 1
        if result["grounding_score"] is not None:
            self.groundings.append(result["grounding_score"])
        self.citations += len(result["citations"])


def show_kinds(out: Console, results: Iterable[Mapping[str, Any]]) -> None:
    """A line per ``metadata.kind`` and one for all; what no column counts stands in the last one."""
    kinds: dict[str, _Sums] = defaultdict(_Sums)
    everything = _Sums()
    for result in results:
        kinds[str(result["metadata"].get("kind") or "other")].add(result)
        everything.add(result)
    table = Table(box=None, pad_edge=False)
    for heading in ("kind", "jobs", *(shown.value for shown in SHOWN), "mean grounding", "citations", "other"):
        table.add_column(heading, justify="left" if heading in {"kind", "other"} else "right")
    for kind, sums in sorted(kinds.items()):
        table.add_row(safe(kind), *_cells(sums))
    table.add_section()
    table.add_row(safe("all", "bold"), *_cells(everything))
    out.print(table)


def _cells(sums: _Sums) -> list[str]:
    known = {shown.value for shown in SHOWN}
    return [
        str(sums.jobs),
        *(str(sums.outcomes.get(shown.value, 0)) for shown in SHOWN),
        f"{sum(sums.groundings) / len(sums.groundings):.2f}" if sums.groundings else "",
        str(sums.citations),
        ", ".join(f"{count} {name}" for name, count in sums.outcomes.items() if name not in known),
    ]
