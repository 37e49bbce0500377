"""Compares estimates with the truth on sets of questions, first without any earlier call, then after a trial of each set.

    python -m bench.estimate [--questions DIR] [--trial 100] [--jobs 1000]

A stub of OpenAI bills what it reads and writes, in OpenAI's tokenizer, for answers of different lengths. A set's first
lines are the trial; its other lines are estimated by it, run, and compared: tokens and cost are to be within 10 %.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

from bench.questions import QUESTIONS
from tests.stub.billing import billing
from tests.stub.server import running_stub

BOUND = 0.10


def nightdesk(environment: dict[str, str], *arguments: str | Path) -> dict[str, Any]:
    """The JSON that a command writes."""
    command = [sys.executable, "-m", "worker.cli", *map(str, arguments), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise RuntimeError(done.stderr)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def split(path: Path, folder: Path, trial: int, jobs: int) -> tuple[Path, Path]:
    """The trial and the rest of a set, with its questions alone."""
    parts = folder / f"{path.stem}-trial.jsonl", folder / f"{path.stem}-rest.jsonl"
    with path.open() as lines:
        for part, count in zip(parts, (trial, jobs), strict=True):
            part.write_text("".join(islice(lines, count)))
    return parts


def truth_of(document: dict[str, Any]) -> dict[str, float]:
    """The tokens of the answers, and the cost of all calls."""
    answers = [row for row in document["calls"] if row["purpose"] == "generate"]
    tokens = {name: sum(float(row[name]) for row in answers) for name in ("input_tokens", "output_tokens")}
    return {**tokens, "cost_usd": sum(float(row["cost_usd"]) for row in document["calls"])}


def compare(label: str, document: dict[str, Any], truth: dict[str, float]) -> tuple[float, int]:
    """Prints a line for each amount; returns the largest deviation, and the amounts outside of their bounds."""
    worst, outside = 0.0, 0
    for name, real in truth.items():
        low, usual, high = (float(document[name][part]) for part in ("low", "usual", "high"))
        off = usual / real - 1
        worst = max(worst, abs(off))
        within = "within" if low <= real <= high else "outside"
        outside += within == "outside"
        print(f"{label:28} {name:14} {usual:>12,.4g} {real:>12,.4g} {off:>+8.1%}  {within} {low:,.4g} to {high:,.4g}")
    return worst, outside


def main() -> None:
    """Measures every set; fails if one after a trial is off by more than a tenth, or a truth is outside of its bounds."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--questions", type=Path, default=QUESTIONS)
    arguments.add_argument("--trial", type=int, default=100)
    arguments.add_argument("--jobs", type=int, default=1_000)
    options = arguments.parse_args()
    basis = "no calls"
    paths = sorted(options.questions.glob("*.jsonl"))
    if not paths:
        sys.exit(f"no questions in {options.questions}: name the folder with --questions")
    worst, outside = 0.0, 0
    print(f"{'set':28} {'':14} {'estimate':>12} {'truth':>12} {'off':>8}  truth and spread")
    with tempfile.TemporaryDirectory(prefix="nightdesk-bench-") as name, running_stub() as stub, billing():
        folder = Path(name)
        environment = {
            **os.environ,
            "NIGHTDESK_HOME": str(folder / "home"),
            "NIGHTDESK_PROVIDER": "openai",
            "OPENAI_API_KEY": "sk-stub",
            "OPENAI_BASE_URL": f"{stub.url}/v1",
        }
        for path in paths:
            trial, rest = split(path, folder, options.trial, options.jobs)
            before = nightdesk(environment, "estimate", rest)
            tried = nightdesk(environment, "run", trial, "-o", folder / "out.jsonl")
            document = nightdesk(environment, "estimate", rest, "--like", tried["batch_id"])
            done = nightdesk(environment, "run", rest, "-o", folder / "out.jsonl")
            truth = truth_of(nightdesk(environment, "report", done["batch_id"]))
            outside += compare(f"{path.stem}, {basis}", before, truth)[1]
            off, missed = compare(f"{path.stem}, after a trial", document, truth)
            worst, outside, basis = max(worst, off), outside + missed, "newest calls"
    print(f"largest deviation after a trial: {worst:.1%}; at most {BOUND:.0%} is allowed")
    print(f"amounts outside of their bounds: {outside}; none is allowed")
    sys.exit(worst > BOUND or outside > 0)


if __name__ == "__main__":
    main()
