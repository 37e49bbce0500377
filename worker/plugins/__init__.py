"""Loads code of one's own by import path or entry point, and names its package and version."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from traceback import extract_tb
from typing import Any

from tasks.errors import ConfigurationError
from tasks.masking import words_of

PROVIDERS, CHECKERS = "nightdesk.providers", "nightdesk.checkers"
"""Groups of entry points."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A class or factory of one's own, and the package and version that records name."""

    factory: Any
    identity: str

    def build(self, where: str, **arguments: Any) -> Any:
        """Calls the factory; raises ``ConfigurationError`` that names the plugin and the place of the failure."""
        try:
            return self.factory(**arguments)
        except (Exception, SystemExit) as error:
            # Code of others may raise anything, and must not end the process without its name.
            raise ConfigurationError(f"{where} ({self.identity}) can't be built: {describe(error)}") from error


def load_plugin(path: str, group: str, where: str) -> Plugin:
    """Imports a plugin.

    Args:
        path: ``package.module:name``, or the name of an entry point.
        group: of entry points; "" for what has none, and is named by its path.
        where: the setting and the name in it, for messages.

    Raises: ConfigurationError naming the plugin and the place of the failure.
    """
    module, _, attribute = path.partition(":")
    entry = None if attribute else _entry_point(path, group, where)
    try:
        factory = getattr(import_module(module), attribute) if entry is None else entry.load()
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"{where} names {path!r}, which can't be loaded: {describe(error)}") from error
    if not callable(factory):
        raise ConfigurationError(f"{where} names {path!r}, which is neither a class nor a function")
    return Plugin(factory, _identity(path if entry is None else entry.value, entry))


def describe(error: BaseException) -> str:
    """An exception of a plugin in words, with the file and line of the plugin where it was raised."""
    frames = [
        frame for frame in extract_tb(error.__traceback__) if frame.filename != __file__ and frame.filename[:1] != "<"
    ]
    place = (
        f" ({frames[-1].filename}, line {frames[-1].lineno})"
        if frames and "importlib" not in frames[-1].filename
        else ""
    )
    return f"{words_of(error)}{place}"


def _entry_point(name: str, group: str, where: str) -> metadata.EntryPoint:
    entries = metadata.entry_points(group=group)
    if name not in entries.names:
        listing = ", ".join(sorted(entries.names)) or "none"
        raise ConfigurationError(
            f"{where} names {name!r}, which is no entry point of the group {group} (installed: {listing}); write "
            "package.module:name, or install its package where all processes run"
        )
    return entries[name]


def _identity(path: str, entry: metadata.EntryPoint | None) -> str:
    if entry is not None and entry.dist is not None:
        return f"{entry.dist.name} {entry.dist.version}"
    package = path.partition(":")[0].partition(".")[0]
    if distributions := _distributions(tuple(sys.path)).get(package):
        return f"{distributions[0]} {metadata.version(distributions[0])}"
    version = getattr(sys.modules.get(package), "__version__", None)
    return f"{package} {version}" if version else package


@cache
def _distributions(_path: tuple[str, ...]) -> Mapping[str, list[str]]:
    """The distributions of each package; it takes a tenth of a second to read the files of all."""
    return metadata.packages_distributions()
