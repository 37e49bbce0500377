"""Lists the prompts that jobs can name, and the folder that each comes from."""

from collections.abc import Iterator
from dataclasses import dataclass

from tasks.prompting.templates import available, load


@dataclass(frozen=True, slots=True)
class Extension:
    """A part that a job or a setting can name.

    Attributes:
        kind: ``prompt``.
        name: the name that jobs use.
        version: of it, as records have it.
        origin: file or package that it comes from; None: Nightdesk itself.
        sha256: of a template and the files that it extends, as records have it.
    """

    kind: str
    name: str
    version: str
    origin: str | None = None
    sha256: str | None = None


def prompts() -> Iterator[Extension]:
    """All prompts in all versions; raises ``InputError`` for a template that can't be compiled."""
    for name, versions in available().items():
        for version in versions:
            template = load(name, version)
            yield Extension("prompt", name, version, str(template.path) if template.own else None, template.sha256)
