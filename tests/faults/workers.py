"""Workers die, freeze, are told twice and lead dispatch two at a time."""

import random
import signal
import subprocess
from collections.abc import Container, Iterator
from contextlib import contextmanager

import psycopg

from tests.faults.ground import Account, Ground
from tests.faults.listing import JOBS, experiment
from tests.stub import faults
from worker.ledger.dispatching import HINT_LOCK, PROMOTE_LOCK
from worker.ledger.rescuing import RESCUE_LOCK
from worker.settings import worker_name


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


@experiment("worker killed with all calls that a limit allows at once", latency_s=0.1)
def killed_with_every_slot(here: Ground) -> Account:
    here.settings = {"max_concurrency": 4}
    here.stub.then(*[faults.slow(90)] * 4)
    worker = here.work()
    here.until_called(4)
    here.work()
    here.kill(worker)
    here.mended()
    # Its calls could go on until they are timed out; what they took of the limit does not.
    here.until(lambda: sum(here.stub.calls.values()) > 4, within_s=40, what="another call")
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
    thaw = here.freeze_worker(worker)
    other = here.work()
    here.until(lambda: here.count("job_event WHERE kind = 'rescue'") >= 10, what="rescues")
    thaw()
    here.mended()
    account = here.account(JOBS)
    assert other.poll() is None
    return account


@experiment("worker frozen until its calls were made again, then thawed", latency_s=1.0)
def frozen_for_longer(here: Ground) -> Account:
    worker = here.work("generate")
    here.until_called(10)
    # The provider goes on: the answers wait in the frozen worker's sockets.
    thaw = here.freeze_worker(worker)
    other = here.work()
    here.until(here.done, what="all jobs done by the other")
    unknown = here.count("attempt WHERE outcome = 'unknown'")
    thaw()
    here.mended()
    here.until(lambda: here.count("attempt WHERE outcome = 'unknown'") < unknown, what="a late answer")
    account = here.account(JOBS)
    assert other.poll() is None
    assert account.late > 0, "what came late is paid for, and said"
    assert here.count("job WHERE run > 1 OR state <> 'completed'") == 0
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


# ---- who does the duties of dispatch -----------------------------------------------------------------------------


@contextmanager
def leader_caught(here: Ground) -> Iterator[subprocess.Popen[bytes]]:
    """Two workers, one of them in the midst of a rescue, with its lock, until the end of the block."""
    dead = here.work()
    here.until_calling(10)
    with psycopg.connect(here.database_url) as connection:
        here.kill(dead)
        # A rescue settles what was reserved with the batch: there it waits.
        connection.execute("UPDATE batch SET paused = paused")
        pair = [here.work(), here.work()]
        port = here.until(lambda: here.waiting_in(RESCUE_LOCK), what="a worker in the midst of a rescue")
        yield next(worker for worker in pair if here.connects_from(worker, port))
        connection.rollback()


@experiment("the worker that rescues killed in the midst of it", latency_s=1.0)
def leader_killed(here: Ground) -> Account:
    with leader_caught(here) as leader:
        here.kill(leader)
    here.mended()
    return here.account(JOBS)


@experiment("the worker that rescues frozen in the midst of it, then thawed", latency_s=1.0)
def leader_frozen(here: Ground) -> Account:
    with leader_caught(here) as leader:
        thaw = here.freeze_worker(leader)
    try:
        here.pause(5)
    finally:
        thaw()
    here.mended()
    return here.account(JOBS)


@experiment("somebody else holds the locks of all duties for 10 s")
def duties_locked(here: Ground) -> Account:
    here.work()
    here.until_calling(5)
    with psycopg.connect(here.database_url) as connection:
        for lock in (PROMOTE_LOCK, RESCUE_LOCK, *HINT_LOCK.values()):
            connection.execute("SELECT pg_advisory_xact_lock(%s::bigint)", [lock])
        here.pause(10)
    here.mended()
    return here.account(JOBS)


@experiment("the worker that leads the duties frozen, the next one killed", quick=True)
def leaders_lost(here: Ground) -> Account:
    here.rows_changed("UPDATE job SET state = 'scheduled', scheduled_at = nightdesk_now() + interval '12 s'")
    workers = {worker_name(worker.pid): worker for worker in (here.work(), here.work(), here.work())}
    thaw = here.freeze_worker(workers.pop(_leader(here, set())))
    try:
        second = _leader(here, here.frozen)
        here.kill(workers.pop(second))
        _leader(here, {*here.frozen, second})
        here.mended()
        # Only a leader promotes.
        here.until(here.done, what="all jobs done")
    finally:
        thaw()
    return here.account(JOBS)


def _leader(here: Ground, others: Container[str]) -> str:
    """The name of the worker that leads, once it is none of the others."""

    def leader() -> str | None:
        rows = here.rows("SELECT leader FROM dispatch WHERE leads_until > nightdesk_now()")
        return rows[0][0] if rows and rows[0][0] not in others else None

    return here.until(leader, what="another leader")


@experiment("three workers lead at once: the locks of the duties let everybody in")
def all_lead(here: Ground) -> Account:
    for kind in ("integer", "bigint"):
        here.rows_changed(
            f"CREATE FUNCTION public.pg_try_advisory_xact_lock({kind}) RETURNS boolean LANGUAGE sql AS 'SELECT true'"
        )
    here.admin("ALTER DATABASE nightdesk SET search_path = public, pg_catalog")
    here.rows_changed(
        "CREATE FUNCTION free_the_lead() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN NEW.leads_until := '-infinity'; RETURN NEW; END $$"
    )
    here.rows_changed("CREATE TRIGGER free BEFORE UPDATE ON dispatch FOR EACH ROW EXECUTE FUNCTION free_the_lead()")
    dead = here.work()
    here.until_calling(10)
    here.kill(dead)
    for _ in range(3):
        here.work(tick_s=0.05)
    here.mended()
    return here.account(JOBS)
