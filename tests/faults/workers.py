"""Workers die, freeze, are told twice and lead dispatch two at a time."""

import random
import signal
import subprocess
from collections.abc import Container, Iterator
from contextlib import contextmanager

import psycopg

from tests.faults.lab import Lab, Report
from tests.faults.registry import JOBS, experiment
from tests.stub import faults
from worker.ledger.duties import PROMOTE_LOCK
from worker.ledger.rescuing import RESCUE_LOCK
from worker.settings import worker_name


@experiment("nothing is broken")
def nothing(lab: Lab) -> Report:
    lab.work()
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("workers killed at random moments")
def killed_at_random(lab: Lab) -> Report:
    chance = random.Random(11)
    lab.work("submit")
    for _ in range(4):
        worker = lab.work("generate,check")
        lab.until_calling(1)
        lab.pause(chance.uniform(0.0, 0.8))
        lab.kill(worker)
    lab.start_recovery()
    lab.work()
    return lab.report(JOBS)


@experiment("worker killed with all calls that a limit allows at once", latency_s=0.1)
def killed_with_every_slot(lab: Lab) -> Report:
    lab.settings = {"max_concurrency": 4}
    lab.stub.then(*[faults.slow(90)] * 4)
    worker = lab.work()
    lab.until_called(4)
    lab.work()
    lab.kill(worker)
    lab.start_recovery()
    # Its calls could go on until they are timed out; what they took of the limit does not.
    lab.until(lambda: sum(lab.stub.calls.values()) > 4, within_s=40, what="another call")
    return lab.report(JOBS)


@experiment("worker stopped: calls end, the rest goes back")
def told_to_stop(lab: Lab) -> Report:
    worker = lab.work()
    lab.until_calling(5)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
    assert lab.count("attempt WHERE spent OR outcome <> 'ok'") == 0, "a stop spends no attempt"
    lab.start_recovery()
    lab.work()
    return lab.report(JOBS)


@experiment("worker killed between the answer and its commit", quick=True)
def killed_before_the_commit(lab: Lab) -> Report:
    worker = lab.work()
    lab.until_calling(10)
    with psycopg.connect(lab.database_url) as connection:
        # Answers come, but cannot be written: the worker holds them in memory when it dies.
        connection.execute("LOCK TABLE completion IN EXCLUSIVE MODE")
        lab.until(lambda: sum(lab.stub.answered.values()) > lab.count("completion") + 5, what="answers in memory")
        lab.kill(worker)
        # The server would finish what the dead worker had begun to say.
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = current_user"
        )
        connection.rollback()
    lab.start_recovery()
    lab.work()
    return lab.report(JOBS)


@experiment("worker killed between the commit and the next hint")
def killed_after_the_commit(lab: Lab) -> Report:
    generating = lab.work("generate")
    lab.until_answered(30)
    lab.kill(generating)
    lab.start_recovery()
    lab.work()
    return lab.report(JOBS)


@experiment("checking worker killed while it checks")
def checker_killed(lab: Lab) -> Report:
    lab.work("generate,submit")
    lab.until_answered(40)
    for _ in range(3):
        checking = lab.work("check")
        lab.until(
            lambda: lab.count("job WHERE step = 'check' AND state = 'running'") > 0 or lab.all_final(), what="a check"
        )
        lab.kill(checking)
    lab.start_recovery()
    lab.work("check")
    return lab.report(JOBS)


@contextmanager
def answers_caught_in_check(lab: Lab) -> Iterator[None]:
    """Some answers are stored and in their check; no final can be written in the block."""
    with psycopg.connect(lab.database_url) as connection:
        connection.execute("LOCK TABLE generation_record IN EXCLUSIVE MODE")
        lab.until(lambda: lab.count("job WHERE step = 'check' AND state = 'running'") >= 5, what="answers in check")
        yield
        # The server would finish what a dead worker had begun to say.
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = current_user"
        )
        connection.rollback()


@experiment("worker killed between a stored answer and the end of its check")
def killed_in_its_own_check(lab: Lab) -> Report:
    worker = lab.work()
    with answers_caught_in_check(lab):
        lab.kill(worker)
    stored = lab.count("completion")
    lab.start_recovery()
    lab.work()
    report = lab.report(JOBS)
    assert stored >= 5
    assert lab.count("(SELECT FROM attempt WHERE outcome = 'ok' GROUP BY job_id HAVING count(*) > 1) a") == 0
    return report


@experiment("worker frozen in its checks until others did them, then resumed", latency_s=0.2)
def frozen_in_its_own_check(lab: Lab) -> Report:
    worker = lab.work()
    with answers_caught_in_check(lab):
        thaw = lab.freeze_worker(worker)
    lab.work()
    lab.until(lambda: lab.count("job_event WHERE kind = 'rescue'") >= 5, what="rescues")
    lab.until(lab.all_final, what="all jobs done by the other")
    thaw()
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("worker frozen for longer than its leases, then resumed", latency_s=1.0)
def frozen(lab: Lab) -> Report:
    worker = lab.work()
    lab.until_calling(10)
    thaw = lab.freeze_worker(worker)
    other = lab.work()
    lab.until(lambda: lab.count("job_event WHERE kind = 'rescue'") >= 10, what="rescues")
    thaw()
    lab.start_recovery()
    report = lab.report(JOBS)
    assert other.poll() is None
    return report


