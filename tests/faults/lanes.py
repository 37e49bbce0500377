"""Jobs of the lane ``auto`` whose provider batch stalls, with the worker killed between its cancel and the move of the calls."""

import os
import time
from datetime import UTC, datetime, timedelta

from tests.acceptance.conftest import questions
from tests.faults.lab import Lab, Report
from tests.faults.provider_batches import QUICKER, SETTINGS
from tests.faults.registry import experiment
from worker.providers.prices import PriceList

JOBS = 400
TIME_LEFT, MARGIN = timedelta(seconds=150), timedelta(seconds=110)
"""Until the deadline, and before it: some 30 s to gather and create the batch, then the rest to move its calls."""


def run(lab: Lab, provider: PriceList, *, kill: bool, jobs: int = JOBS, margin: timedelta = MARGIN) -> Report:
    """Submit jobs with a deadline whose batch never ends; kill the worker that cancels it, and let another one finish."""
    began = time.monotonic()
    remote = lab.stub.remote
    remote.ends_after_s = 10**6
    lanes = {"provider_batch_expect_s": 1, "provider_batch_margin_s": margin.total_seconds()}
    lab.settings |= {**SETTINGS, **QUICKER, **lanes, "provider": provider}
    keys = {"ANTHROPIC_API_KEY": "test-key", "ANTHROPIC_BASE_URL": lab.stub.url}
    os.environ.update(keys)
    try:
        deadline = (datetime.now(UTC) + TIME_LEFT).isoformat()
        lab.submit([{**job, "config": {"lane": "auto"}, "deadline": deadline} for job in questions(jobs)])
        if kill:
            remote.stalls.add("cancel")
        worker = lab.work()
        within_s = TIME_LEFT.total_seconds()
        if kill:
            lab.until(remote.stalled.is_set, within_s=within_s, what="the provider is asked to cancel")
            lab.kill(worker)
            lab.start_recovery()
            lab.work()
        report = lab.assert_settled(lab.report(jobs, within_s=within_s))
    finally:
        for name in keys:
            del os.environ[name]
    check(lab, jobs)
    return report.with_note(f"all in time, each paid once, {time.monotonic() - began:.0f} s in all")


def check(lab: Lab, jobs: int) -> None:
    """Every job was answered before its deadline; what the batch had done was kept, and nothing was paid twice."""
    assert dict(lab.rows("SELECT state, count(*) FROM job GROUP BY 1")) == {"completed": jobs}
    assert lab.count("job WHERE finished_at >= deadline") == 0
    assert sum(lab.stub.billed.values()) == jobs
    assert max(lab.stub.billed.values()) == 1, "an answer was paid for twice"
    answered = dict(lab.rows("SELECT lane, count(*) FROM attempt WHERE outcome = 'ok' GROUP BY 1"))
    assert answered["provider_batch"] > 0, "what the batch had done was not kept"
    assert answered["standard"] > 0
    assert lab.count("provider_batch WHERE ended_at IS NULL") == 0
    assert lab.count("provider_batch WHERE spilled_at IS NULL") == 0
    assert lab.count("provider_batch_call") == 0


@experiment("lane auto at OpenAI, killed between cancel and move", jobs=0)
def openai_amid_move(lab: Lab) -> Report:
    return run(lab, "openai", kill=True)


@experiment("lane auto at Anthropic, killed between cancel and move", jobs=0)
def anthropic_amid_move(lab: Lab) -> Report:
    return run(lab, "anthropic", kill=True)
