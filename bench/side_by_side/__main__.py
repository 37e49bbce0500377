"""Compares this system with the programs that it replaces: the same questions and stand-in provider, in rounds of one run.

    python -m bench.side_by_side [--jobs 5000] [--rounds 3] [--calls 1000] [--latency 1] [--lognormal] [--only NAME...]

A round runs each contestant once, in an order that turns. The report with plots goes to ``out/bench``.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.side_by_side.contestants import CONTESTANTS, REPOSITORY, Load, Measurement
from bench.side_by_side.report import markdown, plot
from bench.side_by_side.workload import write_workload


def main() -> None:
    """Runs the rounds and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=1_000, help="most in flight at once")
    parser.add_argument("--latency", type=float, default=1.0, help="of the provider, in seconds")
    parser.add_argument("--lognormal", action="store_true", help="latencies around that mean")
    parser.add_argument("--workers", type=int, default=2, help="of this system")
    parser.add_argument("--only", nargs="+", choices=list(CONTESTANTS), default=list(CONTESTANTS), metavar="NAME")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "out" / "bench")
    options = parser.parse_args()
    rounds: dict[str, list[Measurement]] = {name: [] for name in options.only}
    with tempfile.TemporaryDirectory(prefix="nightdesk-bench-") as directory:
        workload = write_workload(Path(directory), options.jobs)
        load = Load(workload, options.calls, options.latency, options.lognormal, options.workers)
        for number in range(options.rounds):
            turn = number % len(options.only)
            for name in options.only[turn:] + options.only[:turn]:
                line = {"round": number + 1, "name": name}
                try:
                    measured = CONTESTANTS[name](load)
                except subprocess.CalledProcessError as error:
                    _write({**line, "failed": str(error)})
                    # Once more: a second failure ends the comparison.
                    measured = CONTESTANTS[name](load)
                rounds[name].append(measured)
                _write({**line, "jobs_per_s": round(measured.jobs_per_s, 1), **asdict(measured)})
        options.out.mkdir(parents=True, exist_ok=True)
        report = markdown(load, rounds)
        (options.out / "report.md").write_text(f"{report}\n![speed and CPU](report.png)\n")
        plot(rounds, options.out / "report.png")
        sys.stdout.write(f"\n{report}\nwritten: {options.out / 'report.md'}\n")


def _write(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line, default=str) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
