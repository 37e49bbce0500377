"""Finds the files of prompt templates by name and version, and digests them, without the template engine.

A template is a file ``<name>@<version>.j2`` of the folder ``templates``, or of one of the installation's own.
"""

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tasks.errors import InputError

FOLDER = Path(__file__).parent / "templates"
SETTING = "NIGHTDESK_TEMPLATES_DIR"
PROMPT_FILE = re.compile(r"(?P<name>[a-z][a-z0-9_]*)@(?P<version>\d+(?:\.\d+)*)\.j2")
PART_FILE = re.compile(r"(?P<name>_[a-z][a-z0-9_]*)@(?P<version>\d+(?:\.\d+)*)\.j2")
_REFERENCE = re.compile(rb'\{%-? (?:extends|include) "([^"]+)" -?%\}')
"""A tag of a shipped template that names another one, as a test makes sure; in those of an installation the engine finds them."""

own_folders: list[Path] = []
"""The installation's own folder, if it has one."""

own_hashes: dict[tuple[str, str], str] = {}
"""SHA-256 of each prompt in there, by name and version."""


def own_prompts() -> list[tuple[str, str]]:
    """Name and version of each prompt of the installation's own."""
    return [
        (match["name"], match["version"]) for path in _files(own_folders) if (match := PROMPT_FILE.fullmatch(path.name))
    ]


@cache
def available() -> dict[str, tuple[str, ...]]:
    """Names of the prompts with their versions, oldest first; files that begin with ``_`` are parts, not prompts."""
    versions_by_name: dict[str, list[str]] = {}
    for path in _files((FOLDER, *own_folders)):
        if match := PROMPT_FILE.fullmatch(path.name):
            versions_by_name.setdefault(match["name"], []).append(match["version"])
    return {name: tuple(sorted(versions, key=version_key)) for name, versions in sorted(versions_by_name.items())}


def _files(folders: Iterable[Path]) -> list[Path]:
    return sorted((path for folder in folders for path in folder.glob("*.j2")), key=lambda path: path.name)


def version_key(version: str) -> tuple[int, ...]:
    """Orders versions by their numbers."""
    return tuple(int(part) for part in version.split("."))


@cache
def present_version(name: str, version: str | None) -> str:
    """The version of a prompt, by default its newest; raises ``InputError`` with the versions that exist."""
    versions = available().get(name)
    if versions is None:
        raise InputError(f"no prompt {name!r}; there are {', '.join(available())}{_hint()}", field="config.prompt_name")
    if version is not None and version not in versions:
        raise InputError(
            f"prompt {name!r} has no version {version!r}; there are {', '.join(versions)}{_hint()}",
            field="config.prompt_version",
        )
    return version or versions[-1]


def _hint() -> str:
    """The way to templates of one's own, for the end of a message."""
    return f" ({own_folders[0]} is read, too)" if own_folders else f" (templates of your own: {SETTING})"


@cache
def prompt_hash(name: str, version: str | None) -> str:
    """SHA-256 over a prompt's file and the files that it extends or includes; raises ``InputError`` for an unknown one."""
    version = present_version(name, version)
    if (own := own_hashes.get((name, version))) is not None:
        return own
    digest = hashlib.sha256()
    pending = [f"{name}@{version}.j2"]
    while pending:
        content = (FOLDER / pending.pop(0)).read_bytes()
        digest.update(content)
        pending.extend(reference.decode() for reference in _REFERENCE.findall(content))
    return digest.hexdigest()
