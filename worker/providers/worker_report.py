"""Reports what decides who answers in a process, so that others go by it: providers, models, and which keys are there, never a key."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from worker.provider_settings import plain_http
from worker.providers.vendors import VENDORS, provider_variables
from worker.settings import Settings
from worker.variables import Variables

_DECISIVE = {"provider", "model", "providers", "fallbacks", "judge", "default_judge_share", "judge_lane", "checkers"}
"""Settings by which a job gets its provider, model, judge and price."""

_THERE = "set"
"""Stands for a key that the process of a report has."""


def report_of(settings: Settings, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The report of a process with these settings, as JSON."""
    variables = Variables(environment)
    chosen = settings.model_dump(mode="json", include=_DECISIVE, exclude_defaults=True)
    for entry in (*chosen.get("providers", {}).values(), *chosen.get("checkers", {}).values()):
        # Arguments of code that others need not have.
        entry.pop("options", None)
    addresses = {vendor.base_url_variable for vendor in VENDORS.values()}
    keys = [name for name in provider_variables(settings) if name not in addresses and variables.get(name)]
    plain = {name: url for name in sorted(addresses) if (url := variables.get(name)) and _is_plain(url)}
    return {"settings": chosen, "keys": keys, "addresses": plain}


def _is_plain(url: str) -> bool:
    try:
        return bool(plain_http(url))
    except ValueError:
        return False


def reported(settings: Settings, report: Mapping[str, Any]) -> tuple[Settings, dict[str, str]] | None:
    """These settings with those of a report in their place, and its environment; None for a report that can't be read here."""
    defaults = {name: Settings.model_fields[name].get_default(call_default_factory=True) for name in _DECISIVE}
    try:
        chosen = Settings.model_validate({**defaults, **report["settings"]})
        environment = {**report["addresses"], **dict.fromkeys(report["keys"], _THERE)}
    except (KeyError, TypeError, ValueError, ValidationError):
        # Written by another version.
        return None
    return settings.model_copy(update={name: getattr(chosen, name) for name in _DECISIVE}), environment
