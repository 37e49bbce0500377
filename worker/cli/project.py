"""Finds the project of the present folder: the nearest folder upwards with a home or a settings file, as git does.

Nothing is looked for where NIGHTDESK_HOME is set. The search ends at the file system's boundary, at the user's home
directory, and at the first folder of another user: a settings file may name code that is loaded.
"""

import os
import tomllib
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import NamedTuple

HOME = ".nightdesk"
CONFIG = "nightdesk.toml"


class Project(NamedTuple):
    """A folder with a home or a settings file."""

    folder: Path
    config: Path | None

    @property
    def home(self) -> Path:
        """The home: that of its settings file, from its folder, or the one in it."""
        try:
            home = None if self.config is None else tomllib.loads(self.config.read_text(encoding="utf-8")).get("home")
        except (OSError, ValueError):
            # It is reported where settings are loaded.
            home = None
        return self.folder / (Path(home).expanduser() if isinstance(home, str) else HOME)


def adopt_project(environment: MutableMapping[str, str], folder: Path) -> None:
    """Sets home and settings file of the project around a folder, unless the environment names a home."""
    if environment.get("NIGHTDESK_HOME"):
        return
    project = find_project(folder)
    if project is None:
        return
    if project.folder != folder or project.config is not None:
        environment["NIGHTDESK_HOME"] = str(project.home)
    if project.config is not None:
        environment.setdefault("NIGHTDESK_CONFIG", str(project.config))


def find_project(folder: Path) -> Project | None:
    """The project around a folder; None where there is none of this user."""
    for each in _folders(folder):
        config = each / CONFIG
        own_config = config if _is_own(config) else None
        if own_config is not None or ((each / HOME).is_dir() and (each == folder or _is_own(each / HOME))):
            return Project(each, own_config)
    return None


def _folders(folder: Path) -> Iterator[Path]:
    """The folder, and those above it of the same user and file system, to the user's home directory."""
    try:
        device, top = folder.stat().st_dev, Path.home()
    except (OSError, RuntimeError):
        return
    yield folder
    for before, each in zip((folder, *folder.parents), folder.parents, strict=False):
        if before == top or not _is_own(each) or each.stat().st_dev != device:
            return
        yield each


def _is_own(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.geteuid()
    except OSError:
        return False
