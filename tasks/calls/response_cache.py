"""Decides which calls share their answers: those of tenants with sharing switched on, for exactly the same request."""

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from schemas.states import JobState, Step
from tasks.ports import Advance, CacheLookup, Call, Leased, NewAttempt, ShareTerms

EVERYONE = "*"
"""In place of a tenant's name: all of them. Answers are shared within each, never between them."""

MOST_FAILED = 3
"""Identical calls that failed for good or ended unknown, after which no job waits for a further one: each makes its own."""

FIRST_LOOK = timedelta(milliseconds=500)
"""A call that just began is looked for again after so long, and then after half the time that it has taken by then."""

LONGEST_PAUSE = timedelta(seconds=15)
"""Between two looks for an answer that is under way."""


@dataclass(frozen=True, slots=True)
class SharePolicy:
    """The settings of sharing: the tenants, the greatest age of an answer, the wait for a call under way."""

    tenants: frozenset[str] = frozenset()
    within: timedelta = timedelta(days=1)
    wait: timedelta = timedelta(minutes=5)

    def terms(self, job: Leased, call: Call) -> ShareTerms | None:
        """The terms on which a job's first call shares its answer; None: it does not.

        A later run takes no stored answer, for a repeated job is to have a new one; other jobs may take its answer. A job
        with priority takes a stored answer, and waits for no call.
        """
        if not self.tenants & {job.tenant, EVERYONE}:
            return None
        if call.stream or job.round or not job.request.config.share:
            return None
        again = job.run > 1
        return ShareTerms(
            key=share_key(job.tenant, call),
            within=timedelta(0) if again else self.within,
            wait=timedelta(0) if again or job.priority > 0 else self.wait,
        )


NO_SHARING = SharePolicy()
"""The default policy: no tenant shares."""


def share_key(tenant: str, call: Call) -> bytes:
    """SHA-256 over everything that makes two calls the same: the tenant, the provider and lane, and the exact request.

    Each part is preceded by its length, so that no two lists of parts give the same bytes. The job is not among them.
    """
    texts = (tenant, call.provider, call.endpoint or "", call.model or "", call.lane, call.protocol.value)
    digest = hashlib.sha256()
    for part in (*(text.encode() for text in texts), call.request_hash):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def cache_lookup(
    job: Leased, call: Call, attempt: NewAttempt, *, fallback_from: tuple[str, ...], timing_ms: dict[str, float]
) -> CacheLookup:
    """The search for a stored answer, with the fields of a copy that belong to this job.

    Args:
        job: the job in search of an answer.
        call: the call that a stored answer would save.
        attempt: its attempt, which the ledger writes with a copy.
        fallback_from: the providers without an answer before this one.
        timing_ms: the measurements so far.
    """
    snapshot: dict[str, Any] = {
        "parameters_sent": call.parameters_sent,
        "parameters_dropped": call.parameters_dropped,
        "fallback_from": list(fallback_from),
        # As they were at another time.
        "rate_limits": {},
    }
    timing_ms = {**timing_ms, "llm": 0.0, **_waits(job, timing_ms)}
    return CacheLookup(attempt, call.prompt, snapshot, timing_ms, job.request.config.check_step)


def _waits(job: Leased, timing_ms: dict[str, float]) -> dict[str, float]:
    """The waiting times of a job that was leased before and only looked for an answer then."""
    if job.started_ago_ms <= job.waited_ms:
        return {"share_wait": 0.0}
    shared_ms = job.started_ago_ms - job.waited_ms - timing_ms.get("retry_wait", 0.0)
    before_ms = job.age_ms - job.started_ago_ms
    queue_ms = timing_ms.get("queue", 0.0) + max(0.0, before_ms)
    return {"queue": round(queue_ms, 3), "share_wait": round(max(0.0, shared_ms), 3)}


def wait_for_duplicate(job: Leased, open_for: timedelta, jitter: float) -> Advance:
    """Sends a job away until an identical call may be answered; no attempt is made, none is spent.

    Args:
        job: the job as leased.
        open_for: time since the identical call began.
        jitter: random in [0, 1), so that jobs that wait together don't come back together.
    """
    pause = min(FIRST_LOOK + open_for / 2, LONGEST_PAUSE) * (0.75 + jitter / 2)
    return Advance(JobState.SCHEDULED, Step.GENERATE, job.round, pause)
