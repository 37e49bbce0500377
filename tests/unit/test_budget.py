"""The measure of the code's size, and its limits."""

from pathlib import Path

import pytest

from tests import budget


def test_layout_comments_and_docstrings_weigh_nothing() -> None:
    packed = "a = f(1, 2)\n"
    airy = '"""Says\nmuch."""\n\n# why\na = f(\n    1,  # one\n    2\n)\n'

    assert [budget.weigh(text, budget.nodes_of(text))["tokens"] for text in (packed, airy)] == [8, 8]


def test_modules_that_import_each_other_are_one_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imports = {"__init__": "", "a": "circular.b", "b": "circular.c", "c": "circular.a", "d": "circular.a"}
    (tmp_path / "circular").mkdir()
    for name, target in imports.items():
        (tmp_path / "circular" / f"{name}.py").write_text(f"import {target}\n" if target else "")
    monkeypatch.syspath_prepend(tmp_path)

    assert budget.circles("circular") == {frozenset({"circular.a", "circular.b", "circular.c"})}


def test_a_figure_above_its_limit_is_a_problem_that_says_by_how_much() -> None:
    (line,) = budget.problems({"tasks": {"tokens": 1234, "long": 2}}, {"tasks": {"tokens": 1200, "long": 2}})

    assert line.startswith(
        "tasks has 1,234 tokens, 34 more than its limit. Take as much away in the same room, or raise the"
    )
