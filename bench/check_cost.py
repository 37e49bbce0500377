"""Measures the CPU of the check of one answer: python -m bench.check_cost [--against TREE] [--rounds N].

Each tree has a process of its own, and they take turns job by job, so that a busy machine slows all of them alike. All
caches are emptied before each job. A figure is the mean over the jobs of the best of a few rounds.

new sources    the check alone, of 8 claims: it reads 8 sources of 2.5 KB itself
one source     the same sources as one of 20 KB
postprocess    the step before the check, which locates the citations in 8 sources of 2.5 KB
after it       the check after that step, as in a job: the sources are read already
both           these two, an answer's whole way

The forms of words and numbers are known from earlier answers, as in a worker that ran for a while.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.eval.timing import answers, one_source
from schemas.job import JobRequest

REPOSITORY = Path(__file__).parents[1]
JOBS = 40
ROUNDS = 5
PARTS = ("new sources", "one source", "postprocess", "after it", "both")

# Run in the directory of a tree, older ones too: it needs nothing of this file.
PROCESS = """
import functools, gc, json, sys, time
sys.path.insert(0, ".")
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground
from tasks.text import source_index
try:
    from tasks.text.source_index import shared_indexes
except ImportError:
    from tasks.text.evidence import shared_indexes

def empty():
    source_index.forget()
    for cache in caches:
        cache.cache_clear()

def milliseconds(work):
    started = time.process_time_ns()
    result = work()
    return result, (time.process_time_ns() - started) / 1e6

wrapper = functools._lru_cache_wrapper
caches = [
    cache
    for cache in gc.get_objects()
    if isinstance(cache, wrapper)
    and (cache.__module__ or "").startswith("tasks")
    and cache.cache_parameters()["maxsize"] not in (None, 1)
]
for line in sys.stdin:
    several, one = (JobRequest.model_validate(job) for job in json.loads(line))
    spent = []
    for job in (several, one):
        processed = postprocess(job, None, None)
        empty()
        with shared_indexes():
            spent.append(milliseconds(lambda: ground(job, processed))[1])
    empty()
    with shared_indexes():
        processed, took = milliseconds(lambda: postprocess(several, None, None))
        checked = milliseconds(lambda: ground(several, processed))[1]
        spent += [took, checked, took + checked]
    print(json.dumps(spent), flush=True)
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.check_cost", description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, action="append", default=[], help="another checkout of the project")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    trees = [REPOSITORY, *(tree.resolve() for tree in options.against)]
    jobs = [(job, one_source(job)) for job in answers()[:JOBS]]
    figures = measure(trees, jobs, options.rounds)
    names = ["this tree", *(tree.name for tree in trees[1:])]
    print("ms of CPU a job   " + "".join(f"{name:>20}" for name in names))
    for position, part in enumerate(PARTS):
        here = figures[0][position]
        cells = [f"{here:20.2f}", *(f"{row[position]:13.2f} ({here / row[position]:.2f})" for row in figures[1:])]
        print(f"{part:18}" + "".join(cells))
    if len(trees) > 1:
        print("in brackets: this tree as a share of the other one")
    return 0


def measure(trees: Sequence[Path], jobs: Sequence[tuple[JobRequest, JobRequest]], rounds: int) -> list[list[float]]:
    """The milliseconds of each part by each tree."""
    lines = [json.dumps([job.model_dump(mode="json", exclude_unset=True) for job in pair]) for pair in jobs]
    best = [[[float("inf")] * len(PARTS) for _ in jobs] for _ in trees]
    with ExitStack() as stack:
        processes = [stack.enter_context(_process(tree)) for tree in trees]
        # The first round warms up what each process makes once.
        for turn in range(rounds + 1):
            for number, line in enumerate(lines):
                for step in range(len(trees)):
                    tree = (step + turn + number) % len(trees)
                    spent = _exchange(processes[tree], line)
                    if turn:
                        best[tree][number] = list(map(min, best[tree][number], spent))
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
    return [[sum(part) / len(jobs) for part in zip(*of_tree, strict=True)] for of_tree in best]


def _process(tree: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROCESS]
    return subprocess.Popen(command, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _exchange(process: subprocess.Popen[str], line: str) -> list[float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    reply = process.stdout.readline()
    if not reply:
        raise SystemExit("a tree's process ended; its error stands above")
    spent: list[float] = json.loads(reply)
    return spent


if __name__ == "__main__":
    sys.exit(main())
