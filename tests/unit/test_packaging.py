"""The wheel holds every file that the code reads: templates, tables, models, scripts."""

import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_every_data_file_of_a_package_is_in_the_wheel() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    packaged = {
        file
        for package, patterns in project["tool"]["setuptools"]["package-data"].items()
        for pattern in patterns
        for file in REPOSITORY.joinpath(*package.split(".")).glob(pattern)
    }
    files = {file for root in ("schemas", "tasks", "worker") for file in (REPOSITORY / root).rglob("*")}
    assert {file for file in files if file.is_file() and file.suffix not in {".py", ".pyc"}} == packaged
