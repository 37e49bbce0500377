"""Writes what a comparison measured: medians, ratios, the parts of the CPU, and plots."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import matplotlib as mpl

from bench.side_by_side.contestants import Load, Measurement

mpl.use("agg")
import matplotlib.pyplot as plt

Rounds = Mapping[str, Sequence[Measurement]]
PRODUCT = "nightdesk"


def markdown(load: Load, rounds: Rounds) -> str:
    """Tables of medians over the rounds, least to most in brackets; ratios are of this system to each other one."""
    latency = f"{load.latency_s:g} s of latency{', lognormal' if load.lognormal else ''}"
    lines = [
        f"# {load.workload.count:,} jobs of 8 sources with 2.5 KB, {latency}, {load.calls:,} calls at once",
        "",
        f"Medians of {len(next(iter(rounds.values())))} rounds, each contestant once a round.",
        "CPU is that of all processes without start-up, in milliseconds a job; the provider's is not counted.",
        "",
        "| | jobs/s | CPU ms a job | most calls in flight | start-up CPU s | peak MB | this system: speed | CPU |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    product = rounds.get(PRODUCT)
    for name, measured in rounds.items():
        ratios = ["", ""]
        if product and name != PRODUCT:
            ratios = [f"{_ratio(product, measured, figure):.2f}x" for figure in ("jobs_per_s", "cpu_ms_sum")]
        cells = [
            _spread([entry.jobs_per_s for entry in measured], 0),
            _spread([entry.cpu_ms_sum for entry in measured], 2),
            f"{median(entry.most_in_flight for entry in measured):.0f}",
            f"{median(entry.starting_s for entry in measured):.1f}",
            f"{median(sum(entry.peak_mb.values()) for entry in measured):.0f}",
            *ratios,
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "## Parts", "", "| | part | CPU ms a job | share | peak MB |", "| --- | --- | --- | --- | --- |"]
    for name, measured in rounds.items():
        lines += _parts(name, measured)
    notes = sorted({note for measured in rounds.values() for entry in measured for note in entry.notes})
    if notes:
        lines += ["", "## Other figures", "", "| | " + " | ".join(notes) + " |", "| --- |" + " --- |" * len(notes)]
        for name, measured in rounds.items():
            if measured[0].notes:
                cells = [_spread([entry.notes[note] for entry in measured], 2) for note in notes]
                lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _ratio(product: Sequence[Measurement], peer: Sequence[Measurement], figure: str) -> float:
    """The median of the ratios in each round: what disturbs a round disturbs both."""
    pairs = zip(product, peer, strict=True)
    return float(median(getattr(entry, figure) / getattr(peer_entry, figure) for entry, peer_entry in pairs))


def _parts(name: str, measured: Sequence[Measurement]) -> list[str]:
    total = median(entry.cpu_ms_sum for entry in measured)
    lines = []
    for part in measured[0].cpu_ms:
        used = median(entry.cpu_ms[part] for entry in measured)
        peak = median(entry.peak_mb.get(part, 0.0) for entry in measured)
        lines.append(f"| {name} | {part} | {used:.2f} | {used / total:.0%} | {peak:.0f} |")
    return lines


def _spread(values: Sequence[float], digits: int) -> str:
    middle = f"{median(values):,.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


def plot(rounds: Rounds, path: Path) -> None:
    """Draws speed and CPU by part, side by side."""
    figure, (speed, cpu) = plt.subplots(1, 2, figsize=(11, 3.5))
    names = list(rounds)
    speed.barh(names, [median(entry.jobs_per_s for entry in rounds[name]) for name in names], color="#4878a8")
    speed.set_xlabel("jobs a second")
    parts = list(dict.fromkeys(part for measured in rounds.values() for part in measured[0].cpu_ms))
    begins = [0.0] * len(names)
    for part in parts:
        widths = [median(entry.cpu_ms.get(part, 0.0) for entry in rounds[name]) for name in names]
        cpu.barh(names, widths, left=begins, label=part)
        begins = [begin + width for begin, width in zip(begins, widths, strict=True)]
    cpu.set_xlabel("CPU, ms a job")
    cpu.legend(fontsize=8)
    for axis in (speed, cpu):
        axis.invert_yaxis()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
