"""The measure of unclear names and question openers, and its limits."""

from pathlib import Path

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


def test_a_path_over_its_limits_is_a_problem(tmp_path: Path) -> None:
    write_tree(tmp_path, '"tool" = { names = 400, openers = 40 }', tool__finder=SOURCE)

    names, openers = language.problems(tmp_path, language.limits_of(tmp_path))

    assert names == "tool: 428.6 unclear names per 1,000, limit 400: told (1), found (1), one (1)"
    assert openers == "tool: 50.0 % of the docstrings open with a question word, limit 40"
