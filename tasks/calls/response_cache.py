"""Decides which calls share their answers: those of tenants who said so, for exactly the same request."""

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from schemas.states import JobState, Step
from tasks.ports import Advance, CacheLookup, Call, Leased, NewAttempt, ShareTerms

EVERYONE = "*"
"""In place of a tenant's name: all of them. Answers are shared within each, never between them."""

MOST_FAILED = 3
"""Identical calls that failed for good or ended unknown, after which nobody waits for a further one: each makes its own."""

FIRST_LOOK = timedelta(milliseconds=500)
"""A call that just began is looked for again after so long, and then after half the time that it has taken by then."""

LONGEST_PAUSE = timedelta(seconds=15)
"""Between two looks for an answer that is under way."""


@dataclass(frozen=True, slots=True)
class SharePolicy:
    """What the settings say of sharing: whose answers, how old they may be, how long one under way is waited for."""

    tenants: frozenset[str] = frozenset()
    within: timedelta = timedelta(days=1)
    wait: timedelta = timedelta(minutes=5)

    def terms(self, job: Leased, call: Call) -> ShareTerms | None:
        """On which terms a job's first call shares its answer; None: it does not.

        A later run takes nothing, for whoever had a job run again wants a new answer; what it gets, others may take. A
        job with priority takes what is stored, and waits for nobody.
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


NOBODY = SharePolicy()
"""The policy where nobody asked for it."""


def share_key(tenant: str, call: Call) -> bytes:
    """SHA-256 over what makes two calls the same: the tenant, whom it goes to and how, and the exact request.

    Each part is preceded by its length, so that no two lists of parts give the same bytes. The job is not among them.
    """
    asked = (call.provider, call.endpoint or "", call.model or "", call.lane, call.protocol.value)
    digest = hashlib.sha256()
    for part in (*(text.encode() for text in (tenant, *asked)), call.request_hash):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def wanted(
    job: Leased, call: Call, attempt: NewAttempt, *, asked_before: tuple[str, ...], timing_ms: dict[str, float]
) -> CacheLookup:
    """What to look for, and what a copy of it is to say of this job.

    Args:
        job: whose answer it would be.
        call: the one that would not be made.
        attempt: what would be recorded instead.
        asked_before: those that did not answer in this turn (``fallback_from``).
        timing_ms: what was measured so far.
    """
    snapshot: dict[str, Any] = {
        "parameters_sent": call.parameters_sent,
        "parameters_dropped": call.parameters_dropped,
        "fallback_from": list(asked_before),
        # As they were at another time.
        "rate_limits": {},
    }
    timing_ms = {**timing_ms, "llm": 0.0, **_waits(job, timing_ms)}
    return CacheLookup(attempt, call.prompt, snapshot, timing_ms, job.request.config.check_step)


def _waits(job: Leased, timing_ms: dict[str, float]) -> dict[str, float]:
    """Where a job's time went before this lease, if it was leased before and only looked then."""
    if job.started_ago_ms <= job.waited_ms:
        return {"share_wait": 0.0}
    shared_ms = job.started_ago_ms - job.waited_ms - timing_ms.get("retry_wait", 0.0)
    before_ms = job.age_ms - job.started_ago_ms
    queue_ms = timing_ms.get("queue", 0.0) + max(0.0, before_ms)
    return {"queue": round(queue_ms, 3), "share_wait": round(max(0.0, shared_ms), 3)}


def look_again(job: Leased, open_for: timedelta, jitter: float) -> Advance:
    """Where a job waits for an identical call that has been under way for so long; no attempt is made, none is spent.

    Args:
        job: as leased.
        open_for: since the call began.
        jitter: random in [0, 1), so that those who wait together don't come back together.
    """
    pause = min(FIRST_LOOK + open_for / 2, LONGEST_PAUSE) * (0.75 + jitter / 2)
    return Advance(JobState.SCHEDULED, Step.GENERATE, job.round, pause)
