"""Redis dies, forgets, freezes, refuses, or does not come back."""

from collections.abc import Callable
from urllib.parse import urlsplit

import redis

from bench.republish import fill
from tests.faults.lab import Lab, Report
from tests.faults.proxy import running_proxy
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
    lab.cut_redis()
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


def _refused(lab: Lab, refuse: Callable[[], None], serve: Callable[[], None], refusal: str) -> Report:
    """Lets Redis refuse for 10 s: all connections are made anew in this time, and a worker starts in it."""
    workers = [lab.work()]
    lab.until_answered(10)
    refuse()
    workers.append(lab.work())
    lab.until(lambda: all(refusal in lab.log(number) for number in (0, 1)), what="a refusal in each log")
    lab.pause(10)
    serve()
    lab.start_recovery()
    report = lab.report(JOBS)
    with lab.celery() as producer:
        # Both listen again: messages are taken.
        (node, other) = lab.until(lambda: _two(producer.control.ping(limit=2, timeout=5)), what="both workers answer")
        assert node.keys() != other.keys()
        ids = producer.send_task("nightdesk.poll", args=[[]], queue="submit").get(timeout=60)
    assert ids == []
    assert [worker.poll() for worker in workers] == [None, None]
    return report


def _two(replies: list[dict[str, object]] | None) -> list[dict[str, object]] | None:
    return replies if replies is not None and len(replies) == 2 else None


@experiment("Redis is a read-only replica for 10 s")
def redis_read_only(lab: Lab) -> Report:
    def demote() -> None:
        with lab.redis() as client:
            # As one that was not promoted yet: its own primary is gone.
            client.replicaof("127.0.0.1", 1)
        lab.cut_redis()

    def promote() -> None:
        with lab.redis() as client:
            client.replicaof("NO", "ONE")

    return _refused(lab, demote, promote, "read only replica")


@experiment("Redis has no memory left when workers connect")
def redis_without_memory(lab: Lab) -> Report:
    with lab.redis() as client:
        limit = client.config_get("maxmemory")["maxmemory"]

    def fill_up() -> None:
        with lab.redis() as client:
            client.config_set("maxmemory", 1)
        lab.cut_redis()

    def empty() -> None:
        with lab.redis() as client:
            client.config_set("maxmemory", limit)

    return _refused(lab, fill_up, empty, "maxmemory")


@experiment("Redis's password and rights change for some seconds")
def redis_rights(lab: Lab) -> Report:
    password = str(urlsplit(lab.redis_url).password)
    with lab.redis() as client:
        client.acl_setuser(
            "operator", enabled=True, passwords=["+operator"], keys=["*"], channels=["*"], categories=["+@all"]
        )
    operator = redis.Redis.from_url(lab.redis_url.replace(f":{password}@", "operator:operator@"))

    def rotate() -> None:
        operator.execute_command("ACL", "SETUSER", "default", "resetpass", ">another")
        lab.cut_redis(operator)

    def rotate_back() -> None:
        operator.execute_command("ACL", "SETUSER", "default", "resetpass", f">{password}", "-sadd")
        lab.cut_redis(operator)
        lab.until(lambda: "sadd" in lab.log(0), what="a refused command")
        operator.execute_command("ACL", "SETUSER", "default", "+@all")

    with operator:
        return _refused(lab, rotate, rotate_back, "invalid username-password pair")


@experiment("Redis loads its data for 10 s")
def redis_loading(lab: Lab) -> Report:
    with running_proxy(lab.redis_url) as proxy:
        lab.settings["redis_url"] = proxy.url
        refusal = "LOADING Redis is loading the dataset in memory"
        return _refused(lab, lambda: proxy.refuse(refusal), proxy.serve_again, "loading the dataset")
