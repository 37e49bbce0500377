"""Deadlines, cancels and retries that meet calls under way, and producers that say everything twice."""

from decimal import Decimal

from tests.acceptance.conftest import questions
from tests.faults.ground import Account, Ground
from tests.faults.listing import JOBS, experiment


@experiment("the deadline passes during the calls", latency_s=3.0)
def deadline_in_flight(here: Ground) -> Account:
    here.work()
    here.until_calling(10)
    here.rows_changed("UPDATE job SET deadline = nightdesk_now() + interval '1 second' WHERE state = 'running'")
    here.mended()
    account = here.account(JOBS)
    assert here.count("job WHERE state = 'expired'") >= 10
    return here.settled(account)


@experiment("one job and then its whole batch cancelled during the calls", latency_s=2.0)
def cancelled_in_flight(here: Ground) -> Account:
    here.work()
    here.until_calling(10)
    (batch_id, one), *_ = here.rows("SELECT batch_id, id FROM job WHERE state = 'running' LIMIT 1")
    assert here.ask(lambda ledger: ledger.cancel([one], "ada")) == [one]
    here.pause(1)
    here.ask(lambda ledger: ledger.cancel_batch(batch_id, "ada"))
    here.mended()
    account = here.account(JOBS)
    assert here.count("job WHERE state = 'cancelled'") >= 10
    return here.settled(account)


@experiment("run again by a person while the late answer arrives", quick=True, latency_s=2.0)
def retried_while_late(here: Ground) -> Account:
    worker = here.work()
    here.until_calling(10)
    thaw = here.freeze_worker(worker)
    try:
        ids = [job_id for (job_id,) in here.rows("SELECT id FROM job WHERE state = 'running'")]
        assert len(here.ask(lambda ledger: ledger.cancel(ids, "ada"))) == len(ids)
        assert len(here.ask(lambda ledger: ledger.retry(ids, "ada"))) == len(ids)
        here.work()
        here.until(lambda: here.count("attempt WHERE run = 2") >= len(ids) // 2, what="second runs under way")
        # The answers of the first run are in the frozen worker's sockets by now.
        here.pause(2)
    finally:
        thaw()
    here.mended()
    account = here.account(JOBS)
    assert here.count("generation_record WHERE run = 2") == len(ids)
    assert here.one("SELECT max(n) FROM (SELECT count(*) AS n FROM completion WHERE won GROUP BY job_id, run) c") == 1
    return here.settled(account)


@experiment("a producer submits the same batch five times while workers run", quick=True, jobs=0)
def submitted_again(here: Ground) -> Account:
    here.work()
    for _ in range(5):
        here.submit(questions(JOBS), key="the-same")
    here.mended()
    assert here.count("batch") == 1
    return here.account(JOBS)


@experiment("the same requests ten times, shared, and a worker killed in the calls", jobs=0, latency_s=1.0)
def shared_and_killed(here: Ground) -> Account:
    distinct, often = 20, 10
    same = questions(distinct)
    here.submit([{**job, "custom_id": f"{job['custom_id']}-{turn}"} for turn in range(often) for job in same])
    here.settings["share_answers"] = '["*"]'
    workers = [here.work(), here.work()]
    here.until_calling(5)
    for worker in workers:
        here.kill(worker)
    here.mended()
    here.work()
    here.work()
    account = here.settled(here.account(distinct * often))
    assert distinct <= account.calls <= distinct + account.unknown, "each request is paid for once, or its call unknown"
    assert here.count("attempt WHERE shared_from IS NOT NULL") == distinct * (often - 1)
    return account


@experiment("a budget used up in mid-run, and raised", jobs=0, latency_s=0.3)
def budget_used_up(here: Ground) -> Account:
    jobs, paid = 240, 80
    here.submit(questions(1))
    here.work()
    here.until(here.done, what="the price of a job")
    ceiling = Decimal(here.one("SELECT max(cost_usd) FROM attempt")) * paid
    batch_id, _ = here.submit(questions(jobs + 1)[1:], max_cost_usd=ceiling.quantize(Decimal("0.000001")))
    here.until(
        lambda: here.count("job WHERE held_reason IS DISTINCT FROM 'budget' AND finished_at IS NULL") == 0,
        within_s=120,
        what="a settled budget",
    )
    last = "SELECT extract(epoch FROM now() - max(opened_at)) FROM attempt"
    assert here.one(last) < 15, "a used-up budget is settled soon after its last call"
    # The worst case of a call is several times its cost, so the last few jobs wait for what the others give back.
    assert here.count("job WHERE finished_at IS NOT NULL") > paid * 0.8
    assert here.one("SELECT spent_usd + reserved_usd <= max_cost_usd FROM batch WHERE id = %s", batch_id)
    here.mended()
    here.ask(lambda ledger: ledger.set_budget(batch_id, None, "ada"))
    return here.settled(here.account(jobs + 1))
