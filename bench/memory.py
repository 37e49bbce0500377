"""Measures the memory of a worker with all its calls in flight over time: python -m bench.memory [--minutes 20].

The stand-in provider takes so long for an answer that all slots stay taken at a modest rate; the jobs have 8 sources of
2.5 KB, each its own. Prints a line for each minute, and the slope after the first quarter; the plot goes to ``out/bench``.
"""

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression, mean

import matplotlib as mpl

from bench.side_by_side.contestants import COMMAND, REPOSITORY, Load, System, statistics, system
from bench.side_by_side.measuring import cpu_of, tree_mb
from bench.side_by_side.workload import write_workload

mpl.use("agg")
import matplotlib.pyplot as plt

SAMPLE_S = 2.0
FILE = 5_000
"""Jobs of the file, which is submitted again before its jobs run out."""


@dataclass(frozen=True)
class Sample:
    """One look: seconds since the start, megabytes of each worker, calls so far, and the most in flight since the last."""

    second: float
    workers_mb: tuple[float, ...]
    calls: int
    in_flight: int


def main() -> None:
    """Runs the workers for the time and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--latency", type=float, default=15.0, help="of the provider, in seconds")
    parser.add_argument("--calls", type=int, default=1_000, help="in flight at once, shared by the workers")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "out" / "bench")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nightdesk-bench-") as directory:
        load = Load(write_workload(Path(directory), FILE), options.calls, options.latency, False, options.workers)
        with system(load) as running:
            samples = _sample(load, running, options.minutes * 60)
    options.out.mkdir(parents=True, exist_ok=True)
    _plot(samples, options.out / "memory.png")
    _print_slopes(samples)
    sys.stdout.write(f"written: {options.out / 'memory.png'}\n")


def _sample(load: Load, running: System, seconds: float) -> list[Sample]:
    workers = [roots[0] for name, roots in running.trees.roots.items() if name not in {"postgres", "valkey"}]
    samples: list[Sample] = []
    submitted = 0
    started = time.monotonic()
    sys.stdout.write(
        "| minute | MB of a worker: least to most | calls in flight | calls |\n| --- | --- | --- | --- |\n"
    )
    while (second := time.monotonic() - started) < seconds:
        counted = statistics(running.url)
        if submitted < counted["calls"] + load.calls + FILE // 2:
            command = [*COMMAND, "submit", "--again", str(load.workload.questions)]
            cpu_of(command, running.environment, REPOSITORY)
            submitted += FILE
        sizes = tuple(map(tree_mb, workers))
        samples.append(Sample(second, sizes, counted["calls"], counted["most_in_flight"]))
        _print_minute(samples)
        time.sleep(SAMPLE_S)
    return samples


def _print_minute(samples: list[Sample]) -> None:
    """A line where the last sample is the first of its minute, about the one before."""
    if len(samples) < 2 or samples[-1].second // 60 == samples[-2].second // 60:
        return
    minute = samples[-2].second // 60
    within = [sample for sample in samples if sample.second // 60 == minute]
    sizes = [size for sample in within for size in sample.workers_mb]
    flights = [sample.in_flight for sample in within]
    sys.stdout.write(
        f"| {minute + 1:.0f} | {min(sizes):.0f}-{max(sizes):.0f} | {min(flights)}-{max(flights)} | {within[-1].calls:,} |\n"
    )
    sys.stdout.flush()


def _print_slopes(samples: list[Sample]) -> None:
    settled = [sample for sample in samples if sample.second >= samples[-1].second / 4]
    for number in range(len(samples[0].workers_mb)):
        sizes = [sample.workers_mb[number] for sample in settled]
        slope, _ = linear_regression([sample.second / 60 for sample in settled], sizes)
        peak = max(sample.workers_mb[number] for sample in samples)
        sys.stdout.write(
            f"worker {number + 1}: mean {mean(sizes):.0f} MB, at most {peak:.0f} MB,"
            f" {slope:+.2f} MB a minute after the first quarter\n"
        )


def _plot(samples: list[Sample], path: Path) -> None:
    figure, memory = plt.subplots(figsize=(9, 3.5))
    minutes = [sample.second / 60 for sample in samples]
    for number in range(len(samples[0].workers_mb)):
        memory.plot(minutes, [sample.workers_mb[number] for sample in samples], label=f"worker {number + 1}, MB")
    memory.set_xlabel("minutes")
    memory.set_ylabel("MB")
    memory.set_ylim(bottom=0)
    flight = memory.twinx()
    flight.plot(minutes, [sample.in_flight for sample in samples], color="#b0b0b0", label="calls in flight")
    flight.set_ylim(bottom=0)
    flight.set_ylabel("calls in flight")
    figure.legend(loc="lower right", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
