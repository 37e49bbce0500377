"""Redis dies, forgets, freezes, or does not come back."""

from bench.republish import fill
from tests.faults.lab import Lab, Report
from tests.faults.registry import JOBS, experiment


@experiment("Redis killed and restarted with its log")
def redis_restarted(lab: Lab) -> Report:
    lab.work()
    lab.until_answered(10)
    lab.crash("valkey")
    lab.restart()
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("Redis killed and restarted without its data")
def redis_without_data(lab: Lab) -> Report:
    lab.work()
    lab.until_answered(20)
    lab.crash("valkey")
    for path in lab.home.glob("local/data/valkey/appendonlydir/*"):
        path.unlink()
    lab.restart()
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("FLUSHALL in mid-run")
def flushed(lab: Lab) -> Report:
    lab.work()
    lab.until_answered(20)
    with lab.redis() as client:
        client.flushall()
    lab.start_recovery()
    return lab.report(JOBS)


OLD_RESULTS = 8_000

MOST_WAIT_S = 10
"""The longest that a due job may wait for its promotion: without other duties meanwhile it is the whole time."""


@experiment("FLUSHALL with thousands of results of the last day")
def flushed_with_many_results(lab: Lab) -> Report:
    fill(lab.database_url, OLD_RESULTS)
    lab.execute("UPDATE job SET state = 'scheduled', scheduled_at = nightdesk_now() WHERE finished_at IS NULL")
    lab.execute(
        "UPDATE job SET scheduled_at = nightdesk_now() + interval '60 s' WHERE finished_at IS NULL AND position >= 40"
    )
    workers = [lab.work(), lab.work()]
    lab.until_answered(20)
    with lab.redis() as client:
        client.flushall()
        lab.until(lambda: lab.count("dispatch WHERE republished > 500") == 1, what="a page published again")
        lab.execute("UPDATE job SET scheduled_at = nightdesk_now() WHERE state = 'scheduled'")
        lab.until(lambda: lab.count("job WHERE state = 'scheduled'") == 0, within_s=MOST_WAIT_S, what="promotions")
        assert lab.count("dispatch WHERE republish_until IS NULL") == 0, (
            "they were promoted while results were published"
        )
        lab.start_recovery()
        lab.until(lambda: lab.count("dispatch WHERE republish_until IS NULL") == 1, within_s=180, what="all published")
        report = lab.report(JOBS + OLD_RESULTS)
        there = sum(1 for _ in client.scan_iter("celery-task-meta-*", count=10_000))
    assert there >= JOBS + OLD_RESULTS
    assert all(worker.poll() is None for worker in workers)
    return report


@experiment("Redis away for 30 s")
def redis_away(lab: Lab) -> Report:
    lab.work()
    lab.until_answered(10)
    lab.crash("valkey")
    lab.pause(30)
    lab.restart()
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("Redis frozen for 20 s, its connections open")
def redis_frozen(lab: Lab) -> Report:
    lab.work()
    lab.until_answered(10)
    thaw = lab.freeze("valkey")
    try:
        lab.pause(20)
    finally:
        thaw()
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("Redis gone for good: from PostgreSQL alone")
def redis_gone(lab: Lab) -> Report:
    lab.work()
    lab.until_answered(10)
    lab.crash("valkey")
    lab.start_recovery()
    return lab.report(JOBS, published=False)
