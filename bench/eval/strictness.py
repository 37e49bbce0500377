"""Compares the strictnesses of the check on changed claims, on right claims and on labelled sets: python -m bench.eval.strictness."""

import argparse
import multiprocessing
from collections import defaultdict
from pathlib import Path

from bench.eval import contrast, data
from schemas.generation import Strictness
from schemas.job import GenerationConfig, JobRequest

Case = tuple[str, bool, JobRequest]
"""A group of the table, whether the answer is supported, and the answer."""


def main() -> None:
    """Reads the sets, checks each answer three times, and prints a table in percent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory with labelled sets (*.jsonl)")
    parser.add_argument("--every", type=int, default=1, help="take one row in so many")
    options = parser.parse_args()
    rows = data.read(data.files(options.data))[:: options.every]
    twins = [*contrast.twins_of_rows(rows), *contrast.twins_of_examples()[:: options.every]]
    cases: list[Case] = [("labelled", row.supported, row.request) for row in rows]
    for twin in twins:
        unchanged = twin.kind == contrast.UNCHANGED
        cases.append(("examples" if twin.row is None else "sets", unchanged, twin.request))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for strictness in Strictness:
            supported = pool.map(_supported, [(case[2], strictness) for case in cases], chunksize=50)
            print(strictness.value, _figures(cases, supported), flush=True)


def _supported(work: tuple[JobRequest, Strictness]) -> bool:
    request, strictness = work
    return contrast.supported_now(request.model_copy(update={"config": GenerationConfig(strictness=strictness)}))


def _figures(cases: list[Case], supported: list[bool]) -> str:
    counts: dict[tuple[str, bool], list[bool]] = defaultdict(list)
    for (group, right, _), verdict in zip(cases, supported, strict=True):
        counts[group, right].append(verdict == right)
    shares = {key: 100 * sum(hits) / len(hits) for key, hits in counts.items()}
    parts = [f"labelled balanced accuracy {(shares['labelled', True] + shares['labelled', False]) / 2:.1f}"]
    for group in ("sets", "examples"):
        parts.append(f"{group}: flagged {shares[group, False]:.1f} ({len(counts[group, False])} changed)")
        parts.append(f"{group}: lost {100 - shares[group, True]:.1f} ({len(counts[group, True])} unchanged)")
    return "; ".join(parts)


if __name__ == "__main__":
    main()
