"""Checks the progress of the jobs: stuck, held, money, invariants, paused lanes and lowered limits."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote
from uuid import UUID

import redis
from redis.exceptions import RedisError

from schemas.states import HeldReason
from worker.doctor.consumers import count
from worker.doctor.environment import REDIS_ANSWER_S
from worker.doctor.finding import Finding, note, problem, warning
from worker.ledger.fleet import LaneNotice
from worker.ledger.inspection import BILLED_WITHIN, OPENED_WITHIN, LedgerHealth
from worker.ledger.invariants import Violation
from worker.ledger.remote_overview import RemoteNotice
from worker.limits.bucket import grown
from worker.limits.rates import PERIOD_S
from worker.operations.counts import count_of
from worker.operations.overview import RELEASES

LOWERED = 0.9
"""Share of a limit; a finding tells of a lower one."""

BATCHES_NAMED = 3


def check_moving(health: LedgerHealth) -> Iterator[Finding]:
    """Findings about jobs that the dispatch duties of any worker should have moved within seconds."""
    if health.stuck:
        yield problem(
            "stuck_leases",
            f"{count(health.stuck, 'job runs on a lease', 'jobs run on leases')} that ran out more than two lease times ago; no worker rescues them",
            "start a worker: it rescues them once it has reached the ledger for one lease time",
        )
    if health.overdue:
        yield problem(
            "overdue",
            f"{count(health.overdue, 'scheduled job was', 'scheduled jobs were')} due more than a minute ago; no worker promotes them",
            "start a worker, of any queue; if some run, look for 'dispatch waits' or 'broke' in their logs",
        )
    if health.quarantined:
        first = health.quarantined[0]
        yield problem(
            "quarantine",
            f"{count(len(health.quarantined), 'job')} can't be changed by what the workers do in turn, the first of them job "
            f"{first.job_id} ({first.duty}: {first.reason})",
            "fix the cause that the reason and PostgreSQL's log name (a damaged row, or a trigger of yours); workers try again within "
            "an hour",
        )
    if health.unreadable:
        yield warning(
            "unreadable",
            f"{count(len(health.unreadable), 'job')} of the last {BILLED_WITHIN.days} days failed because what the ledger holds of them "
            f"can't be read, the first of them job {health.unreadable[0]}",
            "'nightdesk show JOB' says why; look at the server's log and disk, restore the rows from a backup and retry these jobs, or "
            "submit them again",
        )
    if health.unpublished:
        yield warning(
            "unpublished",
            f"the results of {count(health.unpublished, 'final job')} are not in Redis after more than a minute",
            "start a worker and check that it reaches Redis; 'nightdesk results' reads them from the ledger meanwhile",
        )


def check_held(health: LedgerHealth) -> Iterator[Finding]:
    """Jobs that wait for a person, a finding for each reason."""
    batches: dict[HeldReason, dict[UUID, int]] = defaultdict(dict)
    for group in health.holds:
        batches[group.reason][group.batch_id] = group.jobs
    for reason, jobs in batches.items():
        why, remedy = RELEASES[reason]
        named = ", ".join(map(str, list(jobs)[:BATCHES_NAMED])) + (" and others" if len(jobs) > BATCHES_NAMED else "")
        yield warning(
            f"held_{reason.value}",
            f"{count_of(sum(jobs.values()), 'job is', 'jobs are')} held: {why} (batch {named})",
            remedy.format(batch=next(iter(jobs)) if len(jobs) == 1 else "BATCH"),
        )


def check_money(health: LedgerHealth) -> Iterator[Finding]:
    """Calls that may have cost money without leading anywhere."""
    if health.billed_twice:
        yield note(
            "billed_twice",
            f"possibly billed twice: {count(health.billed_twice, 'call')} of the last {BILLED_WITHIN.days} days "
            "made again because their outcome was unknown then",
            "nothing; their cost is counted, at the worst case while unknown. NIGHTDESK_HOLD_UNKNOWN=true holds such jobs instead",
        )
    if health.left_open:
        hours = int(OPENED_WITHIN.total_seconds() // 3600)
        yield warning(
            "attempts_left_open",
            f"{count(health.left_open, 'call')} of the last {hours} hours never closed though their jobs are final: "
            "the worker died before it wrote down what became of them",
            "compare with the provider's bill; what they reserved stays reserved in their batch's budget",
        )


def check_invariants(violations: Sequence[Violation]) -> Iterator[Finding]:
    """A finding for each invariant of the ledger that does not hold."""
    for violation in violations:
        more = ", ..." if violation.count > len(violation.samples) else ""
        yield problem(
            f"invariant_{violation.name}",
            f"broken invariant: {violation.holds}: {violation.count:,} times ({', '.join(violation.samples)}{more})",
            "unless rows were changed by hand this is a defect of Nightdesk: keep a backup as it is, and report it with what "
            "'nightdesk show JOB' says of one of them",
        )


@dataclass(frozen=True, slots=True)
class BucketState:
    """The state of the calls of one provider and model, from its shared bucket in Redis."""

    provider: str
    model: str
    breaker_open: bool
    paused_s: float
    """The provider asked to be left alone for so long."""
    factor: float
    """Share of its limit that is in effect after refusals."""


def bucket_states(redis_url: str, key_prefix: str) -> list[BucketState]:
    """The states of all providers and models that were called lately; none when Redis does not answer."""
    try:
        with redis.Redis.from_url(
            redis_url, socket_timeout=REDIS_ANSWER_S, socket_connect_timeout=REDIS_ANSWER_S
        ) as client:
            seconds, microseconds = client.time()
            now = seconds + microseconds / 1_000_000
            keys = client.scan_iter(match=f"{key_prefix}nightdesk:limit:*}}", count=1_000)
            states = [_bucket_state(key, client.hgetall(key), now) for key in keys]
    except (RedisError, OSError):
        # That Redis can't be asked is a finding of its own.
        return []
    return sorted(states, key=lambda state: (state.provider, state.model))


def _bucket_state(key: bytes, stored: dict[bytes, bytes], now: float) -> BucketState:
    provider, _, model = key.decode().rpartition("{")[2].rstrip("}").partition("/")

    def number(name: str, default: float) -> float:
        return float(stored.get(name.encode(), default))

    factor = number("factor", 1.0)
    return BucketState(
        unquote(provider),
        unquote(model),
        breaker_open=number("trips", 0.0) > 0,
        paused_s=max(0.0, number("paused", 0.0) - now),
        factor=min(1.0, grown(factor, number("before", factor), (now - number("cut_at", 0.0)) / PERIOD_S)),
    )


def check_buckets(buckets: Sequence[BucketState]) -> Iterator[Finding]:
    """Findings about providers that are not called at their full rate."""
    for bucket in buckets:
        whom = f"{bucket.provider} {bucket.model}".strip()
        if bucket.breaker_open:
            yield warning(
                "breaker",
                f"{whom} failed many times in a row; until it answers it gets one call at a time",
                "nothing if the provider is down: it goes on by itself; else see the failures with 'nightdesk show JOB'",
            )
        if bucket.paused_s:
            yield note(
                "limit_paused",
                f"{whom} asked for a pause; it is called again in {bucket.paused_s:.0f} s",
                "nothing; if it happens often, lower the limits in NIGHTDESK_PROVIDERS to those of your account",
            )
        if bucket.factor < LOWERED:
            yield note(
                "limit_lowered",
                f"{whom} refused calls for their rate: {bucket.factor:.0%} of its limit is used now, and the share grows again",
                "set its limits in NIGHTDESK_PROVIDERS to those of your account",
            )


def check_remote(notices: Sequence[RemoteNotice]) -> Iterator[Finding]:
    """Findings about provider batches that should have ended, or be created or cancelled by now."""
    for notice in notices:
        if notice.trouble is not None:
            yield warning(
                "provider_batch_unreadable",
                notice.event,
                "look at the batch and its files at the provider, and at the key's rights; what can be read is stored, and after "
                "an hour (a day of outages) the other calls end as unknown",
            )
        elif notice.late:
            yield warning(
                "provider_batch_late",
                notice.event,
                "see the batch at the provider and the log of the workers with the queue 'generate' ('provider batch'); "
                "cancel it there: its calls are made again, those that it finished are kept",
            )


def check_lanes(lanes: Sequence[LaneNotice]) -> Iterator[Finding]:
    """Findings about paused lanes and unreachable providers."""
    for notice in lanes:
        if notice.paused:
            release = "then 'nightdesk release BATCH --reason lane_paused' for any batch held"
            yield warning("lane_paused", notice.event, f"{notice.remedy}, {release}")
        else:
            yield warning(
                "unreachable",
                notice.event,
                f"{notice.remedy}; {notice.consequence}",
            )
