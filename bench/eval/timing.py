"""CPU of the check for one answer: 8 claims against 8 sources of 2.5 KB, as bench/throughput.py makes them."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground
from tasks.text import evidence
from tasks.text.sentences import sentence_spans

sys.path.append(str(Path(__file__).parents[1]))
from throughput import requests

ANSWERS = 200
CLAIMS = 8
REPEATS = 5


@dataclass(frozen=True)
class Timed:
    """Milliseconds of CPU an answer: with sources that are new, and with sources that came before."""

    fresh_ms: float
    known_ms: float

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


def measure() -> Timed:
    """The best of a few runs, as the machine is shared."""
    ready = [(job, postprocess(job, None, None)) for job in answers()]
    fresh = cached = float("inf")
    for _ in range(REPEATS):
        fresh = min(fresh, _run(ready, forget=True))
        cached = min(cached, _run(ready[:50], forget=False))
    return Timed(fresh, cached)


def _run(ready: list, *, forget: bool) -> float:  # type: ignore[type-arg]
    spent = 0.0
    if not forget:
        for job, processed in ready:
            ground(job, processed)
    for job, processed in ready:
        if forget:
            evidence.forget()
        started = time.process_time()
        ground(job, processed)
        spent += time.process_time() - started
    return spent / len(ready) * 1000
