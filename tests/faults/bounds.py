"""Big jobs, jobs that kill their worker and checks without end: one job must not take the process of many."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import psutil

from tests.acceptance.conftest import questions
from tests.faults.lab import Lab, Report
from tests.faults.poison import POISON
from tests.faults.registry import experiment

BIG_JOBS = 120
MOST_RSS_MB = 700

_SYLLABLES = "ba ce di fo gu la me ni po ru sa te vi xo zu bre dro kla mur sten".split()


def long_text(seed: int, characters: int) -> str:
    """Sentences of made-up words: as many different words as a real text of that length has."""
    chance = Random(seed)
    vocabulary = ["".join(chance.choices(_SYLLABLES, k=chance.randint(1, 4))) for _ in range(20_000)]
    sentences: list[str] = []
    length = 0
    while length < characters:
        words = chance.choices(vocabulary, k=chance.randint(6, 24))
        sentences.append(" ".join(words).capitalize() + ".")
        length += len(sentences[-1]) + 1
    return " ".join(sentences)[:characters]


def big_questions(count: int, sources: int, characters: int) -> Iterator[dict[str, Any]]:
    """Questions whose first source begins with the answer, and is followed by much that is beside the point."""
    texts = [long_text(number, characters) for number in range(sources)]
    for number in range(count):
        opening = f"Desk number {number} opens at {number % 12 + 1} in the morning. "
        yield {
            "query": f"When does desk number {number} open?",
            "context": [opening + texts[0], *(f"Part {number}. {text}" for text in texts[1:])],
            "custom_id": f"big{number}",
        }


@contextmanager
def peak_memory(lab: Lab) -> Iterator[list[float]]:
    """Watch the workers' memory until the end of the block; the list then holds the largest resident size, in MB."""
    largest = [0.0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            for worker in lab.workers:
                try:
                    largest[0] = max(largest[0], psutil.Process(worker.pid).memory_info().rss / 1e6)
                except psutil.Error:
                    continue

    watcher = threading.Thread(target=watch, name="memory", daemon=True)
    watcher.start()
    try:
        yield largest
    finally:
        ended.set()
        watcher.join()


@experiment("120 jobs with 4 MB of sources each", jobs=0)
def big_jobs(lab: Lab) -> Report:
    for number, job in enumerate(big_questions(BIG_JOBS, sources=8, characters=500_000)):
        lab.submit([job], key=f"big{number}")
    with peak_memory(lab) as largest:
        lab.start_recovery()
        lab.work()
        report = lab.report(BIG_JOBS, within_s=600)
    assert largest[0] < MOST_RSS_MB, f"the worker took {largest[0]:.0f} MB"
    return report.with_note(f"the worker took {largest[0]:.0f} MB")


# ---- jobs that end their worker --------------------------------------------------------------------------------

BESIDE = 40


def with_a_poisoned_job(lab: Lab, place: str) -> Report:
    """Run jobs of which one ends its worker in some place, start a new worker after each, and count."""
    lab.program = ("-m", "tests.faults.poison", place)
    lab.settings["max_rescues"] = 3
    jobs = questions(BESIDE + 1)
    jobs[BESIDE // 2]["query"] += f" {POISON}"
    lab.submit(jobs)
    lab.start_recovery()
    ended = 0
    worker = lab.work()

    def all_jobs_final() -> bool:
        nonlocal worker, ended
        if worker.poll() is not None:
            ended += 1
            worker = lab.work()
        return lab.all_final()

    lab.until(all_jobs_final, within_s=300, what="an end of all jobs, the poisoned one too")
    report = lab.assert_settled(lab.report(BESIDE + 1))
    assert lab.count("job WHERE state <> 'completed'") == (1 if place == "prompt" else 0)
    return report.with_note(f"it ended {ended} workers")


@experiment("a job that kills its worker before its first attempt, each time", jobs=0)
def poisoned_prompt(lab: Lab) -> Report:
    report = with_a_poisoned_job(lab, "prompt")
    failed = lab.scalar("SELECT failure ->> 'kind' FROM generation_record WHERE status = 'failed'")
    assert failed == "worker_lost", failed
    return report


@experiment("a job that kills its worker in its check, each time", jobs=0)
def poisoned_check(lab: Lab) -> Report:
    report = with_a_poisoned_job(lab, "check")
    assert lab.count("job WHERE outcome = 'partial'") == 1, "its answer was paid for"
    return report


# ---- checks without end ----------------------------------------------------------------------------------------


# ---- rows that can't be read -----------------------------------------------------------------------------------

MANY_ROWS, DAMAGED = 120, 8
