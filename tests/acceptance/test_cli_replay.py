"""``nightdesk replay``: the stored messages sent again, byte for byte, and the new answers beside the old ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_home import Home, new_home, question, read_lines, write_lines
from tests.acceptance.command import Ended
from tests.providers import KEY
from tests.stub.server import running_stub


def document(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended.err
    value: dict[str, Any] = json.loads(ended.out)
    return value


def test_stored_messages_are_sent_again_once_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [*(question(number) for number in (1, 2)), {"query": "Why?", "context": [], "custom_id": "none"}]
    out = tmp_path / "out.jsonl"
    with running_stub() as stub, new_home(provider="openai", model="gpt-6-luna") as home:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        assert home.run("up").code == 0
        first = home.run("run", write_lines(tmp_path / "in.jsonl", lines), "-o", out)
        assert first.code == 0, first.err
        before = {result["custom_id"]: result for result in read_lines(out)}
        batch, job = before["q1"]["batch_id"], before["q1"]["job_id"]
        # The look before the first run sent an empty call, to which only an API answers as one.
        bodies = sorted(request.body for request in stub.requests if request.body != b"{}")

        whole = document(home.run("replay", batch, "--json", "-q"))
        all_bodies = sorted(request.body for request in stub.requests if request.body != b"{}")
        repeat = document(home.run("replay", batch, "--json"))
        assert len(stub.requests) == len(all_bodies) + 1
        single = home.run("replay", job, "--model", "openai:gpt-6-sol")
        other_model = stub.requests[-1].json
        versioned = document(home.run("replay", f"{batch}:q1", "--prompt-version", "1", "--json"))
        audited = home.run("show", whole["jobs"][0]["job_id"], "--json")
        calls = len(stub.requests)
        dry = home.run("replay", batch, "--dry-run", "--model", "openai:gpt-6-sol", "--max-cost-usd", "1")
        compared = home.run("compare", job, whole["jobs"][0]["job_id"])
        sides = [document(home.run("compare", job, done["jobs"][0]["job_id"], "--json")) for done in (whole, versioned)]
        mixed = home.run("compare", batch, job)
        assert len(stub.requests) == calls
        paid_again = document(home.run("replay", job, "--again", "--no-wait", "--json"))
        label_and_calibrate(home, job, tmp_path)
        nothing = home.run("replay", before["none"]["job_id"])

    # The same bytes went out once more, and no third time.
    assert all_bodies == sorted(bodies * 2)
    assert repeat["batch_id"] is None
    assert [pair["job_id"] for pair in repeat["jobs"]] == [pair["job_id"] for pair in whole["jobs"]]
    assert [pair["replay_of"] for pair in whole["jobs"]] == [before[name]["job_id"] for name in ("q1", "q2")]
    (refused,) = whole["refused"]
    assert (refused["custom_id"], "no_evidence" in refused["message"]) == ("none", True)
    assert (whole["comparison"]["pairs"], whole["comparison"]["ties"]) == (2, 2)
    # Another model reads the same messages.
    assert single.code == 0, single.err
    assert "openai:gpt-6-sol" in single.out
    assert "the same messages" in single.out
    assert max(map(len, single.out.splitlines())) <= 80
    first_body = next(json.loads(body) for body in bodies if b"product 1 " in body)
    assert other_model.keys() == first_body.keys()
    assert {key for key in first_body if first_body[key] != other_model[key]} == {"model"}
    assert [(side["differs"], side["same_messages"]) for side in sides] == [(False, True), (False, False)]
    assert [sides[0][name]["response"] for name in ("first", "second")] == [before["q1"]["response"]] * 2
    link_to_the_first(json.loads(audited.out), before)
    assert paid_again["batch_id"] is not None
    assert (nothing.code, "nothing was submitted" in nothing.err) == (2, True)
    estimate_and_compare(dry, compared, mixed)


def estimate_and_compare(dry: Ended, compared: Ended, mixed: Ended) -> None:
    # One of the two was asked of that model before.
    assert dry.code == 0, dry.err
    assert "1 call a model, 1 are known by their idempotency key, 1 would be refused" in " ".join(dry.out.split())
    assert "the ceiling of 1 USD is enough" in dry.out
    assert (compared.code, "the same messages" in compared.out) == (0, True)
    assert (mixed.code, "give two of a kind" in mixed.err) == (2, True)


def link_to_the_first(audit: dict[str, Any], before: dict[str, Any]) -> None:
    assert audit["job"]["replay_of"] == before["q1"]["job_id"]
    assert audit["records"][0]["replay_of"] == before["q1"]["job_id"]
    assert audit["messages"]["proven_by_hash"]


def label_and_calibrate(home: Home, job: str, directory: Path) -> None:
    first = home.run("label", job, "unsupported", "--claim", "1", "--note", "read twice", "--by", "ada")
    assert (first.code, "unsupported, by ada: claim 1: The" in first.err) == (0, True), first.err
    wrong = home.run("label", job, "supported", "--claim", "7")
    assert (wrong.code, "has no claim 7; the numbers are from 1 to 1" in wrong.err) == (2, True)
    maybe = home.run("label", job, "maybe")
    assert (maybe.code, "VERDICT: must be one of" in maybe.err) == (2, True)
    assert home.run("label", job, "supported").code == 0
    exported = home.run("label", "export", "-o", directory / "set.jsonl")
    assert (exported.code, [line["label"] for line in read_lines(directory / "set.jsonl")]) == (0, [0, 1])
    assert "read twice" in home.run("show", job).out
    calibrated = home.run("calibrate", directory / "set.jsonl", "-o", directory / "calibration.json")
    # Two lines are too few to fit, and none of them is bad.
    assert "left out" not in calibrated.err
