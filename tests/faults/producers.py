"""Deadlines, cancels and retries that meet calls under way, and producers that say everything twice or whose receivers are silent."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from uuid import UUID

from tasks.submit import new_batch, submit
from tests.acceptance.conftest import questions
from tests.faults.lab import Lab, Report
from tests.faults.registry import JOBS, experiment
from worker.ledger.postgres import PostgresLedger


@experiment("the deadline passes during the calls", latency_s=3.0)
def deadline_in_flight(lab: Lab) -> Report:
    lab.work()
    lab.until_calling(10)
    lab.execute("UPDATE job SET deadline = nightdesk_now() + interval '1 second' WHERE state = 'running'")
    lab.start_recovery()
    report = lab.report(JOBS)
    assert lab.count("job WHERE state = 'expired'") >= 10
    return lab.assert_settled(report)


@experiment("one job and then its whole batch cancelled during the calls", latency_s=2.0)
def cancelled_in_flight(lab: Lab) -> Report:
    lab.work()
    lab.until_calling(10)
    (batch_id, job_id), *_ = lab.rows("SELECT batch_id, id FROM job WHERE state = 'running' LIMIT 1")
    assert lab.with_ledger(lambda ledger: ledger.actions.cancel([job_id], "ada")) == [job_id]
    lab.pause(1)
    lab.with_ledger(lambda ledger: ledger.actions.cancel_batch(batch_id, "ada"))
    lab.start_recovery()
    report = lab.report(JOBS)
    assert lab.count("job WHERE state = 'cancelled'") >= 10
    return lab.assert_settled(report)


@experiment("run again by a person while the late answer arrives", latency_s=2.0)
def retried_while_late(lab: Lab) -> Report:
    worker = lab.work()
    lab.until_calling(10)
    thaw = lab.freeze_worker(worker)
    try:
        running = [job_id for (job_id,) in lab.rows("SELECT id FROM job WHERE state = 'running'")]
        ids = lab.with_ledger(lambda ledger: ledger.actions.cancel(running, "ada"))
        # A statement that the worker sent before it froze may have made one of them final.
        assert ids
        assert lab.scalar("SELECT count(*) FROM job WHERE state = 'running' AND id = ANY(%s)", running) == 0
        assert len(lab.with_ledger(lambda ledger: ledger.actions.retry(ids, "ada"))) == len(ids)
        lab.work()
        lab.until(lambda: lab.count("attempt WHERE run = 2") >= len(ids) // 2, what="second runs under way")
        # The answers of the first run are in the frozen worker's sockets by now.
        lab.pause(2)
    finally:
        thaw()
    lab.start_recovery()
    report = lab.report(JOBS)
    assert lab.count("generation_record WHERE run = 2") == len(ids)
    assert lab.scalar("SELECT max(n) FROM (SELECT count(*) AS n FROM completion WHERE won GROUP BY job_id, run) c") == 1
    return lab.assert_settled(report)


@experiment("a producer submits the same batch five times while workers run", jobs=0)
def submitted_again(lab: Lab) -> Report:
    lab.work()
    for _ in range(5):
        lab.submit(questions(JOBS), key="the-same")
    lab.start_recovery()
    assert lab.count("batch") == 1
    return lab.report(JOBS)


@experiment("the same requests ten times, shared, and a worker killed in the calls", jobs=0, latency_s=1.0)
def shared_and_killed(lab: Lab) -> Report:
    distinct, often = 20, 10
    same = questions(distinct)
    lab.submit([{**job, "custom_id": f"{job['custom_id']}-{turn}"} for turn in range(often) for job in same])
    lab.settings["share_answers"] = '["*"]'
    workers = [lab.work(), lab.work()]
    lab.until_calling(5)
    for worker in workers:
        lab.kill(worker)
    lab.start_recovery()
    lab.work()
    lab.work()
    report = lab.assert_settled(lab.report(distinct * often))
    assert distinct <= report.calls <= distinct + report.unknown, "each request is paid for once, or its call unknown"
    assert lab.count("attempt WHERE shared_from IS NOT NULL") == distinct * (often - 1)
    return report


@experiment("a budget used up in mid-run, and raised", jobs=0, latency_s=0.3)
def budget_used_up(lab: Lab) -> Report:
    jobs, paid = 240, 80
    lab.submit(questions(1))
    lab.work()
    lab.until(lab.all_final, what="the price of a job")
    ceiling = Decimal(lab.scalar("SELECT max(cost_usd) FROM attempt")) * paid
    batch_id, _ = lab.submit(questions(jobs + 1)[1:], max_cost_usd=ceiling.quantize(Decimal("0.000001")))
    lab.until(
        lambda: lab.count("job WHERE held_reason IS DISTINCT FROM 'budget' AND finished_at IS NULL") == 0,
        within_s=120,
        what="a settled budget",
    )
    last = "SELECT extract(epoch FROM now() - max(opened_at)) FROM attempt"
    assert lab.scalar(last) < 15, "a used-up budget is settled soon after its last call"
    # The worst case of a call is several times its cost, so the last few jobs wait for what the others give back.
    assert lab.count("job WHERE finished_at IS NOT NULL") > paid * 0.8
    assert lab.scalar("SELECT spent_usd + reserved_usd <= max_cost_usd FROM batch WHERE id = %s", batch_id)
    lab.start_recovery()
    lab.with_ledger(lambda ledger: ledger.actions.set_budget(batch_id, None, "ada"))
    return lab.assert_settled(lab.report(jobs + 1))


@contextmanager
def receivers() -> Iterator[tuple[str, str, Event]]:
    """Addresses of a receiver of callbacks that is silent and of one that answers, and what its first request sets."""
    came = Event()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.set()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    with socket.create_server(("127.0.0.1", 0), backlog=1_000) as silent, server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{silent.getsockname()[1]}/", f"http://127.0.0.1:{server.server_port}/", came
        finally:
            server.shutdown()


@experiment("60 callbacks to a silent receiver and 600 open batches before one", jobs=0)
def callbacks_before_one(lab: Lab) -> Report:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    with receivers() as (silent, url, came):
        lab.execute(
            "WITH b AS (INSERT INTO batch (id, tenant) SELECT gen_random_uuid(), 'silent' FROM generate_series(1, 60) RETURNING id)"
            f" INSERT INTO callback (batch_id, url) SELECT id, '{silent}' FROM b"
        )

        async def submit_open(ledger: PostgresLedger) -> list[UUID]:
            fields = {"callback_url": silent, "not_before": tomorrow}
            batches = [new_batch(fields, tenant="default") for _ in range(600)]
            for batch in batches:
                await submit(ledger.submission, questions(1), batch=batch)
            return [batch.id for batch in batches]

        still_open = lab.with_ledger(submit_open)
        lab.settings |= {
            "callback_private": "true",
            "callback_secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw0Yh5zv3kRWs=",
        }
        lab.work()
        lab.until(lambda: lab.count("callback WHERE next_at > now() + interval '1 minute'") > 0, what="tries under way")
        batch_id, _ = lab.submit(questions(JOBS + 1)[1:], tenant="another", callback_url=url)
        lab.until(lambda: lab.count(f"job WHERE batch_id = '{batch_id}' AND finished_at IS NULL") == 0, what="its end")
        began = time.monotonic()
        lab.until(came.is_set, within_s=120, what="the callback of the other tenant")
        told_s = time.monotonic() - began
        waiting = [job_id for (job_id,) in lab.rows("SELECT id FROM job WHERE batch_id = ANY(%s)", still_open)]
        lab.with_ledger(lambda ledger: ledger.actions.cancel(waiting, "ada"))
    lab.start_recovery()
    report = lab.assert_settled(lab.report(JOBS + len(still_open)))
    assert told_s < 10, f"told {told_s:.1f} s after its last job"
    return report.with_note(f"told {told_s:.1f} s after its last job")
