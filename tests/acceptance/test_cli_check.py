"""``nightdesk check``: answers that already exist get verdicts, and nobody is asked to write one."""

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_home import Home, new_home, read_lines, write_lines

ROWS = 20


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    # A key that is not there: whoever asked this provider would fail.
    with new_home(provider="openai") as home:
        yield home


def row(number: int) -> dict[str, Any]:
    """Every second answer says what no source says; spellings and forms of sources change from row to row."""
    years = number + 2
    source = f"Naïve readers 🗞️ first.\nThe warranty of the lamp {number} lasts {years} years from the date of purchase."
    mark = " [1]" if number % 4 < 2 else ""
    lasts = years if number % 2 == 0 else years + 40
    claim = f"The warranty of the lamp {number} lasts {lasts} years from the date of purchase{mark}."
    names = ("sources", "answer", "question") if number % 3 == 0 else ("context", "response", "query")
    sources = [source, {"content": "The desk opens at nine in the evening.", "title": "Hours"}]
    return {names[0]: sources, names[1]: claim, names[2]: "How long is the warranty?", "custom_id": f"r{number}"}


def assert_spans_are_exact(result: dict[str, Any], answer: str, sources: list[Any]) -> None:
    """Every claim is a stretch of the answer, every evidence and quotation a stretch of its source."""
    assert result["response"] == answer
    texts = [source if isinstance(source, str) else source["content"] for source in sources]
    for claim in result["claims"]:
        assert 0 <= claim["start_pos"] < claim["end_pos"] <= len(answer)
        assert claim["text"] == answer[claim["start_pos"] : claim["end_pos"]]
        for evidence in claim["evidence"]:
            assert texts[evidence["source_index"]][evidence["start"] : evidence["end"]].strip()
            assert evidence["end"] <= len(texts[evidence["source_index"]])
    for citation in result["citations"]:
        source_text = texts[citation["source_index"]]
        assert citation["quoted_text"] == source_text[citation["source_start"] : citation["source_end"]]
        assert answer[citation["start_pos"] : citation["end_pos"]].strip()


def test_each_answer_gets_its_verdict_in_order(home: Home, tmp_path: Path) -> None:
    rows = [row(number) for number in range(ROWS)]
    lines: list[Any] = [*rows, {"sources": ["A source."], "custom_id": "no answer"}, {**row(3), "context": []}]
    out = tmp_path / "out.jsonl"

    done = home.run("check", write_lines(tmp_path / "answers.jsonl", lines), "-o", out)

    assert done.code == 1, done.err
    assert f"line {ROWS + 1}: answer: is missing: put the answer to check there" in done.err
    assert f"line {ROWS + 2}: sources: is another name of 'context', which is given too" in done.err
    results = read_lines(out)
    assert [result["position"] for result in results] == list(range(ROWS + 2))
    assert [result["custom_id"] for result in results[:ROWS]] == [row["custom_id"] for row in rows]
    assert [result["state"] for result in results] == ["completed"] * ROWS + ["failed"] * 2
    assert home.workers() == {}
    for number, (job, result) in enumerate(zip(rows, results, strict=False)):
        answer, sources = job.get("response") or job["answer"], job.get("context") or job["sources"]
        assert_spans_are_exact(result, answer, sources)
        verdicts = {claim["verdict"] for claim in result["claims"]}
        assert (verdicts == {"supported"}) == (number % 2 == 0)
        assert result["outcome"] == ("answered" if number % 2 == 0 else "partial")
        assert (result["tokens_used"], Decimal(result["cost_usd"])) == (None, 0)
    assert f"wrong facts in claims: {ROWS // 2} number\n" in done.err
    status = home.run("status", results[0]["batch_id"])
    assert re.search(rf"wrong facts +{ROWS // 2} number *\n", status.out), status.out
    assert home.run("status", results[0]["batch_id"], "--json").json()["errors"] == {"number": ROWS // 2}


def test_a_check_starts_only_checking_workers(home: Home, tmp_path: Path) -> None:
    input_path = write_lines(tmp_path / "answers.jsonl", [{**row(0), "scheduled_at": "2999-01-01T00:00:00Z"}])
    command = home.start("check", input_path, "-o", tmp_path / "out", drain_s="1")
    batch = command.batch()
    command.await_message("submitted")

    assert {name.partition("-")[0] for name in home.workers()} == {"check"}
    command.process.terminate()
    assert command.ended().code == 130
    assert home.run("cancel", batch).code == 0
