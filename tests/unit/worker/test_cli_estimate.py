"""``nightdesk estimate`` where no ledger was made yet: nothing is started or written."""

import json
from pathlib import Path
from typing import Any

import pytest

from worker import cli

pytestmark = pytest.mark.usefixtures("as_before")


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    path = tmp_path / "in.jsonl"
    jobs: list[dict[str, Any]] = [
        {"query": "When does it open?", "context": ["The desk opens at nine."]},
        {"query": "Why?", "context": []},
        {"query": "Who?", "context": ["The porter."], "config": {"model": "house-model-1"}},
        {"query": "Who?", "context": ["The porter."], "config": {"lane": "background", "provider": "extractive"}},
    ]
    path.write_text("".join(json.dumps(job) + "\n" for job in jobs))
    return path


def test_an_estimate_makes_nothing(questions: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["estimate", str(questions), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["calls"], document["no_call"], len(document["refused"])) == (2, {"no_evidence": 1}, 1)
    assert document["unknown_prices"] == ["openai:house-model-1"]
    assert not (tmp_path / "home").exists()


def test_under_a_ceiling_an_unknown_price_is_refused_as_by_the_door(
    questions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["estimate", str(questions), "--max-cost-usd", "0.001"]) == 1
    captured = capsys.readouterr()
    assert "line 3" in captured.err
    assert "the price of model house-model-1 at openai is unknown" in captured.err
    assert "4 jobs: 1 call a model, 1 end as no_evidence, without a call, 2 would be refused" in captured.out
    assert "the ceiling of 0.001 USD" in captured.out


@pytest.mark.parametrize(
    ("model", "first"),
    [("gpt-5-mini", "cost 0.0"), ("house-model-1", "cost unknown\n")],
)
def test_an_estimate_begins_with_its_cost_and_an_unknown_one_is_not_0(
    model: str, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    monkeypatch.setenv("NIGHTDESK_DEFAULT_JUDGE_SHARE", "0")
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"query": "Who?", "context": ["The porter."], "config": {"model": model}}))
    assert cli.run(["estimate", str(path)]) == 0
    assert capsys.readouterr().out.startswith(first)
    assert cli.run(["estimate", str(path), "--json"]) == 0
    assert bool(json.loads(capsys.readouterr().out)["cost_usd"]) == (model == "gpt-5-mini")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["estimate"], "no file is given"),
        (["run", "in.jsonl"], "name where the results go: -o OUT"),
    ],
)
def test_wrong_orders_say_what_to_give(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_provider_batch_is_estimated_at_half_the_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"query": "When does it open?", "context": ["The desk opens at nine."]}) + "\n")
    rows = {}
    for lane in ("standard", "provider_batch", "auto"):
        assert cli.run(["estimate", str(path), "--lane", lane, "--json"]) == 0
        (rows[lane],) = json.loads(capsys.readouterr().out)["models"]
    assert rows["provider_batch"]["lane"] == "provider_batch"
    assert rows["auto"] == rows["provider_batch"], "without a deadline the cheapest lane"
    single, batched = (float(rows[lane]["cost_usd"]["usual"]) for lane in ("standard", "provider_batch"))
    assert single == pytest.approx(2 * batched)
    assert rows["standard"]["further_cost_usd"]["high"] > "0", "a judge by default"