@experiment("worker frozen until its calls were made again, then resumed", latency_s=1.0)
def frozen_for_longer(lab: Lab) -> Report:
    worker = lab.work("generate")
    lab.until_called(10)
    # The provider goes on: the answers wait in the frozen worker's sockets.
    thaw = lab.freeze_worker(worker)
    other = lab.work()
    lab.until(lab.all_final, what="all jobs done by the other")
    unknown = lab.count("attempt WHERE outcome = 'unknown'")
    thaw()
    lab.start_recovery()
    lab.until(lambda: lab.count("attempt WHERE outcome = 'unknown'") < unknown, what="a late answer")
    report = lab.report(JOBS)
    assert other.poll() is None
    assert report.late > 0, "what came late is paid for, and said"
    assert lab.count("job WHERE run > 1 OR state <> 'completed'") == 0
    return report


@experiment("two workers given each hint often, and of no job")
def doubled_hints(lab: Lab) -> Report:
    workers = [lab.work(), lab.work()]
    with lab.celery() as app:
        for number in range(100):
            for step in ("check", "generate"):
                app.send_task(f"nightdesk.{step}", args=[number % 2 == 0], queue=step, ignore_result=True)
    lab.start_recovery()
    report = lab.report(JOBS)
    assert all(worker.poll() is None for worker in workers)
    return report


# ---- the leader of the duties of dispatch -----------------------------------------------------------------------------


@contextmanager
def leader_caught(lab: Lab) -> Iterator[subprocess.Popen[bytes]]:
    """Two workers, one of them in the midst of a rescue, with its lock, until the end of the block."""
    dead = lab.work()
    lab.until_calling(10)
    with psycopg.connect(lab.database_url) as connection:
        lab.kill(dead)
        # A rescue settles what was reserved with the batch: there it waits.
        connection.execute("UPDATE batch SET paused = paused")
        pair = [lab.work(), lab.work()]
        port = lab.until(lambda: lab.blocked_client_port(RESCUE_LOCK), what="a worker in the midst of a rescue")
        yield next(worker for worker in pair if lab.owns_port(worker, port))
        connection.rollback()


@experiment("the rescuing worker killed during the rescue", latency_s=1.0)
def leader_killed(lab: Lab) -> Report:
    with leader_caught(lab) as leader:
        lab.kill(leader)
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("the rescuing worker frozen during the rescue, then resumed", latency_s=1.0)
def leader_frozen(lab: Lab) -> Report:
    with leader_caught(lab) as leader:
        thaw = lab.freeze_worker(leader)
    try:
        lab.pause(5)
    finally:
        thaw()
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("another session holds the locks of all duties for 10 s")
def duties_locked(lab: Lab) -> Report:
    lab.work()
    lab.until_calling(5)
    with psycopg.connect(lab.database_url) as connection:
        for lock in (PROMOTE_LOCK, RESCUE_LOCK):
            connection.execute("SELECT pg_advisory_xact_lock(%s::bigint)", [lock])
        lab.pause(10)
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("the worker that leads the duties frozen, the next one killed")
def leaders_lost(lab: Lab) -> Report:
    lab.execute("UPDATE job SET state = 'scheduled', scheduled_at = nightdesk_now() + interval '12 s'")
    workers = {worker_name(worker.pid): worker for worker in (lab.work(), lab.work(), lab.work())}
    thaw = lab.freeze_worker(workers.pop(_leader(lab, set())))
    try:
        second = _leader(lab, lab.frozen)
        lab.kill(workers.pop(second))
        _leader(lab, {*lab.frozen, second})
        lab.start_recovery()
        # Only a leader promotes.
        lab.until(lab.all_final, what="all jobs done")
    finally:
        thaw()
    return lab.report(JOBS)


def _leader(lab: Lab, previous_leaders: Container[str]) -> str:
    """The name of the worker that leads, once it is none of the others."""

    def leader() -> str | None:
        rows = lab.rows("SELECT leader FROM dispatch WHERE leads_until > nightdesk_now()")
        return rows[0][0] if rows and rows[0][0] not in previous_leaders else None

    return lab.until(leader, what="another leader")


@experiment("three workers lead at once, without the locks of the duties")
def all_lead(lab: Lab) -> Report:
    for kind in ("integer", "bigint"):
        lab.execute(
            f"CREATE FUNCTION public.pg_try_advisory_xact_lock({kind}) RETURNS boolean LANGUAGE sql AS 'SELECT true'"
        )
    lab.admin("ALTER DATABASE nightdesk SET search_path = public, pg_catalog")
    lab.execute(
        "CREATE FUNCTION free_the_lead() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN NEW.leads_until := '-infinity'; RETURN NEW; END $$"
    )
    lab.execute("CREATE TRIGGER free BEFORE UPDATE ON dispatch FOR EACH ROW EXECUTE FUNCTION free_the_lead()")
    dead = lab.work()
    lab.until_calling(10)
    lab.kill(dead)
    for _ in range(3):
        lab.work(tick_s=0.05)
    lab.start_recovery()
    return lab.report(JOBS)
