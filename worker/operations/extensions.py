"""Lists the prompts that jobs can name and the plugins of the settings, with the file or package that each comes from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tasks.errors import ConfigurationError
from tasks.prompting.template_files import available
from tasks.prompting.templates import load
from worker.plugins import CHECKERS, PROVIDERS, installed
from worker.plugins.claim_checkers import load_checker
from worker.providers.registry import ConfiguredProviders
from worker.settings import Settings


@dataclass(frozen=True, slots=True)
class Extension:
    """A part that a job or a setting can name.

    Attributes:
        kind: ``prompt``, ``provider`` or ``checker``.
        name: the name that jobs use.
        version: of a prompt, as records have it.
        origin: the file, or the package with its version; None: Nightdesk itself.
        sha256: of a template and the files that it extends, as records have it.
        problem: the reason that it can't be used.
        in_use: False for one that is installed and that no setting names.
    """

    kind: str
    name: str
    version: str | None = None
    origin: str | None = None
    sha256: str | None = None
    problem: str | None = None
    in_use: bool = True


def prompts() -> Iterator[Extension]:
    """All prompts in all versions; raises ``InputError`` for a template that can't be compiled."""
    for name, versions in available().items():
        for version in versions:
            template = load(name, version)
            yield Extension("prompt", name, version, str(template.path) if template.own else None, template.sha256)


def plugins(settings: Settings) -> Iterator[Extension]:
    """The plugins of the settings, each imported, then those that are installed as entry points and not in use."""
    registry = ConfiguredProviders(settings)
    paths = {name: entry.plugin for name, entry in settings.providers.items() if entry.plugin is not None}
    for name in paths:
        yield _loaded("provider", name, lambda name: registry.plugin(name).identity)
    for name in settings.checkers:
        yield _loaded("checker", name, lambda name: load_checker(name, settings.checkers[name]).package)
    yield from _unused("provider", PROVIDERS, set(paths.values()))
    yield from _unused("checker", CHECKERS, {entry.plugin for entry in settings.checkers.values()})


def _loaded(kind: str, name: str, identify: Callable[[str], str]) -> Extension:
    try:
        return Extension(kind, name, origin=identify(name))
    except ConfigurationError as error:
        return Extension(kind, name, problem=str(error))


def _unused(kind: str, group: str, paths: set[str]) -> Iterator[Extension]:
    for name, package in installed(group):
        if name not in paths:
            yield Extension(kind, name, origin=package, in_use=False)
