"""Judges in provider batches, with workers killed between intent, creation and remote id, and amid the collection."""

import os
import time
from collections import Counter
from decimal import Decimal

from schemas.model_call import Usage
from tests.acceptance.conftest import questions
from tests.faults.lab import Lab, Report
from tests.faults.provider_batches import SETTINGS, VENDORS
from tests.faults.registry import experiment
from tests.stored_records import claims_of
from tests.stub.judge import JUDGE
from worker.providers.prices import PriceList, Prices

JOBS = 1_000
WITHIN_S = 300
SHARES = {"standard": Decimal(1), "provider_batch": Decimal("0.5")}
QUICKER = {"provider_batch_look_s": 0.5, "provider_batch_create_s": 5}


def run(lab: Lab, provider: PriceList, stall: str, jobs: int = JOBS) -> Report:
    """Kill the worker at the stall, and let another one finish; 3 % of the judge's calls fail in the batch, 1 % expire."""
    began = time.monotonic()
    remote = lab.stub.remote
    remote.ends_after_s, remote.errored, remote.expired = 2.0, 0.03, 0.01
    lab.settings |= {**SETTINGS, **QUICKER, "provider": provider, "check_slots": 400}
    keys = {"ANTHROPIC_API_KEY": "test-key", "ANTHROPIC_BASE_URL": lab.stub.url}
    os.environ.update(keys)
    config = {"lane": "provider_batch", "checkers": ["structure", "judge"], "judge": provider}
    JUDGE.trusting = True
    try:
        lab.submit([
            {**job, "response": job["context"][0].partition(". ")[0] + ".", "config": config} for job in questions(jobs)
        ])  # fmt: skip
        remote.stalls.add(stall)
        worker = lab.work()
        lab.until(remote.stalled.is_set, within_s=WITHIN_S, what=f"the provider is asked for {stall}")
        lab.kill(worker)
        lab.start_recovery()
        lab.work()
        report = lab.assert_settled(lab.report(jobs, within_s=WITHIN_S))
    finally:
        JUDGE.trusting = False
        for name in keys:
            del os.environ[name]
    rode = check(lab, provider, jobs)
    return report.with_note(f"{rode} judged in batches at half price, {time.monotonic() - began:.0f} s in all")


def check(lab: Lab, provider: PriceList, jobs: int) -> int:
    """Every answer has the verdict on its own claim, no call was sent twice, and each is paid by its lane."""
    records = lab.rows(
        "SELECT j.outcome, g.grounding, g.frame FROM job j JOIN generation_record g ON g.job_id = j.id AND g.run = j.run"
    )
    outcomes = Counter((outcome, claims_of(*checked)[0]["verdict"]) for outcome, *checked in records)
    # The judge quotes the passage of its own job; the quote of another one would not count.
    assert outcomes == {("answered", "supported"): jobs}, outcomes
    twice = [name for name, count in lab.stub.remote.creations.items() if count > 1]
    assert not twice, f"{len(twice)} calls were created twice"
    assert max(lab.stub.billed.values()) == 1, "a reply was paid for twice"
    assert sum(lab.stub.billed.values()) == jobs
    prices = Prices(provider, VENDORS[provider])
    due, rode = Decimal(0), 0
    for lane, model, usage in lab.rows("SELECT lane, model, usage FROM attempt WHERE outcome = 'ok'"):
        standard = prices.cost_usd(model, None, Usage(**usage), None)
        assert standard
        due += standard * SHARES[lane]
        rode += lane == "provider_batch"
    spent = lab.scalar("SELECT sum(cost_usd) FROM attempt")
    assert spent == due, f"spent {spent}, due {due}"
    # Those that failed in the batch were asked at once.
    assert rode >= 0.9 * jobs, f"only {rode} of {jobs} rode in a batch"
    assert lab.count("provider_batch WHERE ended_at IS NULL") == 0
    assert lab.count("provider_batch_call") == 0
    return rode


@experiment("judges in OpenAI batches, killed between intent and create", jobs=0)
def openai_before_create(lab: Lab) -> Report:
    return run(lab, "openai", "upload")


@experiment("judges in OpenAI batches, killed between create and id", jobs=0)
def openai_after_create(lab: Lab) -> Report:
    return run(lab, "openai", "create")


@experiment("judges in OpenAI batches, killed in mid-collection", jobs=0)
def openai_in_collection(lab: Lab) -> Report:
    return run(lab, "openai", "content")


@experiment("judges in Anthropic batches, killed between create and id", jobs=0)
def anthropic_after_create(lab: Lab) -> Report:
    return run(lab, "anthropic", "create")
