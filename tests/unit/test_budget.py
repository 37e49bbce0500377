"""The measure of the code's size, and its limits."""

import tomllib
from pathlib import Path

import pytest

from tests import budget

BRANCHY = "def f(a):\n" + "".join(f"    if a == {n}:\n        return {n}\n" for n in range(9)) + "    return a {}\n"


def test_layout_comments_and_docstrings_weigh_nothing() -> None:
    packed = "a = f(1, 2)\n"
    airy = '"""Says\nmuch."""\n\n# why\na = f(\n    1,  # one\n    2\n)\n'

    assert [budget.weigh(text, budget.nodes_of(text))["tokens"] for text in (packed, airy)] == [8, 8]


def test_classes_constants_and_long_functions_are_counted() -> None:
    code = "A = 1\nB: float = 60 * 0.5\nC = True\nD: int\nE = 'x'\nclass F:\n    g = 2\n" + BRANCHY.format("")

    figures = budget.weigh(code, budget.nodes_of(code))

    assert (figures["classes"], figures["constants"], figures["long"]) == (1, 2, 0)


def test_the_tenth_branch_makes_a_function_long() -> None:
    code = BRANCHY.format("if a else 0")

    assert budget.weigh(code, budget.nodes_of(code))["long"] == 1


def test_a_module_with_one_user_is_lone_and_rooms_are_two_levels_deep(tmp_path: Path) -> None:
    files = {
        "worker/a/deep/one.py": "",
        "worker/a/two.py": "from worker.a.deep import one\n",
        "worker/b/three.py": "import worker.a.two\n",
        "worker/b/four.py": "import worker.a.two\n",
        "tests/unit/test_three.py": "import worker.b.three\n",
    }
    for name, source in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)

    lone = {room: row["lone"] for room, row in budget.rooms(tmp_path, "worker").items()}

    assert lone == {"worker/a": 1, "worker/b": 0}
    assert list(budget.rooms(tmp_path, "tests")) == ["tests"]


def test_words_of_readme_changelog_and_pages_count(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "CHANGELOG.md", "docs/a.md"):
        (tmp_path / name).write_text("two words\n")

    assert budget.words(tmp_path) == 6


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


def test_a_room_without_limits_and_limits_without_a_room_are_problems() -> None:
    lines = budget.problems({"worker/new": {"tokens": 1}}, {"worker/old": {"tokens": 1}})

    assert [line.split(":")[0] for line in lines] == ["worker/new has no limits", "worker/old has limits and no files"]


def test_limits_are_lowered_to_a_hundredth_above_the_figure_and_never_raised() -> None:
    text = budget.lowered({"tasks": {"tokens": 1000, "long": 3}}, {"tasks": {"tokens": 2000, "long": 2}})

    assert tomllib.loads(text) == {"tasks": {"tokens": 1010, "long": 2}}
