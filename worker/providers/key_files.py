"""Reads variables from the environment, or from files as mounted secrets are: the file that ``NAME_FILE`` names stands for ``NAME``."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path


class Variables(Mapping[str, str]):
    """The environment of a process, with the contents of such files; a file that can't be read is a variable that is not set.

    Args:
        environment: the process's own unless given.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = os.environ if environment is None else environment

    def __getitem__(self, name: str) -> str:
        value = self._environment.get(name)
        if value:
            return value
        path = self._environment.get(f"{name}_FILE")
        if not path:
            raise KeyError(name)
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._environment)

    def __len__(self) -> int:
        return len(self._environment)

    def stamp(self, name: str) -> tuple[int, int] | None:
        """Changes when the file of a variable is replaced; None for one that is in the environment itself."""
        path = self._environment.get(f"{name}_FILE")
        if not path or self._environment.get(name):
            return None
        try:
            status = Path(path).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino
