"""Finds the project of the present folder: the nearest folder upwards with a home or a settings file, as git does.

Nothing is looked for where NIGHTDESK_HOME is set. The search ends at the user's home directory, and at the first folder of
another user: a settings file may name code that is loaded.
"""

import os
import tomllib
from collections.abc import MutableMapping
from pathlib import Path

HOME = ".nightdesk"
CONFIG = "nightdesk.toml"


def adopt_project(environment: MutableMapping[str, str], folder: Path) -> None:
    """Sets home and settings file of the project around a folder, unless the environment names a home."""
    if environment.get("NIGHTDESK_HOME"):
        return
    top = Path(os.path.expanduser("~"))  # noqa: PTH111 - that of pathlib raises for a user without one
    for each in (folder, *folder.parents):
        config = each / CONFIG
        if _is_own(config):
            environment["NIGHTDESK_HOME"] = str(each / _home_in(config))
            environment.setdefault("NIGHTDESK_CONFIG", str(config))
            return
        if (each / HOME).is_dir() and (each == folder or _is_own(each / HOME)):
            if each != folder:
                environment["NIGHTDESK_HOME"] = str(each / HOME)
            return
        if each == top or not _is_own(each.parent):
            return


def _home_in(config: Path) -> Path:
    """The home that a settings file names, from its folder, or the one in it."""
    try:
        home = tomllib.loads(config.read_text(encoding="utf-8")).get("home")
    except (OSError, ValueError):
        # It is reported where settings are loaded.
        home = None
    return Path(home).expanduser() if isinstance(home, str) else Path(HOME)


def _is_own(path: Path) -> bool:
    try:
        return path.stat().st_uid == os.geteuid()
    except OSError:
        return False
