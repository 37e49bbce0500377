"""``nightdesk run`` from files to results, with embedded servers that it starts and stops itself, and with those that are up."""

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.acceptance.cli_home import Home, new_home, new_running_home, question, read_lines, write_lines

BAD: list[tuple[Any, str]] = [
    ("{not json", "not valid JSON"),
    (question(41, config={"moode": "x"}), "config.moode"),
    (question(40), "custom_id: 'q40' is already in"),
    (
        question(1, config={"provider": "nobody"}),
        "config.provider: no provider 'nobody' is configured; there is anthropic, ",
    ),
    # Half of a surrogate pair, as the escape that JSON allows and Unicode does not.
    ('{"query": "Why?", "context": ["a\\ud800b"]}', "not valid JSON"),
    ({"query": "Why?", "context": ["x" * 5_000_000]}, "context.0.content: "),
]


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    """Without a job at first; each run finds the data of the one before, and no process."""
    with new_home() as home:
        yield home


@pytest.fixture(scope="module")
def running() -> Iterator[Home]:
    with new_running_home() as home:
        yield home


def test_a_file_is_answered_line_by_line_and_nothing_is_left_running(home: Home, tmp_path: Path) -> None:
    input_path = write_lines(tmp_path / "questions.jsonl", [question(number) for number in range(3)])
    out = tmp_path / "answers.jsonl"

    done = home.run("run", input_path, "-o", out)

    assert done.code == 0, done.err
    assert done.out == ""
    assert "3 jobs submitted" in done.err
    assert "\x1b" not in done.err
    results = read_lines(out)
    assert [(result["position"], result["custom_id"]) for result in results] == [(0, "q0"), (1, "q1"), (2, "q2")]
    assert {result["outcome"] for result in results} == {"answered"}
    assert "2 years" in results[0]["response"]
    assert home.workers() == {}
    assert not home.servers_run()


def test_bad_lines_are_named_and_stand_in_the_output_at_their_position(running: Home, tmp_path: Path) -> None:
    lines = [question(40), "", *(line for line, _ in BAD), {"query": "No source?", "context": []}, question(42)]
    out = tmp_path / "answers.jsonl"

    done = running.run("run", write_lines(tmp_path / "questions.jsonl", lines), "-o", out)

    assert done.code == 1
    assert "Traceback" not in done.err
    results = read_lines(out)
    assert [result["outcome"] for result in results] == ["answered", *[None] * len(BAD), "no_evidence", "answered"]
    assert [result["position"] for result in results] == [0, *range(2, len(lines))]
    for number, ((_, message), result) in enumerate(zip(BAD, results[1:], strict=False), start=3):
        assert (result["job_id"], result["state"], result["failure"]["kind"]) == (None, "failed", "invalid_request")
        assert f"line {number}: {message}" in result["failure"]["message"]
        assert len(result["failure"]["message"]) < 500
        assert result["failure"]["message"] in done.err

    later = running.run("results", results[0]["batch_id"])
    assert [json.loads(line) for line in later.out.splitlines()] == results


def test_a_row_has_one_line_in_every_form_of_a_file_and_on_every_screen(running: Home, tmp_path: Path) -> None:
    paths = [tmp_path / f"in.{form}" for form in ("csv", "jsonl", "json", "parquet")]
    texts = [[f"What is due\nafter {number} days?", "", f"Who pays {number} rents?"] for number in range(len(paths))]
    rows = [[{"query": text, "context": "The fee is due."} for text in each] for each in texts]
    with paths[0].open("w", newline="") as table:
        writer = csv.DictWriter(table, rows[0][0])
        writer.writeheader()
        writer.writerows(rows[0])
    write_lines(paths[1], [rows[1][0], "", *rows[1][1:]])
    paths[2].write_text(json.dumps(rows[2], indent=2))
    parquet.write_table(pa.Table.from_pylist(rows[3]), paths[3])

    done = running.run("run", *paths, "-o", tmp_path / "answers.jsonl")

    results = read_lines(tmp_path / "answers.jsonl")
    refused = {result["position"] + 1: result["failure"]["message"] for result in results if result["failure"]}
    assert {line: message.partition(": ")[0].removeprefix(f"{tmp_path}/") for line, message in refused.items()} == {
        3: "in.csv, line 3",
        7: "in.jsonl, line 3 (line 7 of the batch)",
        10: "in.json, element 2 (line 10 of the batch)",
        13: "in.parquet, line 2 (line 13 of the batch)",
    }
    assert all(message in done.err for message in refused.values())
    batch = results[0]["batch_id"]
    assert running.run("results", batch).out == (tmp_path / "answers.jsonl").read_text()
    for line, text in ((2, texts[0][0]), (8, texts[1][2]), (9, texts[2][0]), (14, texts[3][2])):
        view = running.run("show", f"{batch}:line{line}").out
        assert " ".join(text.split()) in " ".join(view.split())
        assert f"{batch}, line {line}" in view


def test_standard_input_and_gzip_are_read_and_standard_output_holds_results_only(running: Home, tmp_path: Path) -> None:
    text = "\ufeff" + "\r\n".join(json.dumps(question(number)) for number in range(2))

    done = running.run("run", "-", "-o", "-", "--quiet", stdin=gzip.compress(text.encode()))

    assert done.code == 0, done.err
    assert done.err == ""
    assert [json.loads(line)["custom_id"] for line in done.out.splitlines()] == ["q0", "q1"]


def test_a_file_without_a_valid_job_needs_no_server(tmp_path: Path) -> None:
    with new_home(seeded=False) as fresh:
        done = fresh.run("run", write_lines(tmp_path / "bad.jsonl", ["{", "[]"]), "-o", tmp_path / "out")
        assert done.code == 2
        assert not (tmp_path / "out").exists()

        done = fresh.run("run", write_lines(tmp_path / "blank.jsonl", ["", "  "]), "-o", tmp_path / "out")
        assert done.code == 2
        assert "no job in there" in done.err

        good = write_lines(tmp_path / "good.jsonl", [question(0)])
        done = fresh.run("run", good, "-o", tmp_path / "out", "--model", "nosuch")
        assert done.code == 2
        assert "has no model 'nosuch': name the provider of the model" in done.err

        assert not fresh.place.has_servers


def test_the_demo_makes_its_servers_and_shows_an_answer_and_sums_up() -> None:
    with new_home(seeded=False) as fresh:
        done = fresh.run("demo")

        assert done.code == 0, done.err
        for heading in ("Question", "Answer", "Claims", "Sources"):
            assert heading in done.out
        assert "48 results written to" in done.err
        assert len(read_lines(fresh.root / "demo.jsonl")) == 48
        assert fresh.workers() == {}
        assert not fresh.servers_run()
