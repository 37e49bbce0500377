"""The project of a folder: found upwards, never across a boundary, never of another user."""

import os
from pathlib import Path

import pytest

from worker.cli.project import adopt_project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    root = tmp_path / "project"
    (root / "a" / "b").mkdir(parents=True)
    (root / "nightdesk.toml").write_text('provider = "extractive"\n')
    return root


def adopted(folder: Path, **environment: str) -> dict[str, str]:
    adopt_project(environment, folder)
    return environment


def test_home_and_settings_of_the_nearest_folder_upwards_are_used(project: Path) -> None:
    expected = {"NIGHTDESK_HOME": str(project / ".nightdesk"), "NIGHTDESK_CONFIG": str(project / "nightdesk.toml")}
    assert adopted(project / "a" / "b") == adopted(project) == expected
    (project / "a" / ".nightdesk").mkdir()
    assert adopted(project / "a" / "b") == {"NIGHTDESK_HOME": str(project / "a" / ".nightdesk")}


def test_nothing_changes_for_a_home_that_is_named_or_in_the_present_place(project: Path) -> None:
    assert adopted(project, NIGHTDESK_HOME="elsewhere") == {"NIGHTDESK_HOME": "elsewhere"}
    (project / "a" / ".nightdesk").mkdir()
    assert adopted(project / "a") == {}
    assert adopted(project, NIGHTDESK_CONFIG="own.toml")["NIGHTDESK_CONFIG"] == "own.toml"


def test_a_home_in_the_settings_is_counted_from_their_folder(project: Path) -> None:
    (project / "nightdesk.toml").write_text('home = "ledgers/one"\n')
    assert adopted(project / "a")["NIGHTDESK_HOME"] == str(project / "ledgers" / "one")


def test_the_search_ends_at_the_users_home_directory(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project / "a"))
    assert adopted(project / "a" / "b") == {}


def test_nothing_of_another_user_is_adopted(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user seems to be another one: the owner of a file can only be changed by root."""
    (project / ".nightdesk").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: project.stat().st_uid + 1)
    assert adopted(project / "a") == {}
    assert adopted(project) == {}, "a home in the present place stays what it is, its settings file is not read"
