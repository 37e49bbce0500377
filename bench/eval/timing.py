"""CPU of the check for one answer: 8 claims against 8 sources of 2.5 KB, as bench/throughput.py makes them."""

import gc
import re
import sys
import time
from dataclasses import dataclass
from functools import _lru_cache_wrapper, cache
from pathlib import Path
from typing import Any

from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground
from tasks.text import source_index
from tasks.text.sentences import sentence_spans

sys.path.append(str(Path(__file__).parents[1]))
from throughput import requests

ANSWERS = 200
CLAIMS = 8
REPEATS = 5


@dataclass(frozen=True)
class Timed:
    """Milliseconds of CPU an answer, with sources that are new and with sources that came before.

    ``postprocess_ms`` is the step before the check, with new sources.
    """

    fresh_ms: float
    known_ms: float
    postprocess_ms: float

    @property
    def claim_ms(self) -> float:
        """The share of one claim."""
        return self.fresh_ms / CLAIMS


def answers() -> list[JobRequest]:
    """Check-only jobs whose 8 claims are sentences of their sources, some with a word or number changed."""
    jobs = []
    for number, job in enumerate(requests(ANSWERS)):
        context = [f"{text} Report {number} ends." for text in job["context"]]  # type: ignore[attr-defined]
        claims = []
        for position in range(CLAIMS):
            text = context[position]
            spans = [span for span in sentence_spans(text) if 40 <= span.end - span.start <= 200]
            start, end = spans[number % len(spans)] if spans else (0, 120)
            claim = " ".join(text[start:end].split()).rstrip(".") + f" [{position + 1}]."
            claims.append(claim.replace(" the ", " some ").replace("2", "3") if position % 3 == 2 else claim)
        jobs.append(JobRequest(query=str(job["query"]), response=" ".join(claims), context=context))
    return jobs


def one_source(job: JobRequest) -> JobRequest:
    """The job with all its sources in one."""
    assert job.response is not None
    content = "\n\n".join(source.content for source in job.context)
    return JobRequest(query=job.query, response=re.sub(r"\[\d\]", "[1]", job.response), context=[content])


def measure() -> Timed:
    """The best of a few runs, as the machine is shared."""
    jobs = answers()
    runs = [_run(jobs, new=True) for _ in range(REPEATS)]
    again = [_run(jobs[:50], new=False)[1] for _ in range(REPEATS)]
    return Timed(min(check for _, check in runs), min(again), min(step for step, _ in runs))


def _run(jobs: list[JobRequest], *, new: bool) -> tuple[float, float]:
    """Milliseconds an answer of the step before the check, and of the check."""
    before = check = 0.0
    if not new:
        for job in jobs:
            ground(job, postprocess(job, None, None))
    for job in jobs:
        if new:
            empty_caches()
        started = time.process_time()
        processed = postprocess(job, None, None)
        before += time.process_time() - started
        if new:
            empty_caches()
        started = time.process_time()
        ground(job, processed)
        check += time.process_time() - started
    return before / len(jobs) * 1000, check / len(jobs) * 1000


def empty_caches() -> None:
    """Empties all caches of texts; those of word tables stay, as in a worker that ran for a while."""
    source_index.forget()
    for wrapper in _caches():
        wrapper.cache_clear()


@cache
def _caches() -> "list[_lru_cache_wrapper[Any]]":
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, _lru_cache_wrapper)
        and (each.__module__ or "").startswith("tasks.")
        and each.cache_parameters()["maxsize"] not in {None, 1}
    ]
