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


def test_without_a_share_or_with_a_model_that_is_as_cheap_no_call_is_made(system: System, stub: Stub) -> None:
    system.submit([job(0)])
    first = system.start_worker(provider="openai", model="gpt-6-sol", default_judge_share=0)
    system.until_final(1)
    first.terminate()
    first.wait(60)
    system.submit([job(1)])
    system.start_worker(provider="openai", model="gpt-6-luna")
    system.until_final(2)

    assert system.rows("SELECT purpose, count(*) FROM attempt GROUP BY 1") == [("generate", 2)]
    skipped = system.rows(
        "SELECT g.grounding -> 'skipped_checkers' ->> 'judge' FROM generation_record g JOIN job j ON j.id = g.job_id "
        "ORDER BY j.created_at"
    )
    assert skipped[0] == (None,)
    assert "1 of 1 open claims were not asked about" in skipped[1][0]


def test_a_judge_by_default_that_is_unreadable_leaves_the_answer_as_words_leave_it(
    system: System, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JUDGE, "how", "malformed")
    system.submit([job(0)])
    system.start_worker(provider="openai", model="gpt-6-sol")
    system.until_final(1)

    ((outcome, failed, skipped),) = system.rows(
        "SELECT j.outcome, g.grounding -> 'failed_checkers', g.grounding -> 'skipped_checkers' ->> 'judge' "
        "FROM generation_record g JOIN job j ON j.id = g.job_id"
    )
    assert (outcome, failed, skipped) == ("unverified", {}, "the judge's reply could not be read")
    assert [(claim["verdict"], claim["checker"]) for claim in untrue_claims(system)] == [("undecided", "lexical")]
