"""``nightdesk run`` from files to results, with embedded servers that it starts and stops itself."""

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.acceptance.cli_home import Home, new_home, question, read_lines, write_lines


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    """Without a job at first; each run finds the data of the one before, and no process."""
    with new_home() as home:
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


def test_a_second_run_adds_a_batch_and_replaces_the_output(home: Home, tmp_path: Path) -> None:
    input_path = write_lines(tmp_path / "questions.jsonl", [question(7)])
    out = tmp_path / "answers.jsonl"
    out.write_text("something older\n")

    done = home.run("run", input_path, "-o", out, "--json")

    assert done.code == 0, done.err
    assert done.json()["states"] == {"completed": 1}
    assert [result["custom_id"] for result in read_lines(out)] == ["q7"]
    assert done.json()["batch_id"] in {batch["batch_id"] for batch in home.run("status", "--json").json()}


def test_bad_lines_appear_in_the_output_at_their_position(home: Home, tmp_path: Path) -> None:
    lines = [question(40), "", "{not json", question(41, config={"moode": "x"}), question(40), question(42)]
    input_path = write_lines(tmp_path / "questions.jsonl", lines)
    out = tmp_path / "answers.jsonl"

    done = home.run("run", input_path, "-o", out)

    assert done.code == 1
    results = read_lines(out)
    assert [result["state"] for result in results] == ["completed", "failed", "failed", "failed", "completed"]
    assert [result["position"] for result in results] == [0, 2, 3, 4, 5]
    refused = results[1:4]
    assert all(result["job_id"] is None for result in refused)
    assert {result["failure"]["kind"] for result in refused} == {"invalid_request"}
    assert "line 3: not valid JSON" in refused[0]["failure"]["message"]
    assert "line 4: config.moode" in refused[1]["failure"]["message"]
    assert "line 5: custom_id: 'q40' is already in" in refused[2]["failure"]["message"]
    assert all(result["failure"]["message"] in done.err for result in refused)

    later = home.run("results", results[0]["batch_id"])
    assert [json.loads(line) for line in later.out.splitlines()] == results


def test_a_row_has_one_line_in_every_form_of_a_file_and_on_every_screen(home: Home, tmp_path: Path) -> None:
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

    done = home.run("run", *paths, "-o", tmp_path / "answers.jsonl")

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
    assert home.run("results", batch).out == (tmp_path / "answers.jsonl").read_text()
    for line, text in ((2, texts[0][0]), (8, texts[1][2]), (9, texts[2][0]), (14, texts[3][2])):
        view = home.run("show", f"{batch}:line{line}").out
        assert " ".join(text.split()) in " ".join(view.split())
        assert f"{batch}, line {line}" in view


def test_strict_submits_nothing_when_a_line_is_bad(home: Home, tmp_path: Path) -> None:
    # More than a chunk, so that good jobs are in the transaction when the bad line comes.
    input_path = write_lines(tmp_path / "questions.jsonl", [*(question(number) for number in range(600)), "{"])
    out = tmp_path / "answers.jsonl"
    batches = len(home.run("status", "--json", "--limit", "1000").json())

    done = home.run("run", "--strict", input_path, "-o", out)

    assert done.code == 2
    assert "line 601: not valid JSON" in done.err
    assert not out.exists()
    assert len(home.run("status", "--json", "--limit", "1000").json()) == batches
    assert home.workers() == {}


def test_standard_input_and_gzip_are_read_and_standard_output_holds_results_only(home: Home, tmp_path: Path) -> None:
    text = "\ufeff" + "\r\n".join(json.dumps(question(number)) for number in range(2))

    done = home.run("run", "-", "-o", "-", "--quiet", stdin=gzip.compress(text.encode()))

    assert done.code == 0, done.err
    # A worker that a busy machine lets end late is waited for, and that is said.
    assert [line for line in done.err.splitlines() if not line.startswith("waiting for the calls in flight")] == []
    assert [json.loads(line)["custom_id"] for line in done.out.splitlines()] == ["q0", "q1"]


def test_a_line_with_a_known_idempotency_key_gets_the_earlier_result(home: Home, tmp_path: Path) -> None:
    first = write_lines(tmp_path / "first.jsonl", [question(0, idempotency_key="once")])
    then = write_lines(tmp_path / "then.jsonl", [question(1), question(0, idempotency_key="once"), question(2)])
    assert home.run("run", first, "-o", tmp_path / "first.out").code == 0

    done = home.run("run", then, "-o", tmp_path / "then.out")

    assert done.code == 0, done.err
    results = read_lines(tmp_path / "then.out")
    assert [(result["position"], result["custom_id"]) for result in results] == [(0, "q1"), (1, "q0"), (2, "q2")]
    assert results[1]["job_id"] == read_lines(tmp_path / "first.out")[0]["job_id"]
    assert results[1]["response"]


def test_the_same_files_with_the_same_key_are_the_same_batch(home: Home, tmp_path: Path) -> None:
    input_path = write_lines(tmp_path / "questions.jsonl", [question(number) for number in range(2)])
    results = []
    for out in (tmp_path / "one", tmp_path / "two"):
        assert home.run("run", input_path, "-o", out, "--key", "nightly").code == 0
        results.append(read_lines(out))
    assert results[0] == results[1]

    other = write_lines(tmp_path / "other.jsonl", [question(9)])
    done = home.run("run", other, "-o", tmp_path / "three", "--key", "nightly")
    assert done.code == 2
    assert "'nightly' was used before" in done.err


def test_a_file_without_a_valid_job_needs_no_server(tmp_path: Path) -> None:
    with new_home(seeded=False) as fresh:
        done = fresh.run("run", write_lines(tmp_path / "bad.jsonl", ["{", "[]"]), "-o", tmp_path / "out")
        assert done.code == 2
        assert not (tmp_path / "out").exists()

        done = fresh.run("run", write_lines(tmp_path / "blank.jsonl", ["", "  "]), "-o", tmp_path / "out")
        assert done.code == 2
        assert "no job in there" in done.err

        assert not fresh.place.has_servers


def test_the_demo_makes_its_servers_and_shows_an_answer_and_sums_up() -> None:
    with new_home(seeded=False) as fresh:
        done = fresh.run("demo")

        assert done.code == 0, done.err
        for heading in ("Question", "Answer", "Claims", "Sources", "answered  unverified  abstained  grounding  cited"):
            assert heading in done.out
        assert len(read_lines(fresh.root / "demo.jsonl")) == 48
        assert fresh.workers() == {}
        assert not fresh.servers_run()
