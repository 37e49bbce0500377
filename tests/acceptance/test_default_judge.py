"""A worker whose answers are judged though no job asks for it: what words leave open over HTTP, through the real SDKs."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from tests.acceptance.conftest import System
from tests.providers import KEY
from tests.stored_records import claims_of
from tests.stub.judge import JUDGE
from tests.stub.scripts import SCRIPTS, Piece
from tests.stub.server import Stub, running_stub

LEASE = (
    "The notice period is three months. The deposit is six monthly rents. Repairs of more than 120 euros must be announced"
    " before the work begins. The landlord shall not enter without notice."
)
PERIOD, DEPOSIT = "The notice period is three months", "The deposit is six monthly rents"
REPAIRS = "Repairs of more than 120 euros must be announced before the work begins"
ENTRY = "The landlord shall not enter without notice"
UNTRUE = {
    "Whoever moves out must say so half a year ahead.": PERIOD,
    "Nobody leaves before a whole year is over.": PERIOD,
    "Only one payment is due up front.": DEPOSIT,
    "Small jobs need a word in advance, too.": REPAIRS,
    "Owners come in whenever they like.": ENTRY,
}
"""What words can't decide, with what the source says otherwise."""


def job(number: int) -> dict[str, Any]:
    return {"query": f"What holds for flat {number}, of those let since May?", "context": [LEASE]}


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    """A provider that answers each job with one claim that is untrue and one that is copied."""
    for number, (claim, quote) in enumerate(UNTRUE.items()):
        monkeypatch.setitem(
            SCRIPTS, f"flat {number},", (Piece(claim, ((1, quote),)), Piece(f" {ENTRY}.", ((1, ENTRY),)))
        )
    monkeypatch.setattr(JUDGE, "contrary", UNTRUE)
    with running_stub() as stub:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        yield stub


def untrue_claims(system: System) -> list[dict[str, Any]]:
    """The untrue claim of each job."""
    records = system.rows(
        "SELECT g.grounding, g.frame FROM job j JOIN generation_record g ON g.job_id = j.id AND g.run = j.run "
        "ORDER BY j.position"
    )
    return [claims_of(*record)[0] for record in records]


def test_what_words_leave_open_is_decided_for_its_share_of_the_answers_cost(system: System, stub: Stub) -> None:
    system.submit([job(number) for number in range(len(UNTRUE))], max_cost_usd=Decimal(1))
    system.start_worker(provider="openai", model="gpt-6-sol")
    system.until_final(len(UNTRUE))

    claims = untrue_claims(system)
    assert [claim["verdict"] for claim in claims] == ["contradicted"] * len(UNTRUE)
    for claim in claims:
        place = claim["evidence"][0]
        assert LEASE[place["start"] : place["end"]] in UNTRUE.values()
    assert system.rows("SELECT DISTINCT outcome FROM job") == [("partial",)]

    # One call an answer, to the cheap model, without the claim that is a copy.
    judge_requests = [request.json for request in stub.requests if request.json["model"] == "gpt-6-luna"]
    assert len(judge_requests) == len(UNTRUE)
    assert all(request["reasoning"] == {"effort": "none"} for request in judge_requests)
    assert all("\n2. " not in str(request["input"]) for request in judge_requests)
    costs = dict(
        system.rows("SELECT purpose, sum(cost_usd) FROM attempt WHERE outcome <> 'error:cancelled' GROUP BY 1")
    )
    assert 0 < costs["judge"] < costs["generate"] * Decimal("0.15")
    assert system.scalar("SELECT sum(cost_usd) FROM job") == sum(costs.values())
    assert system.scalar("SELECT spent_usd FROM batch") == sum(costs.values())
    assert system.scalar("SELECT reserved_usd FROM batch") == 0
