"""A worker whose judge gives probabilities over HTTP, through the real SDK: right, half silent, off the scale, away."""

from collections.abc import Iterator
from decimal import Decimal

import pytest

from tests.acceptance.conftest import System
from tests.acceptance.test_judge_misbehaves import answer, claim, quote, source, verdicts
from tests.providers import KEY
from tests.stub import faults
from tests.stub.judge import JUDGE
from tests.stub.server import Stub, running_stub


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    truth = {claim(number): quote(number) if number % 2 == 0 else None for number in range(80)}
    monkeypatch.setattr(JUDGE, "truth", truth)
    with running_stub() as stub:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        yield stub


def test_a_judge_probability_decides_claims_that_the_lexical_check_leaves_open(system: System, stub: Stub) -> None:
    batch, _ = system.submit([answer(2 * number, 2 * number + 1) for number in range(10)])
    # One that names it as the provider is told so, and nothing is called for it.
    system.submit([{"query": "When?", "context": ["At nine."], "config": {"provider": "openai_decisions"}}])
    system.start_worker(judge="openai_decisions", provider="extractive")
    system.until_final(11)

    for position, outcome, (even, odd), failed in verdicts(system, batch):
        assert (even["verdict"], even["checker"]) == ("supported", "judge")
        assert (even["judge"]["probability"], even["judge"]["verdict"]) == (0.9, "supported")
        assert "probability of 0.90 and quotes nothing" in even["reason"]
        place = even["evidence"][0]
        assert f"desk {2 * position} " in source(2 * position)[place["start"] : place["end"]]
        assert (odd["verdict"], odd["judge"]["probability"]) == ("unsupported", 0.1)
        assert (outcome, failed) == ("partial", {})
    # One call an answer, each an attempt with its price and its bytes' hash.
    recorded = system.rows(
        "SELECT encode(request_hash, 'hex'), count(*) FROM attempt WHERE purpose = 'judge' "
        "AND outcome <> 'error:cancelled' GROUP BY 1"
    )
    assert dict(recorded) == stub.calls
    called = "SELECT outcome, count(*), min(cost_usd) FROM attempt WHERE outcome <> 'error:cancelled' GROUP BY 1"
    assert system.rows(called) == [("ok", 10, Decimal("0.00012"))]
    assert system.scalar("SELECT sum(cost_usd) FROM job") == Decimal("0.0012")
    assert {request.path for request in stub.requests} == {"/v1/decisions"}
    assert all(len(request.json["questions"]) == 2 for request in stub.requests)
    failures = system.rows("SELECT r.failure ->> 'message' FROM generation_record r JOIN job j ON j.id = r.job_id "
                       "WHERE j.state = 'failed'")  # fmt: skip
    assert len(failures) == 1
    assert "writes no answers: name it as a judge" in failures[0][0]


def test_without_a_probability_no_claim_is_supported(system: System, stub: Stub) -> None:
    system.start_worker(judge="openai_decisions", provider="extractive")
    unchecked_counts = {"half": 1, "declines": 1, "malformed": 2, "percent": 2, "nothing": 2}
    for done, (how, unchecked) in enumerate(unchecked_counts.items(), start=1):
        JUDGE.how = how
        try:
            batch, _ = system.submit([answer(2 * done, 2 * done + 20)])
            system.until_final(done)
        finally:
            JUDGE.how = "honest"
        ((_, outcome, claims, failed),) = verdicts(system, batch)
        assert outcome == "partial", how
        assert [claim["verdict"] for claim in claims].count("unchecked") == unchecked, how
        assert ("judge" in failed) is (unchecked == 2), how
    stub.then(faults.openai_error(401, "invalid_api_key"))
    batch, _ = system.submit([answer(40)])
    system.until_final(6)
    ((_, outcome, (claim,), failed),) = verdicts(system, batch)
    assert (outcome, claim["verdict"], set(failed)) == ("partial", "unchecked", {"judge"})
    assert KEY not in str(failed)
    stub.then(faults.reset)
    batch, _ = system.submit([answer(42)])
    system.until_final(7)
    ((_, _, (claim,), failed),) = verdicts(system, batch)
    assert (claim["verdict"], failed) == ("supported", {})
    assert system.rows("SELECT DISTINCT state FROM job") == [("completed",)]
    kinds = dict(system.rows("SELECT outcome, count(*) FROM attempt GROUP BY 1"))
    assert kinds == {"ok": 6, "error:authentication": 1, "unknown": 1}
