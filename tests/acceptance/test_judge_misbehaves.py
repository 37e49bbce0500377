"""A worker whose check calls a judge over HTTP through the real SDKs: correct, lying, half silent, garbled, silent, or down."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tests.acceptance.conftest import System
from tests.providers import KEY
from tests.stub import faults
from tests.stub.judge import JUDGE
from tests.stub.server import Stub, running_stub

CHECKERS = {"checkers": ["structure", "lexical", "judge"]}


def quote(number: int) -> str:
    return f"lorries carry the paper of desk {number} to the villages of the valley before dawn"


def source(number: int) -> str:
    return f"Desk number {number} is large. Each night {quote(number)}. Nobody pays for that."


def claim(number: int) -> str:
    """Said in other words for even numbers, and nowhere for odd ones."""
    where = "villages in the valley" if number % 2 == 0 else "mountain towns of the province"
    return f"The {where} get the paper of desk {number} by lorry while it is still dark."


def answer(*numbers: int) -> dict[str, Any]:
    """A check-only job with a claim for each number."""
    return {
        "response": " ".join(map(claim, numbers)),
        "context": [source(number) for number in numbers],
        "config": CHECKERS,
    }


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    truth = {claim(number): quote(number) if number % 2 == 0 else None for number in range(80)}
    monkeypatch.setattr(JUDGE, "truth", truth)
    with running_stub() as stub:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", stub.url)
        yield stub


def verdicts(system: System, batch: UUID) -> list[tuple[Any, ...]]:
    """(position, outcome, claims, failed checkers) of each job."""
    return system.rows(
        """SELECT j.position, j.outcome, g.grounding -> 'claims', g.grounding -> 'failed_checkers'
           FROM job j JOIN generation_record g ON g.job_id = j.id AND g.run = j.run WHERE j.batch_id = %s ORDER BY 1""",
        batch,
    )


def test_a_correct_judge_decides_claims_that_the_lexical_check_leaves_open(system: System, stub: Stub) -> None:
    batch, _ = system.submit([answer(number) for number in range(30)])
    generated = {
        "query": "When does desk number 1 open?",
        "context": ["Desk number 1 opens at nine."],
        "config": CHECKERS,
    }
    system.submit([generated, generated])
    system.start_worker(judge="anthropic", provider="extractive")
    system.until_final(32)

    for position, outcome, claims, failed in verdicts(system, batch):
        (claim,) = claims
        supported = position % 2 == 0
        assert (claim["verdict"], claim["checker"]) == ("supported" if supported else "unsupported", "judge")
        assert outcome == ("answered" if supported else "partial") or "citation" in claim["reason"]
        assert failed == {}
        if supported:
            place = claim["evidence"][0]
            assert source(position)[place["start"] : place["end"]] == quote(position)
    # Each call is an attempt for a job in its check, priced, and counted once by the provider. On a busy machine the import
    # of an SDK takes half of the short lease: attempts opened meanwhile are closed as never called, and made again.
    attempts = system.rows(
        "SELECT purpose, outcome, count(*), min(cost_usd) FROM attempt WHERE outcome <> 'error:cancelled' "
        "GROUP BY 1, 2 ORDER BY 1"
    )
    assert [row[:3] for row in attempts] == [("generate", "ok", 2), ("judge", "ok", 30)]
    assert attempts[1][3] > 0
    recorded = system.rows(
        "SELECT encode(request_hash, 'hex'), count(*) FROM attempt WHERE purpose = 'judge' "
        "AND outcome <> 'error:cancelled' GROUP BY 1"
    )
    assert dict(recorded) == stub.calls
    assert system.scalar("SELECT sum(cost_usd) FROM job") == system.scalar("SELECT sum(cost_usd) FROM attempt")
    schema = stub.requests[0].json["output_config"]["format"]["schema"]
    assert set(schema["properties"]) == {"verdicts"}


def test_a_judge_probability_decides_claims_that_the_lexical_check_leaves_open(system: System, stub: Stub) -> None:
    batch, _ = system.submit([answer(2 * number, 2 * number + 1) for number in range(10)])
    # A job that names the judge as its provider fails with that reason and costs no call.
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
    # One call an answer, each an attempt with its price and the hash of its bytes.
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


@pytest.mark.parametrize(
    ("judge", "unchecked_counts"),
    [
        ("openai", {"lies": 2, "half": 1, "malformed": 2, "nothing": 2}),
        ("openai_decisions", {"half": 1, "declines": 1, "malformed": 2, "percent": 2, "nothing": 2}),
    ],
)
def test_no_claim_is_supported_without_a_valid_verdict_of_the_judge(
    system: System, stub: Stub, judge: str, unchecked_counts: dict[str, int]
) -> None:
    system.start_worker(judge=judge, provider="extractive")
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
        assert ("judge" in failed) is (how in {"malformed", "percent", "nothing"}), how
    # The judge is down: first it refuses the key, then the connection breaks in a call that may have been billed.
    replies = len(unchecked_counts)
    stub.then(faults.openai_error(401, "invalid_api_key"))
    batch, _ = system.submit([answer(40)])
    system.until_final(replies + 1)
    ((_, outcome, (claim,), failed),) = verdicts(system, batch)
    assert (outcome, claim["verdict"], set(failed)) == ("partial", "unchecked", {"judge"})
    assert KEY not in str(failed)
    stub.then(faults.reset)
    batch, _ = system.submit([answer(42)])
    system.until_final(replies + 2)
    ((_, _, (claim,), failed),) = verdicts(system, batch)
    assert (claim["verdict"], failed) == ("supported", {})
    assert system.rows("SELECT DISTINCT state FROM job") == [("completed",)]
    kinds = dict(system.rows("SELECT outcome, count(*) FROM attempt GROUP BY 1"))
    assert kinds == {"ok": replies + 1, "error:authentication": 1, "unknown": 1}
