"""The experiments: what is broken, and when. Each returns its account."""

import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.faults.ground import Account, Ground, ground
from tests.stub import faults

JOBS = 80


@dataclass(frozen=True)
class Experiment:
    """One way to break the system."""

    name: str
    run: Callable[[Ground], Account]
    jobs: int
    stub: dict[str, Any]
    quick: bool
    """Whether it belongs to the selection that every change must pass."""

    def __call__(self, folder: Path) -> Account:
        """Do it on fresh ground."""
        with ground(folder, self.jobs, **self.stub) as here:
            return self.run(here)


EXPERIMENTS: list[Experiment] = []


def experiment(
    name: str, *, jobs: int = JOBS, quick: bool = False, **stub: Any
) -> Callable[[Callable[[Ground], Account]], Callable[[Ground], Account]]:
    """Put a function on the list."""

    def listed(run: Callable[[Ground], Account]) -> Callable[[Ground], Account]:
        EXPERIMENTS.append(Experiment(name, run, jobs, stub, quick))
        return run

    return listed


# ---- workers ---------------------------------------------------------------------------------------------------


@experiment("nothing is broken")
def nothing(here: Ground) -> Account:
    here.work()
    here.mended()
    return here.account(JOBS)


@experiment("workers killed at random moments")
def killed_at_random(here: Ground) -> Account:
    chance = random.Random(11)
    here.work("submit")
    for _ in range(4):
        worker = here.work("generate,check")
        here.until_calling(1)
        here.pause(chance.uniform(0.0, 0.8))
        here.kill(worker)
    here.mended()
    here.work()
    return here.account(JOBS)


@experiment("worker told to stop: calls end, the rest goes back")
def told_to_stop(here: Ground) -> Account:
    worker = here.work()
    here.until_calling(5)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
    assert here.count("attempt WHERE spent OR outcome <> 'ok'") == 0, "a stop spends no attempt"
    here.mended()
    here.work()
    return here.account(JOBS)


@experiment("worker killed between the answer and its commit", quick=True)
def killed_before_the_commit(here: Ground) -> Account:
    worker = here.work()
    here.until_calling(10)
    with psycopg.connect(here.database_url) as connection:
        # Answers come, but cannot be written: the worker holds them in memory when it dies.
        connection.execute("LOCK TABLE completion IN EXCLUSIVE MODE")
        here.until(lambda: sum(here.stub.answered.values()) > here.count("completion") + 5, what="answers in memory")
        here.kill(worker)
        # The server would finish what the dead worker had begun to say.
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = current_user"
        )
        connection.rollback()
    here.mended()
    here.work()
    return here.account(JOBS)


@experiment("worker killed between the commit and the next hint")
def killed_after_the_commit(here: Ground) -> Account:
    generating = here.work("generate")
    here.until_answered(30)
    here.kill(generating)
    here.mended()
    here.work()
    return here.account(JOBS)


@experiment("checking worker killed while it checks")
def checker_killed(here: Ground) -> Account:
    here.work("generate,submit")
    here.until_answered(40)
    for _ in range(3):
        checking = here.work("check")
        here.until(
            lambda: here.count("job WHERE step = 'check' AND state = 'running'") > 0 or here.done(), what="a check"
        )
        here.kill(checking)
    here.mended()
    here.work("check")
    return here.account(JOBS)


@experiment("worker frozen for longer than its leases, then thawed", latency_s=1.0)
def frozen(here: Ground) -> Account:
    worker = here.work()
    here.until_calling(10)
    worker.send_signal(signal.SIGSTOP)
    other = here.work()
    here.until(lambda: here.count("job_event WHERE kind = 'rescue'") >= 10, what="rescues")
    worker.send_signal(signal.SIGCONT)
    here.mended()
    account = here.account(JOBS)
    assert other.poll() is None
    return account


@experiment("two workers given the same ids, hints doubled and shuffled", quick=True)
def doubled_hints(here: Ground) -> Account:
    workers = [here.work(), here.work()]
    ids = [str(job_id) for (job_id,) in here.rows("SELECT id FROM job")]
    chance = random.Random(5)
    app = here.celery()
    for _ in range(6):
        chance.shuffle(ids)
        for step in ("check", "generate"):
            for at in range(0, len(ids), 20):
                app.send_task(f"nightdesk.{step}", args=[ids[at : at + 20]], queue=step, ignore_result=True)
    app.close()
    here.mended()
    account = here.account(JOBS)
    assert all(worker.poll() is None for worker in workers)
    return account


