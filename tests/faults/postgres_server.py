"""PostgreSQL dies, is away, locks, and tells another time."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.faults.ground import Account, Ground
from tests.faults.listing import JOBS, experiment


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


@contextmanager
def read_only(here: Ground) -> Iterator[None]:
    """Let PostgreSQL take no writes on any connection, old or new, as a primary that became a standby."""
    here.admin("ALTER SYSTEM SET default_transaction_read_only = on")
    here.admin("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        here.admin("ALTER SYSTEM RESET default_transaction_read_only")
        here.admin("SELECT pg_reload_conf()")


def answers_wait(here: Ground) -> None:
    """Wait for answers that the provider gave and the ledger does not have."""
    here.until(lambda: sum(here.stub.answered.values()) > here.count("completion") + 5, what="answers in memory")


@experiment("PostgreSQL read-only for 10 s, as in a failover", quick=True, latency_s=2.0)
def window_without_writes(here: Ground) -> Account:
    here.work(lease_s=30)
    here.until_calling(10)
    with read_only(here):
        answers_wait(here)
        here.pause(10)
    here.mended()
    account = here.account(JOBS)
    assert (account.calls, account.unknown) == (JOBS, 0), "every answer was kept"
    return account


@experiment("PostgreSQL read-only, a worker stopped within and started after", latency_s=2.0)
def stopped_in_the_window(here: Ground) -> Account:
    worker = here.work(lease_s=30, drain_s=4)
    here.until_calling(10)
    with read_only(here):
        answers_wait(here)
        worker.terminate()
        worker.wait(60)
        spooled = sum(len(path.read_bytes().splitlines()) for path in here.logs.glob("spool/*/*.jsonl"))
        missing = sum(here.stub.answered.values()) - here.count("completion")
        assert spooled >= missing > 5, f"{spooled} of {missing} answers are in the spool"
    here.mended()
    here.work(lease_s=30)
    account = here.account(JOBS)
    assert (account.calls, account.unknown) == (JOBS, 0), "every answer was kept"
    assert not list(here.logs.glob("spool/*/*.jsonl"))
    return account


_LOSE = """
CREATE SEQUENCE losses;
GRANT USAGE ON SEQUENCE losses TO PUBLIC;
CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('losses') <= 40 THEN RAISE deadlock_detected; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER lose BEFORE INSERT ON completion FOR EACH ROW EXECUTE FUNCTION lose()
"""


@experiment("deadlocks lost forty times in a row while answers are written")
def deadlocks_lost(here: Ground) -> Account:
    here.rows_changed(_LOSE)
    here.work()
    here.until(lambda: here.count("completion") > 0, what="an answer")
    here.mended()
    account = here.account(JOBS)
    assert (account.calls, account.unknown) == (JOBS, 0), "every answer was kept"
    assert here.count("job WHERE state <> 'completed'") == 0
    return account


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
