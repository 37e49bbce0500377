"""Redis dies, forgets, freezes, or does not come back."""

from bench.republish import fill
from tests.faults.ground import Account, Ground
from tests.faults.listing import JOBS, experiment


@experiment("Redis killed and restarted with its log")
def redis_restarted(here: Ground) -> Account:
    here.work()
    here.until_answered(10)
    here.crash("valkey")
    here.restart()
    here.mended()
    return here.account(JOBS)


@experiment("Redis killed and restarted without its data")
def redis_without_data(here: Ground) -> Account:
    here.work()
    here.until_answered(20)
    here.crash("valkey")
    for path in here.home.glob("local/data/valkey/appendonlydir/*"):
        path.unlink()
    here.restart()
    here.mended()
    return here.account(JOBS)


@experiment("FLUSHALL in mid-run", quick=True)
def flushed(here: Ground) -> Account:
    here.work()
    here.until_answered(20)
    with here.redis() as client:
        client.flushall()
    here.mended()
    return here.account(JOBS)


OLD_RESULTS = 8_000

MOST_WAIT_S = 10
"""The longest that a due job may wait for its promotion: without other duties meanwhile it is the whole time."""


@experiment("FLUSHALL with thousands of results of the last day")
def flushed_with_many_results(here: Ground) -> Account:
    fill(here.database_url, OLD_RESULTS)
    here.rows_changed("UPDATE job SET state = 'scheduled', scheduled_at = nightdesk_now() WHERE finished_at IS NULL")
    here.rows_changed(
        "UPDATE job SET scheduled_at = nightdesk_now() + interval '60 s' WHERE finished_at IS NULL AND position >= 40"
    )
    workers = [here.work(), here.work()]
    here.until_answered(20)
    with here.redis() as client:
        client.flushall()
        here.until(lambda: here.count("dispatch WHERE republished > 500") == 1, what="a page published again")
        here.rows_changed("UPDATE job SET scheduled_at = nightdesk_now() WHERE state = 'scheduled'")
        here.until(lambda: here.count("job WHERE state = 'scheduled'") == 0, within_s=MOST_WAIT_S, what="promotions")
        assert here.count("dispatch WHERE republish_until IS NULL") == 0, (
            "they were promoted while results were published"
        )
        here.mended()
        here.until(
            lambda: here.count("dispatch WHERE republish_until IS NULL") == 1, within_s=180, what="all published"
        )
        account = here.account(JOBS + OLD_RESULTS)
        there = sum(1 for _ in client.scan_iter("celery-task-meta-*", count=10_000))
    assert there >= JOBS + OLD_RESULTS
    assert all(worker.poll() is None for worker in workers)
    return account


@experiment("Redis away for 30 s")
def redis_away(here: Ground) -> Account:
    here.work()
    here.until_answered(10)
    here.crash("valkey")
    here.pause(30)
    here.restart()
    here.mended()
    return here.account(JOBS)


@experiment("Redis frozen for 20 s, its connections open")
def redis_frozen(here: Ground) -> Account:
    here.work()
    here.until_answered(10)
    thaw = here.freeze("valkey")
    try:
        here.pause(20)
    finally:
        thaw()
    here.mended()
    return here.account(JOBS)


@experiment("Redis gone for good: from PostgreSQL alone")
def redis_gone(here: Ground) -> Account:
    here.work()
    here.until_answered(10)
    here.crash("valkey")
    here.mended()
    return here.account(JOBS, published=False)
