"""Loads prompt templates by name and version, from this folder and from one of the installation's own.

A template is a file ``<name>@<version>.j2``. It defines the wording and the order; `tasks.prompting.sources.injection` fills it.
"""

import hashlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from traceback import extract_tb

from jinja2 import FileSystemLoader, StrictUndefined, Template, TemplateNotFound, TemplateSyntaxError
from jinja2.meta import find_referenced_templates
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tasks.errors import InputError
from tasks.prompting.template_files import (
    FOLDER,
    PART_FILE,
    PROMPT_FILE,
    available,
    own_folders,
    own_hashes,
    present_version,
    prompt_hash,
    version_key,
)


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A compiled template; ``sha256`` covers its file and the files that it extends or includes, in that order."""

    name: str
    version: str
    sha256: str
    compiled: Template = field(compare=False)
    path: Path = field(compare=False)
    own: bool = False
    """It comes from the installation's own folder."""


def use_own_folder(folder: Path | None) -> None:
    """Makes this process read an installation's own templates beside the shipped ones; None: the shipped ones alone.

    Raises ``InputError`` naming a file that is no template by its name, or that takes the name of a shipped one.
    """
    own_folders[:] = [] if folder is None else [folder]
    own_hashes.clear()
    for cached in (available, present_version, prompt_hash, load_inner, load, load_part, _environment, _compile):
        cached.cache_clear()
    if folder is None:
        return
    for path in sorted(folder.glob("*.j2")):
        if not PROMPT_FILE.fullmatch(path.name) and not PART_FILE.fullmatch(path.name):
            raise InputError(f"{path} is not named NAME@VERSION.j2, for example terse@1.j2 (lower case, digits, _)")
        if (FOLDER / path.name).exists():
            raise InputError(
                f"{path} has the name and version of a template of Nightdesk, and answers are recorded under them: give it "
                "another name, or a version from 100 on, which Nightdesk never uses"
            )


@cache
def load_inner(name: str, version: str | None = None) -> PromptTemplate:
    """Loads a shipped template that is no prompt of a job (its name begins with ``_``), by default in its newest version."""
    versions = [
        match["version"]
        for path in FOLDER.glob(f"{name}@*.j2")
        if (match := PART_FILE.fullmatch(path.name)) and match["name"] == name
    ]
    if not versions or (version is not None and version not in versions):
        raise InputError(
            f"no template {name!r} in version {version or 'any'}; there are {', '.join(versions) or 'none'}"
        )
    return _compile(name, version or max(versions, key=version_key))


@cache
def load(name: str, version: str | None) -> PromptTemplate:
    """Loads a prompt, by default in its newest version; raises ``InputError`` with the versions that exist."""
    return _compile(name, present_version(name, version))


@cache
def load_part(name: str, version: str) -> PromptTemplate:
    """Loads one version of a template that is no prompt by itself (its name begins with ``_``)."""
    return _compile(name, version)


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(
        loader=FileSystemLoader([FOLDER, *own_folders]),
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
    paths: list[Path] = []
    while pending:
        path = _path_of(pending.pop(0), paths)
        paths.append(path)
        content = path.read_bytes()
        if b"\x00" in content:
            raise InputError(f"{path} holds a NUL character, which marks slots")
        digest.update(content)
        pending.extend(_parts(path, content))
    try:
        compiled = _environment().get_template(file)
    except TemplateSyntaxError as error:
        raise InputError(f"{error.filename or paths[0]}, line {error.lineno}: {error.message}") from None
    return PromptTemplate(name, version, digest.hexdigest(), compiled, paths[0], own=paths[0].parent != FOLDER)


def _path_of(file: str, users: list[Path]) -> Path:
    """The path of a template's file; the loader refuses one outside the folders."""
    loader = _environment().loader
    assert loader is not None
    try:
        _, path, _ = loader.get_source(_environment(), file)
    except TemplateNotFound:
        user = f"{users[-1]} extends or includes {file!r}" if users else repr(file)
        raise InputError(
            f"{user}, which is in none of the folders {', '.join(map(str, (FOLDER, *own_folders)))}"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(f"a template is not UTF-8: {file}: {error}") from None
    assert path is not None
    return Path(path)


def _parts(path: Path, content: bytes) -> list[str]:
    """The files that a template extends or includes; the record's hash covers them."""
    try:
        references = list(find_referenced_templates(_environment().parse(content.decode())))
    except TemplateSyntaxError as error:
        raise InputError(f"{path}, line {error.lineno}: {error.message}") from None
    if None in references:
        raise InputError(f"{path} extends or includes a file whose name is computed: write the name itself")
    return [part for part in references if part is not None]


def place_of(error: Exception) -> str:
    """File and line of the template in which a rendering failed."""
    frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename.endswith(".j2")]
    return f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "a template"