# ---- Redis -----------------------------------------------------------------------------------------------------


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


# ---- PostgreSQL ------------------------------------------------------------------------------------------------


@experiment("PostgreSQL killed and restarted")
def postgres_restarted(here: Ground) -> Account:
    here.work(lease_s=20)
    here.until_answered(10)
    here.crash("postgres")
    here.restart()
    here.mended()
    return here.account(JOBS)


@experiment("PostgreSQL away for 20 s")
def postgres_away(here: Ground) -> Account:
    here.work(lease_s=30)
    here.until_answered(10)
    here.crash("postgres")
    here.pause(20)
    here.restart()
    here.mended()
    return here.account(JOBS)


@experiment("PostgreSQL away, and the worker killed with the answers")
def postgres_away_and_worker_killed(here: Ground) -> Account:
    worker = here.work(lease_s=30)
    here.until_calling(10)
    here.crash("postgres")
    here.pause(4)
    here.kill(worker)
    here.restart()
    here.mended()
    here.work(lease_s=30)
    return here.account(JOBS)


@experiment("all connections to PostgreSQL cut, five times")
def connections_cut(here: Ground) -> Account:
    here.work()
    here.until_answered(5)
    for _ in range(5):
        here.pause(0.5)
        here.cut_connections()
    here.mended()
    return here.account(JOBS)


@experiment("deadlocks and lock waits by somebody else's transactions", quick=True)
def deadlocks(here: Ground) -> Account:
    stop = threading.Event()
    met = [0]

    def disturb(seed: int) -> None:
        chance = random.Random(seed)
        ids = [job_id for (job_id,) in here.rows("SELECT id FROM job")]
        with psycopg.connect(here.database_url) as connection:
            while not stop.is_set():
                try:
                    for job_id in chance.sample(ids, 6):
                        connection.execute("UPDATE job SET priority = priority WHERE id = %s", [job_id])
                    connection.commit()
                except psycopg.errors.DeadlockDetected:
                    met[0] += 1
                    connection.rollback()

    others = [threading.Thread(target=disturb, args=[seed], daemon=True) for seed in range(3)]
    here.work()
    for other in others:
        other.start()
    try:
        here.until(
            lambda: here.done() or here.count("job WHERE finished_at IS NOT NULL") >= JOBS // 2, what="half of it"
        )
    finally:
        stop.set()
        for other in others:
            other.join(30)
    assert met[0] > 0, "no deadlock came about"
    here.mended()
    return here.account(JOBS)


@experiment("the database's clock jumps an hour on, and back")
def clock_jumps(here: Ground) -> Account:
    here.work()
    here.until_calling(5)
    for jump in ("1 hour", "-1 hour", "0"):
        here.rows_changed(
            "CREATE OR REPLACE FUNCTION nightdesk_now() RETURNS timestamptz LANGUAGE sql STABLE AS "
            f"'SELECT now() + interval ''{jump}'''"
        )
        here.pause(1)
    here.mended()
    return here.account(JOBS)


# ---- the provider ----------------------------------------------------------------------------------------------


@experiment("a share of 429, 500, 503 and 529", quick=True, error_rates={429: 0.1, 500: 0.05, 503: 0.05, 529: 0.05})
def refusals(here: Ground) -> Account:
    here.work()
    here.mended()
    return here.account(JOBS)


@experiment("connections reset after sending, bodies cut short, pages of HTML")
def broken_answers(here: Ground) -> Account:
    here.stub.then(
        *[faults.reset] * 5, *[faults.truncated] * 5, *[faults.raw(faults.HTML.encode(), "text/html")] * 3,
        *[faults.raw(b'{"id": ')] * 3, faults.status(502, faults.HTML), faults.status(504, faults.HTML),
    )  # fmt: skip
    here.work()
    here.mended()
    return here.account(JOBS)


@experiment("answers that drip, or never end", latency_s=0.2)
def dripping(here: Ground) -> Account:
    here.stub.then(*[faults.drip] * 5, *[faults.slow(30)] * 5)
    here.rows_changed("UPDATE job_request SET request = jsonb_set(request, '{config,timeout_s}', '3')")
    here.work()
    here.mended()
    return here.account(JOBS)
