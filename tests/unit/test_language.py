"""The measure of unclear names and question openers, and its limits."""

from pathlib import Path

import pytest

from tests import language
from tests.language import Language

SOURCE = '''"""Finds rows."""


class Finder:
    """What finds rows."""

    def __init__(self, told: str) -> None:
        self.found = [one for one in told]
        other = told
'''


def measured(source: str) -> Language:
    result = Language()
    result.add(Path("finder.py"), source)
    return result


def write_tree(root: Path, limits: str, **files: str) -> None:
    (root / "pyproject.toml").write_text(f"[tool.language]\n{limits}\n")
    for name, source in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".py").write_text(source)


def test_parameters_attributes_and_variables_count_as_names() -> None:
    result = measured(SOURCE)

    assert sorted(name for _, _, name in result.unclear) == ["found", "one", "told"]
    assert result.names == 7


def test_a_docstring_that_opens_with_a_question_word_is_a_finding() -> None:
    result = measured(SOURCE)

    assert result.docstrings == 2
    assert [(line, text) for _, line, text in result.questions] == [(5, "What finds rows.")]


@pytest.mark.parametrize("name", ["found", "_found", "FOUND", "read_"])
def test_underscores_and_case_do_not_hide_a_name(name: str) -> None:
    assert len(measured(f"{name} = 1").unclear) == 1


@pytest.mark.parametrize("name", ["founder", "read", "found_rows"])
def test_longer_names_are_clear(name: str) -> None:
    assert measured(f"{name} = 1").unclear == []


def test_a_path_over_its_limits_is_a_problem(tmp_path: Path) -> None:
    write_tree(tmp_path, '"tool" = { names = 400, openers = 40 }', tool__finder=SOURCE)

    names, openers = language.problems(tmp_path, language.limits_of(tmp_path))

    assert names == "tool: 428.6 unclear names per 1,000, limit 400: told (1), found (1), one (1)"
    assert openers == "tool: 50.0 % of the docstrings open with a question word, limit 40"


def test_a_longer_path_has_limits_of_its_own(tmp_path: Path) -> None:
    limits = '"tool" = { names = 0, openers = 0 }\n"tool/old" = { names = 500, openers = 50 }'
    write_tree(tmp_path, limits, tool__clean="row = 1\n", tool__old__finder=SOURCE)

    assert language.problems(tmp_path, language.limits_of(tmp_path)) == []


def test_limits_of_a_path_that_does_not_exist_are_a_problem(tmp_path: Path) -> None:
    write_tree(tmp_path, '"gone" = { names = 0, openers = 0 }')

    (problem,) = language.problems(tmp_path, language.limits_of(tmp_path))

    assert problem.startswith("gone: no such path")


def test_limits_are_lowered_and_never_raised() -> None:
    text = '"a" = { names = 500, openers = 60 }\n"b" = { names = 1, openers = 0 }\n'

    assert language.lowered(text, {"a": measured(SOURCE), "b": measured(SOURCE)}) == (
        '"a" = { names = 429, openers = 50 }\n"b" = { names = 1, openers = 0 }\n'
    )


def test_every_banned_name_has_one_reason() -> None:
    words = [word for words in language.UNCLEAR.values() for word in words.split()]

    assert len(words) == len(set(words)) == len(language.BANNED)
