"""Loads prompt templates by name and version, and fills them without passing untrusted text through the engine.

A template is a file ``<name>@<version>.j2``. It defines the wording and the order. Every value from outside (the
question, a source, a role) is a numbered slot while the template renders and replaces its slot afterwards. A text can
therefore neither run as template code nor forge a slot, a message or a source.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import orjson
from jinja2 import FileSystemLoader, StrictUndefined, Template
from jinja2.meta import find_referenced_templates
from jinja2.sandbox import ImmutableSandboxedEnvironment

from schemas.model_call import Message, Role, SourcePart, TextPart
from tasks.errors import InputError

FOLDER = Path(__file__).parent
_FILE = re.compile(r"(?P<name>[a-z][a-z0-9_]*)@(?P<version>\d+(?:\.\d+)*)\.j2")
_INNER_FILE = re.compile(r"(?P<name>_[a-z][a-z0-9_]*)@(?P<version>\d+(?:\.\d+)*)\.j2")
_MARK = re.compile("\x00(\\w+)\x00")


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


class Slots:
    """The values that replace the numbered slots after rendering.

    Args:
        filtered: a function for each text value, such as defusing; None: no change.
    """

    def __init__(self, filtered: Callable[[str], str] | None = None) -> None:
        self.values: list[Any] = []
        self._filtered = filtered

    def add(self, value: Any) -> str:
        """Adds a value and returns the mark of its slot; an empty or missing value gives an empty string."""
        if value is None or value == "":
            return ""
        if self._filtered is not None and isinstance(value, str):
            value = self._filtered(value)
        self.values.append(value)
        return f"\x00{len(self.values) - 1}\x00"


def fill(template: PromptTemplate, slots: Slots, variables: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """Renders a template into messages as (role, pieces); a piece is literal text or a slot's value.

    The template opens a message with ``message("system")`` or ``message("user")``; white space around it is dropped.
    """
    laid_out = _lay_out(template, orjson.dumps(variables))
    return [
        (role, _strip([slots.values[piece] if isinstance(piece, int) else piece for piece in pieces]))
        for role, pieces in laid_out
    ]


def as_message(role: str, pieces: Iterable[str | SourcePart]) -> Message:
    """A message of texts and sources, with adjacent texts as one part."""
    parts: list[TextPart | SourcePart] = []
    texts: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            texts.append(piece)
            continue
        if texts:
            parts.append(TextPart(text="".join(texts)))
            texts = []
        parts.append(piece)
    if texts:
        parts.append(TextPart(text="".join(texts)))
    return Message(role=Role(role), parts=tuple(parts))


@lru_cache(maxsize=512)
def _lay_out(template: PromptTemplate, variables: bytes) -> tuple[tuple[str, tuple[str | int, ...]], ...]:
    """The messages as (role, pieces); a piece is literal text or the number of a slot.

    The result contains no value from outside, only marks, so that the jobs of one configuration share it: the engine
    takes some 70 us of the 100 that a prompt's messages take.
    """
    text = template.compiled.render(orjson.loads(variables), message=lambda role: f"\x00{role}\x00")
    messages: list[tuple[str, list[str | int]]] = []
    for position, piece in enumerate(_MARK.split(text)):
        if position % 2 == 0:
            if messages and piece:
                messages[-1][1].append(piece)
        elif piece.isdigit():
            messages[-1][1].append(int(piece))
        else:
            messages.append((piece, []))
    return tuple((role, tuple(pieces)) for role, pieces in messages)


def _strip(pieces: list[Any]) -> list[Any]:
    if pieces and isinstance(pieces[0], str):
        pieces[0] = pieces[0].lstrip()
    if pieces and isinstance(pieces[-1], str):
        pieces[-1] = pieces[-1].rstrip()
    return [piece for piece in pieces if piece != ""]
