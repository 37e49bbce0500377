"""Jobs of the lane ``background`` at a stub of OpenAI's, with the worker killed between attempt, creation and id, and in mid-collection."""

import re
import time
from decimal import Decimal

from schemas.model_call import Usage
from tests.acceptance.conftest import questions
from tests.faults.lab import Lab, Report
from tests.faults.provider_batches import SETTINGS, VENDORS
from tests.faults.registry import experiment
from worker.providers.prices import LANE_SHARES, Prices

MANY = 2_400
WITHIN_S = 420

NO_STATES_LEFT = ("provider_batch WHERE ended_at IS NULL", "provider_batch_call")


def run(lab: Lab, stall: str, jobs: int = MANY) -> Report:
    """Kill the worker at the stall, and let another one finish; 3 % of the responses fail and 1 % expire."""
    began = time.monotonic()
    background = lab.stub.background
    background.ends_after_s, background.failed, background.expired = 3.0, 0.03, 0.01
    lab.settings |= {**SETTINGS, "provider": "openai"}
    lanes = ("background", "background_2h")
    lab.submit([
        {**job, "config": {"lane": lanes[number % 2], "max_attempts": 8}}
        for number, job in enumerate(questions(jobs))
    ])  # fmt: skip
    background.checks_before_stall = jobs // 2 if stall == "check" else 0
    worker = lab.work()
    if stall != "check":
        lab.until(lambda: len(background.responses) >= jobs // 3, within_s=WITHIN_S, what="a third is created")
    background.stalls.add(stall)
    lab.until(background.stalled.is_set, within_s=WITHIN_S, what=f"the provider is asked for {stall}")
    lab.kill(worker)
    lab.start_recovery()
    lab.work()
    report = lab.assert_settled(lab.report(jobs, within_s=WITHIN_S))
    check(lab, jobs)
    return report.with_note(f"each answer at its job, cost to the cent, {time.monotonic() - began:.0f} s in all")


def check(lab: Lab, jobs: int) -> None:
    """Every job final with its own answer at its window's price, and no response created again whose id was known."""
    assert dict(lab.rows("SELECT state, count(*) FROM job GROUP BY 1")) == {"completed": jobs}
    for name, answer in lab.rows(
        "SELECT j.custom_id, g.answer FROM job j JOIN generation_record g ON g.job_id = j.id AND g.run = j.run"
    ):
        (number,) = re.findall(r"^Desk number (\d+) opens", answer)
        assert name == f"q{number}", (name, answer)
    background = lab.stub.background
    noted = {remote_id for (remote_id,) in lab.rows("SELECT remote_id FROM provider_batch")}
    orphans = set(background.responses) - noted
    unknown = lab.count("attempt WHERE outcome = 'unknown'")
    assert len(orphans) <= unknown, f"{len(orphans)} responses are not in the ledger, {unknown} outcomes are unknown"
    assert noted == set(background.responses) - orphans, "the ledger names a response that there is not"
    assert background.removed == noted, "a response whose answer is stored was left at the provider"
    assert max(lab.stub.billed.values()) == 1, "an answer was paid for twice"
    assert sum(lab.stub.billed.values()) == jobs
    check_cost(lab)
    for rows in NO_STATES_LEFT:
        assert lab.count(rows) == 0, rows


def check_cost(lab: Lab) -> None:
    """Answers cost 60 or 70 % of the list price, unknown outcomes their reserve, and failures nothing."""
    prices = Prices("openai", VENDORS["openai"])
    expected = Decimal(0)
    for lane, model, usage in lab.rows("SELECT lane, model, usage FROM attempt WHERE outcome = 'ok'"):
        standard = prices.cost_usd(model, None, Usage(**usage), None)
        assert standard
        expected += standard * LANE_SHARES[lane]
    assert lab.scalar("SELECT sum(cost_usd) FROM attempt WHERE outcome = 'ok'") == expected
    assert lab.count("attempt WHERE starts_with(outcome, 'error:') AND cost_usd <> 0") == 0
    assert lab.count("attempt WHERE outcome = 'unknown' AND cost_usd IS DISTINCT FROM reserved_usd") == 0
    assert lab.scalar("SELECT (SELECT sum(spent_usd) FROM batch) = (SELECT sum(cost_usd) FROM attempt)")


@experiment("background responses, killed between attempt and creation", jobs=0)
def before_create(lab: Lab) -> Report:
    return run(lab, "arrive")


@experiment("background responses, killed between creation and id", jobs=0)
def after_create(lab: Lab) -> Report:
    return run(lab, "create")


@experiment("background responses, killed in mid-collection", jobs=0)
def in_collection(lab: Lab) -> Report:
    return run(lab, "check")
