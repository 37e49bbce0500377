"""Finds the providers that the settings and the SDKs' own variables describe; each is built when first asked for."""

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol

from schemas.generation import GenerationConfig
from tasks.errors import ConfigurationError
from tasks.ports import Provider, Turn
from worker.providers.models import DEFAULT_MODELS
from worker.providers.presets import PRESETS
from worker.settings import ProviderKind, ProviderSettings, Settings, plain_http

KEY_OF = {
    ProviderKind.OPENAI: "OPENAI_API_KEY",
    ProviderKind.OPENAI_DECISIONS: "OPENAI_API_KEY",
    ProviderKind.ANTHROPIC: "ANTHROPIC_API_KEY",
}
BASE_URL_OF = {
    ProviderKind.OPENAI: "OPENAI_BASE_URL",
    ProviderKind.OPENAI_DECISIONS: "OPENAI_BASE_URL",
    ProviderKind.ANTHROPIC: "ANTHROPIC_BASE_URL",
}
OFFICIAL = {
    ProviderKind.OPENAI: "https://api.openai.com/v1",
    ProviderKind.OPENAI_DECISIONS: "https://api.openai.com/v1",
    ProviderKind.ANTHROPIC: "https://api.anthropic.com",
}
"""The SDKs' variables and base URLs (openai 3.54, anthropic 2.12)."""

VENDORS = {
    ProviderKind.OPENAI: "openai",
    ProviderKind.OPENAI_DECISIONS: "openai-decisions",
    ProviderKind.ANTHROPIC: "anthropic",
}
"""Whose list prices apply, in the words of ``genai-prices``; of the others the base URL says it."""

DEFAULTS = (ProviderKind.OPENAI, ProviderKind.ANTHROPIC)
"""Who answers where no provider is set: the first whose key is there."""

BUILT_IN = {
    "openai": ProviderSettings(kind=ProviderKind.OPENAI),
    "openai_decisions": ProviderSettings(kind=ProviderKind.OPENAI_DECISIONS),
    "anthropic": ProviderSettings(kind=ProviderKind.ANTHROPIC),
    "extractive": ProviderSettings(kind=ProviderKind.EXTRACTIVE),
    **{name: ProviderSettings.model_validate({"preset": name}) for name in PRESETS},
}
"""Providers that need no settings of ours; settings of the same name go before them."""

# Imported when first used: an SDK takes about a second of CPU and 60-100 MB, and most processes need one or none.
_ADAPTERS = {
    ProviderKind.OPENAI: ("worker.providers.openai", "OpenAI"),
    ProviderKind.OPENAI_CHAT: ("worker.providers.openai_chat", "OpenAIChat"),
    ProviderKind.OPENAI_DECISIONS: ("worker.providers.openai_decisions", "OpenAIDecisions"),
    ProviderKind.ANTHROPIC: ("worker.providers.anthropic", "Anthropic"),
}


class _Adapter(Protocol):
    def __call__(self, target: Any) -> Provider: ...


