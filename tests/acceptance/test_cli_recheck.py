"""``nightdesk recheck`` and ``nightdesk check --judge``: a judge over given answers, what it changes, and the rows to learn from."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_home import Home, new_running_home, read_lines, write_lines
from tests.acceptance.test_judge_misbehaves import claim, quote, source
from tests.forking import REPOSITORY
from tests.providers import KEY
from tests.stub.judge import JUDGE
from tests.stub.server import Stub, running_stub


@pytest.fixture(scope="module")
def judging() -> Iterator[tuple[Home, Stub]]:
    """A home whose workers have a judge, and that judge."""
    with running_stub() as stub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", KEY)
        patch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        with new_running_home(provider="extractive") as home:
            yield home, stub


def test_stored_answers_are_checked_again_by_a_judge_and_nothing_is_generated(
    judging: tuple[Home, Stub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, stub = judging
    calls_before = len(stub.requests)
    monkeypatch.setattr(
        JUDGE, "truth", {claim(number): quote(number) if number % 2 == 0 else None for number in (2, 3)}
    )
    lines: list[dict[str, Any]] = [
        {"response": claim(2), "context": [source(2)]},
        {"response": claim(3), "context": [source(3)]},
        {"query": "When does desk 5 open?", "context": ["Desk 5 opens at nine in the evening."]},
    ]
    out = tmp_path / "out.jsonl"
    first = home.run("run", write_lines(tmp_path / "in.jsonl", lines), "-o", out)
    assert first.code == 0, first.err
    before = read_lines(out)
    batch = before[0]["batch_id"]

    done = home.run("recheck", batch, "--judge", "openai:gpt-6-luna")
    assert done.code == 0, done.err
    again = home.run("results", batch, "-o", out)
    assert again.code == 0, again.err
    wrong = home.run("recheck", batch, "--checkers", "structure,guess")
    assert (wrong.code, "structure, lexical, local, judge" in wrong.err) == (2, True)

    after = read_lines(out)
    assert [result["claims"][0]["verdict"] for result in after] == ["supported", "unsupported", "supported"]
    assert [result["claims"][0]["checker"] for result in before] == ["lexical"] * 3
    assert [result["claims"][0]["checker"] for result in after[:2]] == ["judge"] * 2
    assert [result["response"] for result in after[2:]] == [result["response"] for result in before[2:]]
    assert "after wins 1, loses 1, ties 1" in done.err
    assert "3 answers checked again" in done.err
    decided = [result for result in after if result["claims"][0]["checker"] == "judge"]
    assert [(result["claims"][0]["text"], result["claims"][0]["verdict"]) for result in decided[:2]] == [
        (claim(2), "supported"),
        (claim(3), "unsupported"),
    ]
    assert len(stub.requests) == calls_before + len(decided)


def test_a_judge_that_is_right_decides_what_words_leave_open_and_nothing_else(
    judging: tuple[Home, Stub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _ = judging
    answers = REPOSITORY / "docs" / "checks.jsonl"
    examples = read_lines(answers)
    right = {"paraphrase": "Whoever is late loses the seat.", "derived value": "The subscription costs $15 a month."}
    monkeypatch.setattr(JUDGE, "truth", {line["response"]: right.get(line["custom_id"]) for line in examples})
    alone, judged = tmp_path / "alone.jsonl", tmp_path / "judged.jsonl"
    by_words = home.run("check", answers, "-o", alone)
    with_judge = home.run("check", answers, "-o", judged, "--judge", "openai:gpt-6-luna")
    assert by_words.code == 0, by_words.err
    assert with_judge.code == 0, with_judge.err
    assert "words leave claims of 8 answers open" in by_words.err
    assert "words leave claims" not in with_judge.err
    for before, after in zip(read_lines(alone), read_lines(judged), strict=True):
        for words, judge in zip(before["claims"], after["claims"], strict=True):
            if words["verdict"] != "undecided":
                assert (judge["verdict"], judge["checker"]) == (words["verdict"], words["checker"])
            else:
                verdict = "supported" if after["custom_id"] in right else "unsupported"
                assert (judge["verdict"], judge["checker"]) == (verdict, "judge"), after["custom_id"]
        assert sum(after["decided"].values()) >= 1
