"""Jobs of the lane ``provider_batch``, with workers killed between intent, creation and remote id, and amid the collection."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

from schemas.model_call import Usage
from tests.acceptance.conftest import questions
from tests.faults.lab import Lab, Report
from tests.faults.registry import experiment
from worker.providers.prices import PriceList, Prices

MANY = 5_000
WITHIN_S = 420

SETTINGS = {
    "default_judge_share": 0,
    "provider_batch_gather_s": 2,
    "provider_batch_look_s": 1,
    "provider_batch_create_s": 10,
    "slots": 400,
}
FEW = 200
QUICKER = {"provider_batch_gather_s": 0.5, "provider_batch_look_s": 0.3, "provider_batch_create_s": 4}
"""Of at most so many jobs, whose batches are sent and read in a moment."""

VENDORS: dict[PriceList, str] = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}


@contextmanager
def batch_lab(lab: Lab, provider: PriceList, jobs: int) -> Iterator[None]:
    """Submit jobs of the lane, whose batches have failures of each kind at the provider."""
    remote = lab.stub.remote
    remote.ends_after_s, remote.errored, remote.expired = (3.0 if jobs > FEW else 1.0), 0.03, 0.01
    lab.settings |= {**SETTINGS, **(QUICKER if jobs <= FEW else {}), "provider": provider}
    keys = {"ANTHROPIC_API_KEY": "test-key", "ANTHROPIC_BASE_URL": lab.stub.url}
    os.environ.update(keys)
    try:
        # A call fails with 3 % each time, and with the whole second batch: enough attempts that none runs out of them.
        config = {"lane": "provider_batch", "max_attempts": 8}
        lab.submit([{**job, "config": config} for job in questions(jobs)])
        yield
    finally:
        for name in keys:
            del os.environ[name]


def run(lab: Lab, provider: PriceList, *stalls: str, jobs: int = MANY) -> Report:
    """The whole story: kill a worker at each stall, and let another one finish."""
    began = time.monotonic()
    with batch_lab(lab, provider, jobs):
        for stall in stalls:
            lab.stub.remote.stalled.clear()
            lab.stub.remote.stalls.add(stall)
            worker = lab.work()
            lab.until(lab.stub.remote.stalled.is_set, within_s=WITHIN_S, what=f"the provider is asked for {stall}")
            lab.kill(worker)
        lab.work()
        lab.start_recovery()
        # One more batch, that of the calls which failed, has no output file.
        lab.stub.remote.all_errored = 0
        lab.until(lambda: len(lab.stub.remote.batches) >= 1 and lab.count("attempt WHERE outcome = 'ok'") > 0,
                  within_s=WITHIN_S, what="the first answer")  # fmt: skip
        lab.stub.remote.all_errored = 1
        report = lab.assert_settled(lab.report(jobs, within_s=WITHIN_S))
        check(lab, provider, jobs)
    batches = len(lab.stub.remote.batches)
    return report.with_note(f"{batches} batches, half price to the cent, {time.monotonic() - began:.0f} s in all")


def check(lab: Lab, provider: PriceList, jobs: int) -> None:
    """Every job final with its own answer, no call sent twice, and half of the standard price paid for each answer."""
    states = dict(lab.rows("SELECT state, count(*) FROM job GROUP BY 1"))
    assert states == {"completed": jobs}, states
    for name, answer in lab.rows(
        "SELECT j.custom_id, g.answer FROM job j JOIN generation_record g ON g.job_id = j.id AND g.run = j.run"
    ):
        (number,) = re.findall(r"^Desk number (\d+) opens", answer)
        assert name == f"q{number}", (name, answer)
    twice = [name for name, count in lab.stub.remote.creations.items() if count > 1]
    assert not twice, f"{len(twice)} calls were created twice"
    assert max(lab.stub.billed.values()) == 1, "an answer was paid for twice"
    assert sum(lab.stub.billed.values()) == jobs
    prices = Prices(provider, VENDORS[provider])
    rows = lab.rows("SELECT model, usage, cost_usd FROM attempt WHERE outcome = 'ok'")
    standard = sum(
        (prices.cost_usd(model, None, Usage(**usage), None) or Decimal(0) for model, usage, _ in rows), Decimal(0)
    )
    spent = lab.scalar("SELECT sum(cost_usd) FROM attempt")
    assert standard > 0
    assert spent * 2 == standard, f"spent {spent}, standard {standard}"
    assert lab.count("provider_batch WHERE ended_at IS NULL") == 0
    assert lab.count("provider_batch_call") == 0


@experiment("OpenAI batches, killed between intent and create", jobs=0)
def openai_before_create(lab: Lab) -> Report:
    return run(lab, "openai", "upload")


@experiment("OpenAI batches, killed between create and id", jobs=0)
def openai_after_create(lab: Lab) -> Report:
    return run(lab, "openai", "create")


@experiment("OpenAI batches, killed in mid-collection", jobs=0)
def openai_in_collection(lab: Lab) -> Report:
    return run(lab, "openai", "content")


@experiment("Anthropic batches, killed between intent and create", jobs=0)
def anthropic_before_create(lab: Lab) -> Report:
    return run(lab, "anthropic", "arrive")


@experiment("Anthropic batches, killed between create and id", jobs=0)
def anthropic_after_create(lab: Lab) -> Report:
    return run(lab, "anthropic", "create")


@experiment("Anthropic batches, killed in mid-collection", jobs=0)
def anthropic_in_collection(lab: Lab) -> Report:
    return run(lab, "anthropic", "content")


UNREADABLE = 60


@experiment("results of provider batches cut, replaced by a page, and gone", jobs=0)
def unreadable_results(lab: Lab) -> Report:
    remote = lab.stub.remote
    with batch_lab(lab, "openai", UNREADABLE):
        remote.errored = remote.expired = 0.0
        lab.settings["provider_batch_look_s"] = 0.1
        broken = []

        def damage(content: bytes) -> bytes:
            """The first file lacks the end of its last line, and the second is a page; those after them are whole."""
            if content not in broken and len(broken) < 2:
                broken.append(content)
            if content in broken[:1]:
                return content[:-40]
            return b"<html>Sign in</html>" if content in broken else content

        remote.damage = damage
        lab.work()
        lab.until(lambda: lab.count("attempt WHERE outcome = 'ok'") >= UNREADABLE - 1, what="all answers but one")
        lab.until(lambda: lab.count("provider_batch WHERE detail ? 'trouble'") == 1, what="the cause is noted")
        lab.start_recovery()
        report = lab.assert_settled(lab.report(UNREADABLE, within_s=WITHIN_S))
    assert report.unknown == 2, "the call of the cut line, and that of the page"
    states = dict(lab.rows("SELECT state, count(*) FROM job GROUP BY 1"))
    assert states == {"completed": UNREADABLE}, states
    return report


def cancel_midway(lab: Lab, provider: PriceList, jobs: int) -> None:
    """Cancel every job of a batch that its provider works on: it is cancelled there, and half of it is paid for."""
    with batch_lab(lab, provider, jobs):
        lab.stub.remote.ends_after_s, lab.stub.remote.errored, lab.stub.remote.expired = 600, 0, 0
        lab.work()
        lab.until(
            lambda: lab.count("provider_batch WHERE state = 'open'") == 1, within_s=120, what="the batch is created"
        )
        (batch_id,) = {batch for (batch,) in lab.rows("SELECT batch_id FROM job")}
        lab.with_ledger(lambda ledger: ledger.actions.cancel_batch(batch_id, "a person"))
        lab.until(
            lambda: lab.count("provider_batch WHERE state = 'collected'") == 1, within_s=120, what="it is collected"
        )
        assert len(lab.stub.remote.cancels) == 1
        assert lab.count("job WHERE state = 'cancelled'") == jobs
        assert lab.count("attempt WHERE outcome = 'ok' AND cost_usd > 0") == jobs // 2
        assert lab.count("attempt WHERE outcome = 'error:cancelled' AND cost_usd = 0") == jobs - jobs // 2
        assert lab.with_ledger(lambda ledger: ledger.inspection.violations()) == []
