"""Builds the checkers of the installation's own that the settings name."""

from collections.abc import Iterator

from tasks.errors import ConfigurationError
from tasks.grounding.own_checkers import OwnChecker
from worker.plugins import CHECKERS, load_plugin
from worker.settings import CheckerSettings, Settings


def load_checkers(settings: Settings) -> Iterator[OwnChecker]:
    """The checkers of the settings, in their order; raises ``ConfigurationError`` naming one that can't be used."""
    for name, entry in settings.checkers.items():
        yield load_checker(name, entry)


def load_checker(name: str, entry: CheckerSettings) -> OwnChecker:
    """A checker of the settings."""
    where = f"NIGHTDESK_CHECKERS: the checker {name!r}"
    plugin = load_plugin(entry.plugin, CHECKERS, where)
    checker = plugin.build(where, **entry.options)
    if not callable(getattr(checker, "check", None)) or not isinstance(getattr(checker, "version", None), str):
        raise ConfigurationError(f"{where} ({plugin.identity}) needs a method 'check' and a 'version' (str)")
    return OwnChecker(name, checker, plugin.identity)
