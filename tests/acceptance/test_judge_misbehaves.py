"""A worker whose check calls a judge over HTTP through the real SDKs: lying, half silent, garbled, silent, or down."""

from collections.abc import Iterator
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
