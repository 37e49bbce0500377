"""Lists the APIs of vendors, and the environment variables in which providers find their keys and addresses."""

from typing import NamedTuple

from worker.provider_settings import CLOUD_OPTIONS, PRESETS, ProviderKind
from worker.settings import Settings


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
    ProviderKind.AZURE_OPENAI: Vendor("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "", "azure"),
    ProviderKind.BEDROCK: Vendor("AWS_BEARER_TOKEN_BEDROCK", "ANTHROPIC_BEDROCK_BASE_URL", "", "aws"),
    ProviderKind.VERTEX: Vendor("", "ANTHROPIC_VERTEX_BASE_URL", "", "google"),
}
"""By kind; the base URL tells the prices of the other kinds. Empty: the SDK makes it of the region, or there is none."""

CLOUDS = frozenset(CLOUD_OPTIONS)
"""Kinds that do without a key: their cloud's library finds credentials. Nothing is asked before a submission."""


def provider_variables(settings: Settings) -> list[str]:
    """The variables in which the providers of some settings find their keys and addresses."""
    vendors = {name for vendor in VENDORS.values() for name in (vendor.key_variable, vendor.base_url_variable)}
    presets = {preset.get("api_key_env") for preset in PRESETS.values()}
    own = {provider.api_key_env for provider in settings.providers.values()}
    return sorted(name for name in vendors | presets | own if name)
