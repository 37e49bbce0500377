"""Tenants behind a limit: each has its share of the calls, one that comes late waits for no night, and jobs wait in place."""

from collections import Counter
from typing import Any

from tests.acceptance.conftest import questions
from tests.faults.lab import Lab, Report
from tests.faults.registry import experiment

TENANTS, JOBS_EACH = 20, 40
COUNTED = 400
"""Calls after which the tenants are compared: 20 each, if all were served alike."""
LEAST, MOST = 15, 25
LATE_WITHIN = 40
"""Calls after the job of a late tenant was accepted, among which it must be."""
MOST_UPDATES = 8.0
"""Of a job, for each of its calls; a night without limits takes some five."""


def _take_turns(lab: Lab, workers: int, *, priority: int = 0, **settings: Any) -> Report:
    jobs = [{**job, "priority": priority} for job in questions(TENANTS * JOBS_EACH + 1)]
    for number in range(TENANTS):
        lab.submit(jobs[number * JOBS_EACH : (number + 1) * JOBS_EACH], tenant=f"tenant {number:02}")
    for _ in range(workers):
        lab.work(**settings)
    lab.until(lambda: lab.count("attempt") >= COUNTED // 2, within_s=180, what="half of the calls")
    before = lab.count("attempt")
    lab.submit(jobs[-1:], tenant="late")
    lab.until(lambda: lab.count("attempt") >= COUNTED, within_s=180, what="the calls that are counted")
    called = [
        tenant
        for (tenant,) in lab.rows(
            "SELECT j.tenant FROM attempt a JOIN job j ON j.id = a.job_id ORDER BY a.opened_at, a.id LIMIT %s", COUNTED
        )
    ]
    lab.start_recovery()
    report = lab.report(TENANTS * JOBS_EACH + 1, within_s=300)
    counts = Counter(called)
    assert called.index("late") <= before + LATE_WITHIN, f"the late job came as call {called.index('late')} of {before}"
    assert counts.pop("late") == 1
    assert len(counts) == TENANTS, f"only {len(counts)} tenants were called"
    assert LEAST <= min(counts.values()) <= max(counts.values()) <= MOST, counts
    updates = lab.scalar("SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'job'") / report.calls
    assert updates <= MOST_UPDATES, f"{updates:.1f} updates of jobs a call"
    late = called.index("late") - before
    return lab.assert_settled(report).with_note(
        f"{min(counts.values())} to {max(counts.values())} calls a tenant, the late one after {late}; {updates:.1f} updates a call"
    )


@experiment("20 tenants behind 4 calls at once, and one that comes late", jobs=0, latency_s=0.1)
def turns_of_slots(lab: Lab) -> Report:
    return _take_turns(lab, 1, max_concurrency=4)


@experiment("20 tenants behind 20 slots without a limit", jobs=0, latency_s=0.1)
def turns_without_limits(lab: Lab) -> Report:
    return _take_turns(lab, 1, slots=20)


@experiment("20 tenants behind 4 calls at once over two workers", jobs=0, latency_s=0.1)
def turns_over_workers(lab: Lab) -> Report:
    return _take_turns(lab, 2, max_concurrency=4)


@experiment("20 tenants with urgent jobs behind a limit of calls a minute", jobs=0, latency_s=0.1)
def turns_of_urgent_jobs(lab: Lab) -> Report:
    # 400 jobs wait for the limit in the worker: the renewals of their leases, which grow with time, are not counted.
    return _take_turns(lab, 1, priority=1, requests_per_minute=900, slots=400, lease_s=300)


@experiment(
    "20 tenants behind the limit that the provider's answers name", jobs=0, latency_s=0.1, requests_per_minute=900
)
def turns_of_learned_limits(lab: Lab) -> Report:
    return _take_turns(lab, 1)


@experiment(
    "20 tenants behind 4 calls at once, while answers name a far higher limit",
    jobs=0,
    latency_s=0.1,
    requests_per_minute=100_000,
)
def turns_of_two_limits(lab: Lab) -> Report:
    return _take_turns(lab, 1, max_concurrency=4, slots=400)
