"""Big jobs, jobs that kill their worker and checks without end: one job must not take the process of many."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import psutil

from tests.faults.ground import Account, Ground
from tests.faults.listing import experiment

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
def peak_memory(here: Ground) -> Iterator[list[float]]:
    """Watch the workers' memory until the end of the block; the list then holds the largest resident size, in MB."""
    largest = [0.0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.1):
            for worker in here.workers:
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
def big_jobs(here: Ground) -> Account:
    for number, job in enumerate(big_questions(BIG_JOBS, sources=8, characters=500_000)):
        here.submit([job], key=f"big{number}")
    with peak_memory(here) as largest:
        here.mended()
        here.work()
        account = here.account(BIG_JOBS, within_s=600)
    assert largest[0] < MOST_RSS_MB, f"the worker took {largest[0]:.0f} MB"
    return account.noting(f"the worker took {largest[0]:.0f} MB")
