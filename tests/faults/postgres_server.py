"""PostgreSQL dies, is away, locks, and tells another time."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.faults.lab import Lab, Report
from tests.faults.registry import JOBS, experiment
from worker import local


@experiment("PostgreSQL killed and restarted")
def postgres_restarted(lab: Lab) -> Report:
    lab.work(lease_s=20)
    lab.until_answered(10)
    lab.crash("postgres")
    lab.restart()
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("PostgreSQL away for 20 s")
def postgres_away(lab: Lab) -> Report:
    lab.work(lease_s=30)
    lab.until_answered(10)
    lab.crash("postgres")
    lab.pause(20)
    lab.restart()
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("PostgreSQL away, and the worker killed with the answers")
def postgres_away_and_worker_killed(lab: Lab) -> Report:
    worker = lab.work(lease_s=30)
    lab.until_calling(10)
    lab.crash("postgres")
    lab.pause(4)
    lab.kill(worker)
    lab.restart()
    lab.start_recovery()
    lab.work(lease_s=30)
    return lab.report(JOBS)


@experiment("the embedded servers killed one after the other, nobody types a command", latency_s=2.0)
def servers_of_the_home_killed(lab: Lab) -> Report:
    # No URL: these workers know that the servers are those of their home.
    home = {"home": lab.home, "database_url": "", "redis_url": "", "lease_s": 20}
    workers = [lab.work(**home), lab.work(**home)]
    lab.until_answered(10)
    lab.crash("postgres")
    lab.until(lambda: local.status(lab.home).running, what="PostgreSQL runs again")
    lab.until_answered(30)
    lab.crash("valkey")
    lab.until(lambda: local.status(lab.home).running, what="Valkey runs again")
    lab.start_recovery()
    report = lab.report(JOBS)
    logs = [lab.log(number) for number in range(len(workers))]
    for title in ("PostgreSQL", "Valkey"):
        notices = sum(log.count(f"{title} of this home had ended, and is started again") for log in logs)
        assert notices == 1, f"{title}: {notices} notices"
    # As 'nightdesk down': what is stopped after the workers stays so.
    lab.crash("postgres")
    for worker in workers:
        worker.terminate()
    for worker in workers:
        worker.wait(90)
    local.stop(lab.home)
    lab.pause(5)
    status = local.status(lab.home)
    assert not status.postgres.running
    assert not status.valkey.running
    return report


@contextmanager
def read_only(lab: Lab) -> Iterator[None]:
    """Let PostgreSQL take no writes on any connection, old or new, as a primary that became a standby."""
    lab.admin("ALTER SYSTEM SET default_transaction_read_only = on")
    lab.admin("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        lab.admin("ALTER SYSTEM RESET default_transaction_read_only")
        lab.admin("SELECT pg_reload_conf()")


def answers_wait(lab: Lab) -> None:
    """Wait for answers that the provider gave and the ledger does not have."""
    lab.until(lambda: sum(lab.stub.answered.values()) > lab.count("completion") + 5, what="answers in memory")


@experiment("PostgreSQL read-only for 5 s, as in a failover", latency_s=2.0)
def window_without_writes(lab: Lab) -> Report:
    lab.work(lease_s=30)
    lab.until_calling(10)
    with read_only(lab):
        answers_wait(lab)
        lab.pause(5)
    lab.start_recovery()
    report = lab.report(JOBS)
    assert (report.calls, report.unknown) == (JOBS, 0), "every answer was kept"
    return report


@experiment("PostgreSQL read-only, a worker stopped within and started after", latency_s=2.0)
def stopped_in_the_window(lab: Lab) -> Report:
    worker = lab.work(lease_s=30, drain_s=4)
    lab.until_calling(10)
    with read_only(lab):
        answers_wait(lab)
        worker.terminate()
        worker.wait(60)
        spooled = sum(len(path.read_bytes().splitlines()) for path in lab.logs.glob("spool/*/*.jsonl"))
        missing = sum(lab.stub.answered.values()) - lab.count("completion")
        assert spooled >= missing > 5, f"{spooled} of {missing} answers are in the spool"
    lab.start_recovery()
    lab.work(lease_s=30)
    report = lab.report(JOBS)
    assert (report.calls, report.unknown) == (JOBS, 0), "every answer was kept"
    assert not list(lab.logs.glob("spool/*/*.jsonl"))
    return report


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
def deadlocks_lost(lab: Lab) -> Report:
    lab.execute(_LOSE)
    lab.work()
    lab.until(lambda: lab.count("completion") > 0, what="an answer")
    lab.start_recovery()
    report = lab.report(JOBS)
    assert (report.calls, report.unknown) == (JOBS, 0), "every answer was kept"
    assert lab.count("job WHERE state <> 'completed'") == 0
    return report


@experiment("all connections to PostgreSQL cut, five times")
def connections_cut(lab: Lab) -> Report:
    lab.work()
    lab.until_answered(5)
    for _ in range(5):
        lab.pause(0.5)
        lab.terminate_connections()
    lab.start_recovery()
    return lab.report(JOBS)


_TOUCH = "UPDATE job SET priority = priority WHERE id = %s"


@experiment("deadlocks and lock waits by other transactions")
def deadlocks(lab: Lab) -> Report:
    stop = threading.Event()
    deadlock_count = [0]
    ids = [job_id for (job_id,) in lab.rows("SELECT id FROM job")]
    locked = threading.Barrier(3)

    def disturb(place: int) -> None:
        chance = random.Random(place)
        with psycopg.connect(lab.database_url) as connection:
            connection.execute(_TOUCH, [ids[place]])
            locked.wait()
            waited = [ids[(place + 1) % 3]]  # the first time, each waits for the next one
            while not stop.is_set():
                try:
                    for job_id in waited or chance.sample(ids, 6):
                        connection.execute(_TOUCH, [job_id])
                    connection.commit()
                except psycopg.errors.DeadlockDetected:
                    deadlock_count[0] += 1
                    connection.rollback()
                waited = []

    disturbers = [threading.Thread(target=disturb, args=[place], daemon=True) for place in range(3)]
    lab.work()
    for other in disturbers:
        other.start()
    try:
        lab.until(
            lambda: (
                deadlock_count[0] > 0
                and (lab.all_final() or lab.count("job WHERE finished_at IS NOT NULL") >= JOBS // 2)
            ),
            what="a deadlock and half of it",
        )
    finally:
        stop.set()
        locked.abort()
        for other in disturbers:
            other.join(30)
    assert deadlock_count[0] > 0, "no deadlock came about"
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("rows of six running jobs locked for three lease times", jobs=40, latency_s=10.0)
def rows_locked(lab: Lab) -> Report:
    lab.work(lease_s=4)
    lab.until_calling(10)
    with psycopg.connect(lab.database_url) as stranger:
        stranger.execute(
            "SELECT FROM job WHERE id IN (SELECT job_id FROM attempt WHERE closed_at IS NULL ORDER BY job_id LIMIT 6) FOR UPDATE"
        )
        lab.pause(12)
    lab.start_recovery()
    report = lab.report(40)
    assert (report.calls, report.unknown) == (40, 0), "a lock costs no other job its lease"
    return report


@experiment("the database's clock jumps an hour on, and back")
def clock_jumps(lab: Lab) -> Report:
    lab.work()
    lab.until_calling(5)
    for jump in ("1 hour", "-1 hour", "0"):
        lab.execute(
            "CREATE OR REPLACE FUNCTION nightdesk_now() RETURNS timestamptz LANGUAGE sql STABLE AS "
            f"'SELECT now() + interval ''{jump}'''"
        )
        lab.pause(1)
    lab.start_recovery()
    return lab.report(JOBS)