class ConfiguredProviders:
    """``tasks.ports.Providers`` of the settings.

    Args:
        settings: names the default and the further providers.
        environment: where keys and the SDKs' base URLs are; the process's own unless given.
    """

    def __init__(self, settings: Settings, environment: Mapping[str, str] | None = None) -> None:
        self._settings = settings
        self._environment = os.environ if environment is None else environment
        self._known = {**BUILT_IN, **settings.providers}
        self._built: dict[str, Provider] = {}
        for turn in settings.fallbacks:
            name = turn.partition(":")[0]
            if name not in self._known:
                known = ", ".join(sorted(self._known))
                raise ConfigurationError(f"NIGHTDESK_FALLBACKS names {turn!r}, which is no provider; there is {known}")
            self._can_answer("NIGHTDESK_FALLBACKS", name)
        self._can_answer("NIGHTDESK_PROVIDER", settings.provider)
        judge = (settings.judge or "").partition(":")[0]
        if judge and judge not in self._known:
            known = ", ".join(sorted(self._known))
            raise ConfigurationError(
                f"NIGHTDESK_JUDGE names {settings.judge!r}, which is no provider; there is {known}"
            )
        if judge and self._known[judge].kind is ProviderKind.EXTRACTIVE:
            raise ConfigurationError(f"NIGHTDESK_JUDGE names {judge!r}, which quotes sentences and can't judge")

    def _can_answer(self, variable: str, name: str | None) -> None:
        if name and self.decides(name):
            raise ConfigurationError(f"{variable} names {name!r}, which only judges: name it in NIGHTDESK_JUDGE")

    @property
    def default(self) -> str:
        """The provider of jobs that name none: the one set, else that whose key is there, else the offline one."""
        if self._settings.provider is not None:
            return self._settings.provider
        for kind in DEFAULTS:
            if self._environment.get(KEY_OF[kind]):
                return kind.value
        return "extractive"

    @property
    def secrets(self) -> frozenset[str]:
        """Every key of a configured provider, for what must never be logged."""
        variables = {*KEY_OF.values(), *(one.api_key_env for one in self._known.values() if one.api_key_env)}
        return frozenset(key for name in variables if (key := self._environment.get(name)))

    def import_ahead(self, *, answers: bool, judges: bool) -> None:
        """Import the SDKs of the providers that are set, before an event loop runs: a loop would stand still for a second.

        Args:
            answers: of the default provider and the fallbacks.
            judges: of the judge.
        """
        turns = (self.default, *self._settings.fallbacks) if answers else ()
        for name in (*turns, *([self._settings.judge] if judges and self._settings.judge else [])):
            given = self._known.get(name.partition(":")[0])
            if given is not None and given.kind in _ADAPTERS:
                import_module(_ADAPTERS[given.kind][0])

    def get(self, name: str | None) -> Provider:
        """See ``tasks.ports.Providers``."""
        name = name or self.default
        provider = self._built.get(name)
        if provider is None:
            given = self._known.get(name)
            if given is None:
                known = ", ".join(sorted(self._known))
                raise ConfigurationError(f"no provider {name!r} is configured; there is {known}")
            provider = self._built[name] = self._build(name, given)
        return provider

    def decides(self, name: str) -> bool:
        """See ``tasks.ports.Providers``."""
        given = self._known.get(name)
        return given is not None and given.kind is ProviderKind.OPENAI_DECISIONS

    # ---- what a door asks, without building anyone ----

    @property
    def names(self) -> list[str]:
        """The names of all providers there are."""
        return sorted(self._known)

    def kind_of(self, name: str) -> ProviderKind | None:
        """How a provider is spoken to; None: there is no such provider."""
        given = self._known.get(name)
        return None if given is None else given.kind

    def missing_key(self, name: str) -> str | None:
        """The variable that should hold a provider's key and does not; None: nothing is missing."""
        given = self._known[name]
        variable = self._key_variable(given)
        return variable if variable is not None and not self._environment.get(variable) else None

    def model_of(self, name: str, model: str | None) -> str | None:
        """The model that a provider answers with when this one is asked for."""
        return model or self._model(name, self._known[name])

    def needs_model(self, name: str) -> bool:
        """Whether a provider has no model of its own."""
        given = self._known[name]
        named = given.kind not in {ProviderKind.EXTRACTIVE, ProviderKind.LLAMAINDEX}
        return named and self._model(name, given) is None

    def has_price(self, name: str, model: str | None) -> bool:
        """Whether the cost of a call is known beforehand."""
        given = self._known[name]
        model = self.model_of(name, model)
        if given.kind is ProviderKind.EXTRACTIVE:
            return True
        if given.kind is ProviderKind.LLAMAINDEX or model is None:
            return False
        # The tables of prices take a moment to load, and most batches have no ceiling.
        prices = import_module("worker.providers.prices").Prices(VENDORS.get(given.kind), self._base_url(name, given))
        tier = None if given.kind is ProviderKind.OPENAI_DECISIONS else given.service_tier
        return prices.reserve_usd(model, 1, 1, tier) is not None

    def turns(self, config: GenerationConfig) -> tuple[Turn, ...]:
        """See ``tasks.ports.Providers``."""
        first = Turn(config.provider or self.default, config.model)
        # Each once: a fallback to the job's own provider and model would only ask it again.
        return tuple(dict.fromkeys((first, *map(Turn.parse, config.fallbacks or self._settings.fallbacks))))

    async def close(self) -> None:
        """See ``tasks.ports.Providers``."""
        for provider in self._built.values():
            await provider.close()

    def _build(self, name: str, given: ProviderSettings) -> Provider:
        if given.kind is ProviderKind.EXTRACTIVE:
            extractive: Callable[..., Provider] = import_module("worker.providers.extractive").Extractive
            return extractive(latency_s=self._settings.extractive_latency_s, name=name)
        if given.kind is ProviderKind.LLAMAINDEX:
            return self._build_llamaindex(name, given)
        key, base_url = self._key(name, given), self._base_url(name, given)
        target = import_module("worker.providers.adapter").Target(
            name=name,
            base_url=base_url,
            api_key=key,
            model=self._model(name, given),
            json_schema=given.json_schema,
            service_tier=given.service_tier,
            official=given.base_url is None,
            answer_protocol=given.answer_protocol,
            takes=frozenset(given.takes),
            drops=frozenset(given.drops),
        )
        module, adapter = _ADAPTERS[given.kind]
        build: _Adapter = getattr(import_module(module), adapter)
        return build(target)

    def _build_llamaindex(self, name: str, given: ProviderSettings) -> Provider:
        if given.llm is None:
            raise ConfigurationError(f"the provider {name!r} needs 'llm' in NIGHTDESK_PROVIDERS: 'package.module:Name'")
        try:
            adapter = import_module("worker.providers.llamaindex")
        except ModuleNotFoundError as error:
            told = f"the provider {name!r} needs the extra 'llamaindex' of nightdesk: {error}"
            raise ConfigurationError(told) from error
        provider: Provider = adapter.connect(
            name=name,
            path=given.llm,
            options=given.options,
            api_key=self._key(name, given),
            model=self._model(name, given),
            json_schema="json_schema" in given.model_fields_set and given.json_schema,
            answer_protocol=given.answer_protocol,
        )
        return provider

    def _key(self, name: str, given: ProviderSettings) -> str | None:
        variable = self._key_variable(given)
        if variable is None:
            return None
        key = self._environment.get(variable)
        if not key:
            raise ConfigurationError(f"the provider {name!r} needs a key: set {variable}")
        if key != key.strip() or not key.isprintable():
            raise ConfigurationError(f"{variable} holds white space or a line break around the key")
        return key

    @staticmethod
    def _key_variable(given: ProviderSettings) -> str | None:
        """The variable with a provider's key; none for a server of one's own.

        The key of OpenAI or Anthropic is never sent to another address.
        """
        if given.api_key_env is not None or given.base_url is not None:
            return given.api_key_env
        return KEY_OF.get(given.kind)

    def _base_url(self, name: str, given: ProviderSettings) -> str:
        if given.base_url is not None:
            return given.base_url
        variable = BASE_URL_OF.get(given.kind)
        if variable is None:
            raise ConfigurationError(f"the provider {name!r} needs a base_url in NIGHTDESK_PROVIDERS")
        try:
            return plain_http(self._environment.get(variable) or OFFICIAL[given.kind])
        except ValueError as error:
            raise ConfigurationError(f"{variable} {error}") from None

    def _model(self, name: str, given: ProviderSettings) -> str | None:
        if self._settings.model is not None and name == self.default:
            return self._settings.model
        return given.model or DEFAULT_MODELS.get(given.kind.value)
