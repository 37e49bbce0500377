"""Reads variables from the environment, or from files (the one that ``NAME_FILE`` names stands for ``NAME``), and tells which are secret."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote

from tasks.errors import ConfigurationError


def secrets_in_files(names: Iterable[str]) -> dict[str, str]:
    """The variables among these that stand in files; raises ``ConfigurationError`` for one that has no value there, or two."""
    secrets = {}
    for name in names:
        if path := os.environ.get(f"{name}_FILE"):
            if os.environ.get(name):
                raise ConfigurationError(f"{name} and {name}_FILE are both set; keep one of them")
            secrets[name] = _read_of(name, path)
            if not secrets[name]:
                raise ConfigurationError(f"{name}_FILE names {path}, which is empty; write the value of {name} into it")
    return secrets


_SECRET = re.compile(r"(?:key|secret|password|token)$", re.IGNORECASE)
_LOGIN = re.compile(r"://([^\s/]*:[^\s/]+)@")

_SHORTEST = 8
"""Characters of a value that is replaced wherever it stands: a short one may be any word."""


class Variables:
    """The environment of a process, with the contents of such files.

    Args:
        environment: the process's own unless given.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment

    def get(self, name: str) -> str | None:
        """The value of a variable; None where it has none, or its file can't be read."""
        if value := self._environment.get(name):
            return value
        try:
            return _read(self._environment[f"{name}_FILE"])
        except (KeyError, OSError, UnicodeDecodeError):
            return None

    def require_files(self, names: Iterable[str]) -> None:
        """Raises ``ConfigurationError`` for a variable among these whose file can't be read; an empty one has no value."""
        for name in names:
            if not self._environment.get(name) and (path := self._environment.get(f"{name}_FILE")):
                _read_of(name, path)

    @property
    def secrets(self) -> frozenset[str]:
        """The values that nobody is shown: of each variable that is named as a secret is, and what a URL says before its host.

        Those of clouds and proxies among them, which their own libraries read.
        """
        names = {name.removesuffix("_FILE") for name in self._environment}
        values = [value for name in names if _SECRET.search(name) and (value := self.get(name))]
        logins = [login for value in self._environment.values() for login in _LOGIN.findall(value)]
        return frozenset(value for value in (*values, *logins, *map(unquote, logins)) if len(value) >= _SHORTEST)

    def stamp(self, name: str) -> tuple[int, int] | None:
        """Changes when the file of a variable is replaced; None for one that is in the environment itself."""
        path = self._environment.get(f"{name}_FILE")
        try:
            status = Path(path).stat() if path and not self._environment.get(name) else None
        except OSError:
            return None
        return status and (status.st_mtime_ns, status.st_ino)


def _read_of(name: str, path: str) -> str:
    try:
        return _read(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigurationError(
            f"{name}_FILE names {path}, which can't be read ({reason}); correct the path or its rights"
        ) from None


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").strip()
