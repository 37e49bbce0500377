"""A command that submits nothing leaves last night's output as it was, and no command writes over an output of another kind."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli_home import Home, new_home, new_running_home, question, read_lines, write_lines


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with new_home() as home:
        yield home


UNPRICED = {"mine": {"kind": "openai_chat", "base_url": "http://127.0.0.1:9/v1", "model": "m"}}
REFUSALS = {
    "no query": (["run"], {"query": "", "context": ["A source."]}, {}, "'query' is missing"),
    "strict": (["run", "--strict"], {"query": "", "context": ["A source."]}, {}, "nothing was submitted"),
    "provider": (["run", "--provider", "opnai"], question(1), {}, "error: --provider: no provider 'opnai'"),
    "key": (["run"], question(1), {"provider": "openai"}, "error: the provider 'openai' needs a key: set OPENAI_API_KEY"),
    "judge": (["run", "--judge", "nobody"], question(1, config={"checkers": ["judge"]}), {}, "no provider 'nobody'"),
    "price": (
        ["run", "--max-cost-usd", "1"], question(1), {"provider": "mine", "providers": json.dumps(UNPRICED)}, "error: the price of model m"
    ),
    "callback": (["run", "--callback-url", "http://10.0.0.1/"], question(1), {}, "callback"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "form"), [("no query", "csv"), *((name, "jsonl") for name in REFUSALS)])
def test_a_command_that_submits_nothing_leaves_its_output_as_it_was(
    home: Home, tmp_path: Path, name: str, form: str
) -> None:
    arguments, line, settings, message = REFUSALS[name]
    out = tmp_path / f"last.{form}"
    out.write_text("the results of last night\n")
    lines = write_lines(tmp_path / "in.jsonl", [line] * 3)

    done = home.run(*arguments, lines, "-o", out, **settings)

    assert done.code == 2, done.err
    assert message in done.err
    assert out.read_text() == "the results of last night\n"
    assert {each.name for each in tmp_path.iterdir()} == {"in.jsonl", f"last.{form}"}
    if message.startswith("error: "):
        assert "3 of 3" not in done.err
        assert "line 1" not in done.err, "it is no fault of a line"


def test_a_line_that_names_its_own_provider_is_at_fault_itself(home: Home, tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "in.jsonl", [question(1, config={"provider": "opnai"})])
    done = home.run("run", lines, "-o", tmp_path / "out.jsonl", "--json")
    assert done.code == 2
    assert "line 1: config.provider: no provider 'opnai'" in done.err
    document = done.json()
    assert (document["output"], document["batch_id"], document["exit_code"]) == (None, None, 2)
    assert [each["position"] for each in document["invalid_lines"]] == [0]


def test_no_command_writes_over_a_file_of_anything_else(tmp_path: Path) -> None:
    with new_running_home() as home:
        lines = write_lines(tmp_path / "in.jsonl", [question(1)])
        first = tmp_path / "first.jsonl"
        assert home.run("run", lines, "-o", first).code == 0
        batch = read_lines(first)[0]["batch_id"]
        precious = tmp_path / "precious.jsonl"
        for number, arguments in enumerate(
            (
                ["results", batch],
                ["report", batch],
                ["label", "export"],
                ["check", write_lines(tmp_path / "check.jsonl", [question(2, response="It lasts 4 years. [1]")])],
                ["run", write_lines(tmp_path / "other.jsonl", [question(3)])],
            ),
            start=1,
        ):
            precious.write_text(f"{number}\n")
            done = home.run(*arguments, "-o", precious)
            assert done.code == 0, done.err
            copy = tmp_path / f"precious.previous{f'-{number}' if number > 1 else ''}.jsonl"
            assert copy.read_text() == f"{number}\n", (arguments, done.err)
            assert copy.name in done.err, "it is said where the file is"
        before = sorted(tmp_path.iterdir())
        assert home.run("results", batch, "-o", first).code == 0
        assert sorted(tmp_path.iterdir()) == before, "the same batch takes the place of its own results"
