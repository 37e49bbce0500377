"""The provider refuses the key, or says that the quota is used up: calling stops for all jobs, they are kept, and go on when released."""

import asyncio
from pathlib import Path

import pytest

from schemas.states import HeldReason
from tests.acceptance.cli_home import new_home, write_lines
from tests.acceptance.conftest import System, questions
from tests.stub import faults
from tests.stub.server import running_stub
from worker.doctor import examine
from worker.ledger.postgres import PostgresLedger

JOBS = 40
SLOTS = 4


def test_calls_stop_on_a_refused_key_and_on_a_used_up_quota_and_continue_after_a_release(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_stub(latency_s=0.05) as stub:
        stub.then(*[faults.openai_error(401, "invalid_api_key") for _ in range(JOBS)])
        providers = f'{{"mine": {{"kind": "openai_chat", "base_url": "{stub.url}/v1", "model": "m"}}}}'
        settings = {"provider": "mine", "providers": providers, "slots": SLOTS}
        system.submit(questions(JOBS))
        system.start_worker(**settings)
        await_hold(system)
        refused = sum(stub.calls.values())
        assert refused < JOBS / 2, "jobs are held without a call once the lane is paused"

        stub.acts.clear()
        stub.then(*[faults.openai_error(429, "insufficient_quota") for _ in range(JOBS)])
        assert release(system) == JOBS
        await_hold(system, after=refused)
        without_quota = sum(stub.calls.values()) - refused
        assert without_quota < JOBS / 2, "a release without a remedy costs as few calls again"
        for name, value in system.environment(**settings).items():
            monkeypatch.setenv(name, value)
        findings = {finding.check: finding.what for finding in asyncio.run(examine()).findings}
        assert findings["lane_paused"].startswith("no calls are made to mine in the lane standard since")
        assert f"{JOBS} jobs are held" in findings["held_lane_paused"]

        stub.acts.clear()
        assert release(system) == JOBS
        system.until_final(JOBS)

    assert system.rows("SELECT state, count(*) FROM job GROUP BY 1") == [("completed", JOBS)]
    assert system.rows("SELECT outcome, spent, count(*) FROM attempt GROUP BY 1, 2 ORDER BY 1") == [
        ("error:authentication", False, refused),
        ("error:quota", False, without_quota),
        ("ok", False, JOBS),
    ]


def test_a_run_tries_again_what_a_refused_key_held(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = write_lines(tmp_path / "in.jsonl", questions(4))
    with running_stub() as stub, new_home(database_url=system.database_url, redis_url=system.redis_url) as home:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-mended")
        assert home.run("migrate").code == 0
        stub.then(*[faults.openai_error(401, "invalid_api_key")] * 4)
        first = home.run("run", lines, "-o", tmp_path / "out.jsonl", "--no-preflight")
        assert "4 held (lane_paused)" in first.err
        stub.acts.clear()
        ((batch,),) = system.rows("SELECT id FROM batch")
        done = home.run("run", "--resume", str(batch), "-o", tmp_path / "out.jsonl")
    assert "calls that were paused are tried again: 4 held jobs released" in done.err
    assert done.code == 0, done.err


def await_hold(system: System, after: int = 0) -> None:
    """Wait until all jobs are held, and more calls were made than before."""
    paused_jobs = (
        "SELECT count(*) = %s AND (SELECT count(*) FROM attempt WHERE closed_at IS NOT NULL) > %s FROM job "
        "WHERE state = 'scheduled' AND held_reason = 'lane_paused'"
    )
    system.until(lambda: system.scalar(paused_jobs, JOBS, after), what="all jobs held")
    assert system.rows("SELECT provider, lane FROM lane_pause") == [("mine", "standard")]


def release(system: System) -> int:
    async def work(ledger: PostgresLedger) -> int:
        return await ledger.actions.release(None, HeldReason.LANE_PAUSED, "test")

    return system.with_ledger(work)
