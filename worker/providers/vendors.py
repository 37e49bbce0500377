"""Lists the APIs of vendors, and the environment variables in which providers find their keys and addresses."""

from typing import NamedTuple

from worker.providers.presets import PRESETS
from worker.settings import ProviderKind, Settings


class Vendor(NamedTuple):
    """A vendor's own API: the SDK's variables and base URL (openai 3.54, anthropic 2.12), its name in ``genai-prices``."""

    key_variable: str
    base_url_variable: str
    base_url: str
    prices: str


_OPENAI = Vendor("OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1", "openai")
VENDORS = {
    ProviderKind.OPENAI: _OPENAI,
    ProviderKind.OPENAI_DECISIONS: _OPENAI._replace(prices="openai-decisions"),
    ProviderKind.ANTHROPIC: Vendor("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "https://api.anthropic.com", "anthropic"),
}
"""By kind; the base URL tells the prices of the other kinds."""


def provider_variables(settings: Settings) -> list[str]:
    """The variables in which the providers of some settings find their keys and addresses."""
    vendors = {name for vendor in VENDORS.values() for name in (vendor.key_variable, vendor.base_url_variable)}
    presets = {preset.get("api_key_env") for preset in PRESETS.values()}
    own = {provider.api_key_env for provider in settings.providers.values()}
    return sorted(name for name in vendors | presets | own if name)
