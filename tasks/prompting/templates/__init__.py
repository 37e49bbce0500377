"""Loads prompt templates by name and version.

A template is a file ``<name>@<version>.j2``. It defines the wording and the order; `tasks.prompting.sources.injection` fills it.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import FileSystemLoader, StrictUndefined, Template
from jinja2.meta import find_referenced_templates
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tasks.errors import InputError

FOLDER = Path(__file__).parent
_FILE = re.compile(r"(?P<name>[a-z][a-z0-9_]*)@(?P<version>\d+(?:\.\d+)*)\.j2")
_INNER_FILE = re.compile(r"(?P<name>_[a-z][a-z0-9_]*)@(?P<version>\d+(?:\.\d+)*)\.j2")


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A compiled template; ``sha256`` covers its file and the files that it extends or includes, in that order."""

    name: str
    version: str
    sha256: str
    compiled: Template


@cache
def available() -> dict[str, tuple[str, ...]]:
    """Names of the prompts with their versions, oldest first; files that begin with ``_`` are parts, not prompts."""
    versions_by_name: dict[str, list[str]] = {}
    for path in sorted(FOLDER.glob("*.j2")):
        if match := _FILE.fullmatch(path.name):
            versions_by_name.setdefault(match["name"], []).append(match["version"])
    return {name: tuple(sorted(versions, key=_version_key)) for name, versions in versions_by_name.items()}


@cache
def load_inner(name: str, version: str | None = None) -> PromptTemplate:
    """Loads a template that is no prompt of a job (its name begins with ``_``), by default in its newest version."""
    versions = [
        match["version"]
        for path in FOLDER.glob(f"{name}@*.j2")
        if (match := _INNER_FILE.fullmatch(path.name)) and match["name"] == name
    ]
    if not versions or (version is not None and version not in versions):
        raise InputError(
            f"no template {name!r} in version {version or 'any'}; there are {', '.join(versions) or 'none'}"
        )
    return _compile(name, version or max(versions, key=_version_key))


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@cache
def load(name: str, version: str | None) -> PromptTemplate:
    """Loads a prompt, by default in its newest version; raises ``InputError`` with the versions that exist."""
    versions = available().get(name)
    if versions is None:
        raise InputError(f"no prompt {name!r}; there are {', '.join(available())}", field="config.prompt_name")
    if version is not None and version not in versions:
        raise InputError(
            f"prompt {name!r} has no version {version!r}; there are {', '.join(versions)}",
            field="config.prompt_version",
        )
    return _compile(name, version or versions[-1])


def load_part(name: str, version: str) -> PromptTemplate:
    """Loads one version of a template that is no prompt by itself (its name begins with ``_``)."""
    return _compile(name, version)


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        auto_reload=False,
    )


@cache
def _compile(name: str, version: str) -> PromptTemplate:
    file = f"{name}@{version}.j2"
    digest = hashlib.sha256()
    pending = [file]
    while pending:
        content = (FOLDER / pending.pop(0)).read_bytes()
        if b"\x00" in content:
            raise ValueError(f"template {file} holds a NUL character, which marks slots")
        digest.update(content)
        pending.extend(part for part in find_referenced_templates(_environment().parse(content.decode())) if part)
    return PromptTemplate(name, version, digest.hexdigest(), _environment().get_template(file))
