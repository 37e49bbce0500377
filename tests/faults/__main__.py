"""Runs the experiments and prints the table; ends with 1 when a promise was broken."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.experiments import EXPERIMENTS, NotPossibleHere

HEAD = f"{'experiment':<66} {'jobs':>5} {'lost':>5} {'twice without need':>19} {'unavoidable':>12} {'recovery':>9}"


def main() -> int:
    """Run all experiments, or those whose name holds a word given."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("words", nargs="*", help="only experiments whose name holds one of these")
    words = parser.parse_args().words
    broken = 0
    started = time.monotonic()
    sys.stdout.write(f"{HEAD}\n{'-' * len(HEAD)}\n")
    for experiment in EXPERIMENTS:
        if words and not any(word in experiment.name for word in words):
            continue
        with tempfile.TemporaryDirectory(prefix="nightdesk-faults-") as folder:
            try:
                report = experiment(Path(folder))
            except NotPossibleHere as error:
                sys.stdout.write(f"{experiment.name:<66} not possible here: {error}\n")
                continue
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                broken += 1
                sys.stdout.write(f"{experiment.name:<66} broke: {type(error).__name__}: {str(error)[:3000]}\n")
                continue
        broken += not report.promises_hold
        twice = report.needless + report.unrecorded
        sys.stdout.write(
            f"{experiment.name:<66} {report.jobs:>5} {report.lost:>5} {twice:>19} {report.unknown + report.late:>12}"
            f" {report.recovery_s:>7.1f} s{f'  {report.note}' if report.note else ''}\n"
        )
        sys.stdout.flush()
    sys.stdout.write(f"{'-' * len(HEAD)}\n{broken} broken, {time.monotonic() - started:.0f} s in all\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
