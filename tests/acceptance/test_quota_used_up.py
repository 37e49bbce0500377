"""The provider says that the quota is used up: calling stops for all jobs, they are kept, and go on when released."""

import asyncio

import pytest

from schemas.states import HeldReason
from tasks.ports import Ledger
from tests.acceptance.conftest import System, questions
from tests.stub import faults
from tests.stub.server import running_stub
from worker.doctor import examine

JOBS = 40
SLOTS = 4


def test_calls_stop_on_a_used_up_quota_and_continue_after_a_release(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_stub(latency_s=0.05) as stub:
        stub.then(*[faults.openai_error(429, "insufficient_quota") for _ in range(JOBS)])
        providers = f'{{"mine": {{"kind": "openai_chat", "base_url": "{stub.url}/v1", "model": "m"}}}}'
        settings = {"provider": "mine", "providers": providers, "slots": SLOTS}
        system.submit(questions(JOBS))
        system.start_worker(**settings)
        held_count = "SELECT count(*) FROM job WHERE state = 'scheduled' AND held_reason = 'lane_paused'"
        system.until(lambda: system.scalar(held_count) == JOBS, what="all jobs held")

        called = sum(stub.calls.values())
        assert called < JOBS / 2, "jobs are held without a call once the lane is paused"
        assert system.rows("SELECT provider, lane FROM lane_pause") == [("mine", "standard")]
        for name, value in system.environment(**settings).items():
            monkeypatch.setenv(name, value)
        findings = {finding.check: finding.what for finding in asyncio.run(examine()).findings}
        assert findings["lane_paused"].startswith("no calls are made to mine in the lane standard since")
        assert f"{JOBS} jobs are held" in findings["held_lane_paused"]

        stub.acts.clear()

        async def release(ledger: Ledger) -> int:
            return await ledger.actions.release(None, HeldReason.LANE_PAUSED, "test")

        assert system.with_ledger(release) == JOBS
        system.until_final(JOBS)

    assert system.rows("SELECT state, count(*) FROM job GROUP BY 1") == [("completed", JOBS)]
    assert system.rows("SELECT outcome, spent, count(*) FROM attempt GROUP BY 1, 2 ORDER BY 1") == [
        ("error:quota", False, called),
        ("ok", False, JOBS),
    ]
