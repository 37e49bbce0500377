"""Big jobs, jobs that kill their worker and checks without end: one job must not take the process of many."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import psutil

from tests.acceptance.conftest import questions
from tests.deadlines import scale_to_load
from tests.faults.lab import Lab, Report
from tests.faults.poison import POISON
from tests.faults.registry import JOBS, experiment

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
    # Fewer are not enough for those that are leased beside it.
    lab.settings["max_rescues"] = 5
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

LONG_CHECKS = 3


@experiment("checks without end, and small ones behind them")
def endless_checks(lab: Lab) -> Report:
    texts = [long_text(number, 400_000) for number in range(8)]
    sentences = [sentence for text in texts for sentence in text.split(". ")[:40]]
    # In another order: what stands in a source word for word is found at once, without reading the rest of it.
    claims = [" ".join(reversed(sentence.rstrip(".").split())) for sentence in sentences]
    answer = " ".join(f"{claim} [{at // 40 + 1}]." for at, claim in enumerate(claims))[:60_000]
    for number in range(LONG_CHECKS):
        lab.submit([{"context": texts, "response": answer, "priority": 5}], key=f"long{number}")
    lab.work(check_timeout_s=0.5)
    lab.start_recovery()
    report = lab.report(LONG_CHECKS + JOBS, within_s=240)
    unchecked = lab.count("job WHERE outcome = 'partial' AND priority = 5")
    assert unchecked == LONG_CHECKS, f"{unchecked} of {LONG_CHECKS} ended as partial"
    return report


WITHIN_S = 3.0
"""Seconds that the checks of another tenant may take beside endless ones."""

_OPEN = "SELECT count(*) FROM job WHERE id = ANY(%s) AND finished_at IS NULL"

DANGEROUS = {"checkers": json.dumps({"dangerous": "tests.plugins:DangerousChecker"})}


def stored_answer(text: str) -> dict[str, Any]:
    """A job that only checks an answer, by the dangerous checker, too."""
    checkers = ["structure", "lexical", "dangerous"]
    return {"context": ["The fee is 5,000 euros."] * 3, "response": text, "config": {"checkers": checkers}}


@experiment("endless checks of one tenant beside those of another", jobs=0)
def endless_checks_of_a_tenant(lab: Lab) -> Report:
    attack = [stored_answer("The fee is endless."), stored_answer("€5 " * 20_000)]
    workers = [lab.work("check", **DANGEROUS) for _ in range(2)]
    slowest, rounds = 0.0, 8
    for number in range(rounds + 1):
        # The first ones wait for the workers to start.
        if number:
            lab.submit(attack, tenant="attacker", key=f"attack{number}")
        _, other_ids = lab.submit([stored_answer("The fee is 5,000 euros.")] * 4, tenant="other", key=f"other{number}")
        began = time.monotonic()
        lab.until(lambda ids=other_ids: lab.scalar(_OPEN, ids) == 0, what="checks of the other tenant")
        slowest = max(slowest, time.monotonic() - began) if number else 0.0
    lab.start_recovery()
    report = lab.report(6 * rounds + 4)
    unchecked = lab.count("job WHERE tenant = 'attacker' AND outcome = 'partial'")
    assert unchecked >= rounds, f"{unchecked} of {rounds} endless checks ended unchecked"
    assert lab.count("job WHERE tenant = 'other' AND outcome <> 'answered'") == 0
    assert lab.count("job_event WHERE kind = 'rescue'") == 0
    assert slowest < scale_to_load(WITHIN_S), f"checks of the other tenant took {slowest:.1f} s"
    for worker in workers:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(scale_to_load(30)) == 0
    return report.with_note(f"checks of the other tenant took {slowest:.1f} s at most")


@experiment("processes of checks killed amid their work", jobs=400)
def processes_of_checks_killed(lab: Lab) -> Report:
    worker = lab.work()
    for done in (100, 200, 300):
        lab.until(lambda least=done: lab.count("job WHERE finished_at IS NOT NULL") >= least, what=f"{done} checks")
        # One at a time: a check that two processes die of counts as their cause. Their fork server has children.
        processes = psutil.Process(worker.pid).children(recursive=True)
        next(process for process in reversed(processes) if process.is_running()).kill()
    lab.start_recovery()
    report = lab.assert_settled(lab.report(400))
    assert lab.count("job_event WHERE kind = 'rescue'") == 0
    assert lab.count("generation_record WHERE position('died' in grounding::text) > 0") == 0, "each has a second try"
    return report


# ---- rows that can't be read -----------------------------------------------------------------------------------

MANY_ROWS, DAMAGED = 120, 8

# Two kinds of damage: bytes that are no frame, and a frame that is cut.
_DAMAGE = f"""
UPDATE job_request r SET frame = CASE WHEN j.position % 2 = 0 THEN '\\xdeadbeefdeadbeef' ELSE substr(r.frame, 1, 60) END
FROM job j WHERE j.id = r.job_id AND j.position % 15 = 7 AND j.position < {15 * DAMAGED}
"""


@experiment("the rows of 8 of 120 jobs are damaged", jobs=0)
def damaged_rows(lab: Lab) -> Report:
    jobs = questions(MANY_ROWS)
    for job in jobs:
        job["context"].append({"content": "Beside the point. " * 200})
    lab.submit(jobs)
    lab.execute(_DAMAGE)
    for _ in range(2):
        lab.work()
    lab.start_recovery()
    report = lab.assert_settled(lab.report(MANY_ROWS))
    kinds = dict(lab.rows("SELECT failure_kind, count(*) FROM job WHERE state <> 'completed' GROUP BY 1"))
    assert kinds == {"unreadable": DAMAGED}, kinds
    rescues = lab.count("job_event WHERE kind = 'rescue'")
    assert rescues == 0, f"{rescues} rescues"
    return report
