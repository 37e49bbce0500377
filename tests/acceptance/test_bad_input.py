"""Bad lines are each named with line and field, and leave the good ones alone; what ``test_cli_run`` has is not repeated."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_home import Home, new_home, question, read_lines, write_lines


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with new_home() as home:
        yield home


BAD: list[tuple[Any, str]] = [
    ({"context": ["A source."]}, "'query' is missing or empty"),
    ({"query": 5, "context": ["A source."]}, "query: "),
    ({"query": "Why?", "context": [{"title": "x"}]}, "context.0.content: "),
    (question(1, priority="high"), "priority: "),
    (question(1, config={"mode": "loud"}), "config.mode: "),
    ({"query": "Why?", "context": ["a\x00b"]}, "context.0.content: holds the character U+0000 at position 1"),
    # Half of a surrogate pair, as the escape that JSON allows and Unicode does not.
    ('{"query": "Why?", "context": ["a\\ud800b"]}', "not valid JSON"),
    ({"query": "Why?", "context": ["x" * 5_000_000]}, "context.0.content: "),
    ({"query": "Why?", "context": ["x"] * 10_000}, "context: "),
]


def test_every_bad_line_is_named_and_the_good_ones_are_answered(home: Home, tmp_path: Path) -> None:
    lines = [question(0), *(line for line, _ in BAD), {"query": "No source?", "context": []}, question(2)]
    out = tmp_path / "out.jsonl"

    done = home.run("run", write_lines(tmp_path / "in.jsonl", lines), "-o", out)

    assert done.code == 1
    assert "Traceback" not in done.err
    results = read_lines(out)
    assert [result["outcome"] for result in results] == ["answered", *[None] * len(BAD), "no_evidence", "answered"]
    for number, ((_, message), result) in enumerate(zip(BAD, results[1:], strict=False), start=2):
        assert result["failure"]["kind"] == "invalid_request"
        assert f"line {number}: {message}" in result["failure"]["message"]
        assert len(result["failure"]["message"]) < 500
        assert result["failure"]["message"] in done.err


def test_an_unknown_provider_is_refused_with_its_line_and_field(home: Home, tmp_path: Path) -> None:
    lines = [question(0, config={"provider": "nobody"}), question(1)]
    out = tmp_path / "out.jsonl"

    done = home.run("run", write_lines(tmp_path / "in.jsonl", lines), "-o", out)

    assert done.code == 1
    failed, answered = read_lines(out)
    assert failed["job_id"] is None, "no worker had to find out"
    message = "line 1: config.provider: no provider 'nobody' is configured; there is anthropic, "
    assert message in failed["failure"]["message"]
    assert answered["outcome"] == "answered"


def test_a_missing_key_is_named(home: Home, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"

    done = home.run("run", write_lines(tmp_path / "in.jsonl", [question(0)]), "-o", out, provider="openai")

    assert done.code == 2
    assert "nothing was submitted" in done.err
    assert "the provider 'openai' needs a key: set OPENAI_API_KEY" in done.err
    assert not out.exists()
