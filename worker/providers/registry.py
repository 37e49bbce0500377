"""Builds the providers that the settings and the SDKs' own variables describe, each at its first use; objects to configs without one."""

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from schemas.generation import WINDOWS, CheckerName, Lane
from schemas.job import GenerationConfig
from schemas.model_call import Usage
from tasks.errors import UNPRICED, ConfigurationError
from tasks.masking import hide
from tasks.ports import Catalog, CheapJudge, Objection, Provider, Turn
from worker.provider_settings import CLOUD_OPTIONS, PRESETS, ProviderKind, ProviderSettings, plain_http
from worker.providers.vendor_models import CHEAP_JUDGES, DEFAULT_MODELS, LEAST_JUDGE_BYTES, OFFLINE_MODEL
from worker.providers.vendors import CLOUDS, VENDORS
from worker.settings import Settings
from worker.variables import Variables

if TYPE_CHECKING:
    from tasks.ports.remote_batches import RemoteCalls, RemoteResponses
    from worker.plugins import Plugin


DEFAULTS = (ProviderKind.OPENAI, ProviderKind.ANTHROPIC)
"""The providers of an installation that sets none: the first whose key is there."""

BUILT_IN = {
    "openai": ProviderSettings(kind=ProviderKind.OPENAI),
    "openai_decisions": ProviderSettings(kind=ProviderKind.OPENAI_DECISIONS),
    "anthropic": ProviderSettings(kind=ProviderKind.ANTHROPIC),
    **{kind.value: ProviderSettings(kind=kind) for kind in CLOUD_OPTIONS},
    "extractive": ProviderSettings(kind=ProviderKind.EXTRACTIVE),
    **{name: ProviderSettings.model_validate({"preset": name}) for name in PRESETS},
}
"""Providers that need no settings of ours; settings of the same name go before them."""

# Imported when first used: an SDK takes about a second of CPU and 60-100 MB, and most processes need one or none.
_ADAPTERS = {
    ProviderKind.OPENAI: ("worker.providers.openai", "OpenAI"),
    ProviderKind.OPENAI_CHAT: ("worker.providers.openai_chat", "OpenAIChat"),
    ProviderKind.OPENAI_DECISIONS: ("worker.providers.openai", "OpenAIDecisions"),
    ProviderKind.ANTHROPIC: ("worker.providers.anthropic", "Anthropic"),
    ProviderKind.AZURE_OPENAI: ("worker.providers.clouds", "AzureOpenAI"),
    ProviderKind.BEDROCK: ("worker.providers.clouds", "Bedrock"),
    ProviderKind.VERTEX: ("worker.providers.clouds", "Vertex"),
    ProviderKind.EXTRACTIVE: ("worker.providers.extractive", "Extractive"),
    ProviderKind.LLAMAINDEX: ("worker.providers.llamaindex", "LlamaIndex"),
    ProviderKind.PLUGIN: ("worker.providers.plugin", "PluginProvider"),
}


_OF_OTHERS = frozenset({ProviderKind.LLAMAINDEX, ProviderKind.PLUGIN})
"""Kinds whose own code knows the model and its price."""

_NO_SUCH_MODEL = (
    "the provider {0!r} quotes the sources offline, and has no model {1!r}{2}: name the provider of the model "
    "(--provider, 'provider' of a job, or NIGHTDESK_PROVIDER) and give it its key, or leave the model out"
)

MOST_REMEMBERED = 1_000
"""Configs whose objections are kept, and models whose judge is: a file's jobs share few."""


class ConfiguredProviders:
    """``tasks.ports.Providers`` of the settings.

    Args:
        settings: names the default and the further providers.
        environment: where keys and the SDKs' base URLs are; the process's own unless given.
    """

    def __init__(self, settings: Settings, environment: Mapping[str, str] | None = None) -> None:
        self._settings = settings
        self._environment = Variables(environment)
        self._entries = {**BUILT_IN, **settings.providers}
        # Else an answer would be a quote where a key is meant to be.
        self._environment.require_files(self._key_variables)
        hide(self._environment.secrets | self._keys)
        self._built: dict[str, Provider] = {}
        self._stamps: dict[str, tuple[str, object]] = {}
        self._replaced: list[Provider] = []
        self._plugins: dict[str, Plugin] = {}
        self.cheap_judge = lru_cache(MOST_REMEMBERED)(self._find_cheap_judge)
        for text in settings.fallbacks:
            turn = Turn.parse(text)
            if turn.provider not in self._entries:
                raise ConfigurationError(f"NIGHTDESK_FALLBACKS names {text!r}, which is no provider; {self._listing}")
            self._can_answer("NIGHTDESK_FALLBACKS", turn.provider)
            if turn.model is not None and self.lacks_model(turn.provider, turn.model) is not None:
                reason = _NO_SUCH_MODEL.format(turn.provider, turn.model, "")
                raise ConfigurationError(f"NIGHTDESK_FALLBACKS: {reason}")
        self._can_answer("NIGHTDESK_PROVIDER", settings.provider)
        judge = (settings.judge or "").partition(":")[0]
        if judge and judge not in self._entries:
            raise ConfigurationError(f"NIGHTDESK_JUDGE names {settings.judge!r}, which is no provider; {self._listing}")
        if judge and self._entries[judge].kind is ProviderKind.EXTRACTIVE:
            raise ConfigurationError(f"NIGHTDESK_JUDGE names {judge!r}, which quotes sentences and can't judge")

    @property
    def _listing(self) -> str:
        return f"there is {', '.join(self.names)}"

    def _can_answer(self, variable: str, name: str | None) -> None:
        if name and self.gives_probabilities(name):
            raise ConfigurationError(f"{variable} names {name!r}, which only judges: name it in NIGHTDESK_JUDGE")

    @property
    def default(self) -> str:
        """The provider of jobs that name none: the one set, else that whose key is there, else the offline one."""
        if self._settings.provider is not None:
            return self._settings.provider
        for kind in DEFAULTS:
            if self._environment.get(VENDORS[kind].key_variable):
                return kind.value
        return "extractive"

    @property
    def is_default_set(self) -> bool:
        """Tells that the settings name the provider of jobs that name none."""
        return self._settings.provider is not None

    @property
    def _key_variables(self) -> set[str]:
        variables = {vendor.key_variable for vendor in VENDORS.values()}
        return variables | {entry.api_key_env for entry in self._entries.values() if entry.api_key_env}

    @property
    def _keys(self) -> frozenset[str]:
        """Every key of a configured provider."""
        return frozenset(key for name in self._key_variables if (key := self._environment.get(name)))

    def import_ahead(self, *, answers: bool, judges: bool) -> None:
        """Imports the SDKs of the providers that are set, and their prices, before an event loop runs: it would stand still for a second.

        So it does all plugins; raises ``ConfigurationError`` for one that can't be loaded.

        Args:
            answers: of the default provider and the fallbacks.
            judges: of the judge, or of the cheap model that judges by default, which has the default provider's SDK.
        """
        turns = (self.default, *self._settings.fallbacks) if answers else ()
        judge = self._settings.judge or (self.default if self._settings.default_judge_share else None)
        for name in (*turns, *([judge] if judges and judge else [])):
            entry = self._entries.get(name.partition(":")[0])
            if entry is not None:
                _adapter_of(name, entry.kind)
                if entry.kind in VENDORS:
                    import_module("worker.providers.prices").load_tables()
        for name, entry in self._entries.items() if answers or judges else ():
            if entry.plugin is not None:
                import_module("worker.providers.plugin")
                self.plugin(name)

    def plugin(self, name: str) -> "Plugin":
        """The plugin of a provider; raises ``ConfigurationError`` where it can't be loaded."""
        plugin = self._plugins.get(name)
        if plugin is None:
            path = self._entries[name].plugin or self._entries[name].llm
            assert path is not None
            plugins = import_module("worker.plugins")
            where = f"NIGHTDESK_PROVIDERS: the provider {name!r}"
            plugin = self._plugins[name] = plugins.load_plugin(path, plugins.PROVIDERS, where)
        return plugin

    def get(self, name: str | None) -> Provider:
        """See ``tasks.ports.Providers``."""
        name = name or self.default
        provider = self._built.get(name)
        if provider is not None and (stamp := self._stamps.get(name)) and self._environment.stamp(stamp[0]) != stamp[1]:
            # The file of its key was replaced. Calls in flight keep the client that they have.
            self._replaced.append(self._built.pop(name))
            provider = None
        if provider is None:
            entry = self._entries.get(name)
            if entry is None:
                raise ConfigurationError(f"no provider {name!r} is configured; {self._listing}")
            variable = self.key_variable(name)
            if variable is not None and (key_stamp := self._environment.stamp(variable)) is not None:
                self._stamps[name] = (variable, key_stamp)
            provider = self._built[name] = self._build(name, entry)
        return provider

    def remote_calls(self, name: str) -> "RemoteCalls | None":
        """See ``tasks.ports.Providers``."""
        batch_calls: RemoteCalls | None = getattr(self.get(name), "batch_calls", None)
        return batch_calls

    def remote_responses(self, name: str) -> "RemoteResponses | None":
        """See ``tasks.ports.Providers``."""
        background: RemoteResponses | None = getattr(self.get(name), "background", None)
        return background

    def cheaper_lanes(self, name: str) -> tuple[Lane, ...]:
        """See ``tasks.ports.Providers``. A server of one's own may have none, and OpenAI's flex calls cost as little."""
        entry = self._entries.get(name)
        if entry is None or entry.base_url is not None or _tier(entry) == "flex":
            return ()
        batches = (Lane.PROVIDER_BATCH,) if entry.kind in HAVE_BATCHES else ()
        return (*batches, *WINDOWS) if self.has_background(name) else batches

    def has_background(self, name: str) -> bool:
        """True for OpenAI's own Responses API: no other has responses with a window at a lower price."""
        entry = self._entries.get(name)
        return entry is not None and entry.kind is ProviderKind.OPENAI and entry.base_url is None

    def gives_probabilities(self, name: str) -> bool:
        """See ``tasks.ports.Providers``."""
        return self.kind_of(name) is ProviderKind.OPENAI_DECISIONS

    # ---- facts that need no built provider ----

    @property
    def names(self) -> list[str]:
        """The names of all providers there are."""
        return sorted(self._entries)

    def kind_of(self, name: str) -> ProviderKind | None:
        """The kind of a provider; None: there is no such provider."""
        entry = self._entries.get(name)
        return None if entry is None else entry.kind

    def missing_key(self, name: str) -> str | None:
        """The variable that should hold a provider's key and does not; None: nothing is missing."""
        variable = self.key_variable(name)
        if variable is None or self._environment.get(variable) or _finds_credentials(self._entries[name]):
            return None
        return variable

    def key_variable(self, name: str) -> str | None:
        """The variable that holds a provider's key; None: a server of one's own needs none.

        The key of OpenAI or Anthropic is never sent to another address.
        """
        entry = self._entries[name]
        # A cloud's address is its owner's, and so is the key.
        if entry.api_key_env is not None or (entry.base_url is not None and entry.kind not in CLOUDS):
            return entry.api_key_env
        vendor = VENDORS.get(entry.kind)
        return (vendor.key_variable or None) if vendor else None

    def address(self, name: str) -> str:
        """The base URL of a provider that has one; raises ``ConfigurationError``."""
        entry = self._entries[name]
        if entry.base_url is not None:
            return entry.base_url
        vendor = VENDORS.get(entry.kind)
        if vendor is None:
            raise ConfigurationError(f"the provider {name!r} needs a base_url in NIGHTDESK_PROVIDERS")
        try:
            url = self._environment.get(vendor.base_url_variable) or vendor.base_url
            return plain_http(url) if url else ""
        except ValueError as error:
            raise ConfigurationError(f"{vendor.base_url_variable} {error}") from None

    def address_variable(self, name: str) -> str | None:
        """The variable of an SDK that moves a vendor's provider to another address; None: it is not set, or not read."""
        entry = self._entries[name]
        vendor = VENDORS.get(entry.kind)
        if vendor is None or entry.base_url is not None or not self._environment.get(vendor.base_url_variable):
            return None
        return vendor.base_url_variable

    def lists_all(self, name: str) -> bool:
        """True for a server whose list of models is complete."""
        return self._entries[name].preset in {"ollama", "vllm"}

    def model_of(self, name: str, model: str | None) -> str | None:
        """The model that a provider answers with when this one is asked for."""
        if not model and self._settings.model is not None and name == self.default:
            return self._settings.model
        entry = self._entries[name]
        return model or entry.model or DEFAULT_MODELS.get(entry.kind.value)

    def needs_model(self, name: str) -> bool:
        """True for a provider without a default model."""
        named = self._entries[name].kind not in {ProviderKind.EXTRACTIVE, *_OF_OTHERS}
        return named and self.model_of(name, None) is None

    def lacks_model(self, name: str, model: str | None) -> str | None:
        """The model that would be asked of a provider which quotes, and has none but its own; None: nothing is missing."""
        if self.kind_of(name) is not ProviderKind.EXTRACTIVE:
            return None
        model = self.model_of(name, model)
        return None if model in {None, OFFLINE_MODEL} else model

    def has_price(self, name: str, model: str | None) -> bool:
        """True if the cost of a call is known beforehand."""
        entry = self._entries[name]
        model = self.model_of(name, model)
        if entry.kind is ProviderKind.EXTRACTIVE:
            return True
        if entry.kind in _OF_OTHERS or model is None:
            return False
        # The tables of prices take a moment to load, and most batches have no ceiling.
        return self._prices(name, entry).reserve_usd(model, 1, 1, _tier(entry)) is not None

    def usage_usd(self, name: str, model: str | None, usage: Usage, lane: str) -> Decimal | None:
        """See ``tasks.estimates.estimate.PricedProviders``."""
        entry = self._entries.get(name)
        if entry is None or not self.has_price(name, model):
            return None
        if entry.kind is ProviderKind.EXTRACTIVE:
            return Decimal(0)
        tier = import_module("worker.providers.prices").PRICE_TIERS.get(lane, _tier(entry))
        if lane in WINDOWS and not self.has_background(name):
            # A further model of a job whose first one is asked in the background.
            tier = _tier(entry)
        cost: Decimal | None = self._prices(name, entry).cost_usd(self.model_of(name, model), None, usage, tier)
        return cost

    def _prices(self, name: str, entry: ProviderSettings) -> Any:
        vendor = VENDORS.get(entry.kind)
        price_name = vendor.prices if vendor else None
        return import_module("worker.providers.prices").Prices(price_name, self.address(name), entry.prices)

    def _find_cheap_judge(self, provider: str, model: str | None) -> CheapJudge | None:
        """See ``tasks.ports.Providers``; of the same name, so that no text goes to another vendor than the answer's."""
        entry = self._entries.get(provider)
        if entry is None or self.missing_key(provider) is not None:
            return None
        kind = next(
            (name for name, preset in PRESETS.items() if entry.base_url == preset["base_url"]), entry.kind.value
        )
        # A server of one's own has no price, or not this one.
        if kind not in CHEAP_JUDGES or (entry.base_url is not None and kind not in PRESETS):
            return None
        judge, effort = CHEAP_JUDGES[kind]
        turn = Turn(provider, judge)
        if kind == ProviderKind.OPENAI and model is not None and model.startswith(judge):
            turn, effort = Turn(ProviderKind.OPENAI_DECISIONS.value), None
            if self._entries[turn.provider] != BUILT_IN[turn.provider] or entry.api_key_env is not None:
                return None
        judge_entry = self._entries[turn.provider]
        form = "decided" if self.gives_probabilities(turn.provider) else "written"
        prices, size = self._prices(turn.provider, judge_entry), LEAST_JUDGE_BYTES[form]
        least_usd = prices.expected_usd(judge, size, 0, _tier(judge_entry))
        return None if least_usd is None else CheapJudge(turn, effort, least_usd)

    def turns(self, config: GenerationConfig, level: int = 0) -> tuple[Turn, ...]:
        """See ``tasks.ports.Providers``."""
        if level:
            return (Turn.parse(config.escalate[level - 1]),)
        first = Turn(config.provider or self.default, config.model)
        # Each once: a fallback to the job's own provider and model would only ask it again.
        return tuple(dict.fromkeys((first, *map(Turn.parse, config.fallbacks or self._settings.fallbacks))))

    async def close(self) -> None:
        """See ``tasks.ports.Providers``."""
        for provider in (*self._replaced, *self._built.values()):
            await provider.close()

    def _build(self, name: str, entry: ProviderSettings) -> Provider:
        adapter: Callable[..., Provider] = _adapter_of(name, entry.kind)
        if entry.kind is ProviderKind.EXTRACTIVE:
            return adapter(latency_s=self._settings.extractive_latency_s, name=name)
        is_code = entry.kind in _OF_OTHERS
        if entry.kind is ProviderKind.LLAMAINDEX and entry.llm is None:
            problem = f"the provider {name!r} needs 'llm' in NIGHTDESK_PROVIDERS: 'package.module:Name'"
            raise ConfigurationError(problem)
        target = import_module("worker.providers.adapter").Target(
            name,
            "" if is_code else self.address(name),
            self._key(name, entry),
            self.model_of(name, None),
            # Code of others enforces a schema only where its settings say so.
            json_schema=entry.json_schema and (not is_code or "json_schema" in entry.model_fields_set),
            service_tier=entry.service_tier,
            official=entry.base_url is None,
            answer_protocol=entry.answer_protocol,
            takes=frozenset(entry.takes),
            drops=frozenset(entry.drops),
            extra_body=entry.extra_body,
            prices=entry.prices,
            options=entry.options,
        )
        return adapter(target, self.plugin(name)) if is_code else adapter(target)

    def _key(self, name: str, entry: ProviderSettings) -> str | None:
        variable = self.key_variable(name)
        if variable is None:
            return None
        key = self._environment.get(variable)
        if not key and _finds_credentials(entry):
            return None
        if not key:
            raise ConfigurationError(f"the provider {name!r} needs a key: set {variable}")
        if key != key.strip() or not key.isprintable():
            raise ConfigurationError(f"{variable} holds white space or a line break around the key")
        # Its file may have been replaced while the process runs.
        hide({key})
        return key


def _adapter_of(name: str, kind: ProviderKind) -> Any:
    """The class of a kind; raises ``ConfigurationError`` without the extra that it needs."""
    module, adapter = _ADAPTERS[kind]
    try:
        return getattr(import_module(module), adapter)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the provider {name!r} needs the extra {kind.value!r} of nightdesk: {error}"
        ) from error


def _finds_credentials(entry: ProviderSettings) -> bool:
    """True for a provider that does without a key of its own."""
    return entry.kind in CLOUDS and entry.api_key_env is None


def _tier(entry: ProviderSettings) -> str | None:
    """The service tier that is sent, and so priced."""
    return None if entry.kind is ProviderKind.OPENAI_DECISIONS else entry.service_tier


HAVE_BATCHES = frozenset({ProviderKind.OPENAI, ProviderKind.OPENAI_CHAT, ProviderKind.ANTHROPIC})
"""Kinds of providers with the lane ``provider_batch``."""


def _further_turns(config: GenerationConfig) -> Iterator[tuple[str, Turn]]:
    """The models of a job besides its first, by the field that names them."""
    for name in ("fallbacks", "escalate"):
        for at, text in enumerate(getattr(config, name)):
            yield f"config.{name}.{at}", Turn.parse(text)


class Installation(Catalog):
    """``tasks.ports.Catalog`` of the settings of this process.

    Args:
        settings: of this process.
        same_for_workers: the workers have these settings too, keys included. Else a provider that is unknown
            here may be known there, and only the lanes are certain.
        environment: where keys are; the process's own unless given.
    """

    def __init__(
        self, settings: Settings, *, same_for_workers: bool, environment: Mapping[str, str] | None = None
    ) -> None:
        self._providers = ConfiguredProviders(settings, environment)
        self._certain = same_for_workers
        self._own_checkers = tuple(settings.checkers)
        self._cache: dict[object, tuple[Objection, ...]] = {}

    def objections(self, config: GenerationConfig, *, generates: bool, priced: bool) -> tuple[Objection, ...]:
        """See ``tasks.ports.Catalog``."""
        judge = config.judge if CheckerName.JUDGE in config.checkers else None
        key = (
            config.provider, config.model, config.fallbacks, config.escalate, config.lane, judge, config.checkers, generates, priced,
        )  # fmt: skip
        if (objections := self._cache.get(key)) is None:
            objections = (*self._of_the_answer(config, priced=priced),) if generates else ()
            objections += (*self._of_checkers(config),)
            if judge is not None:
                objections = (*objections, *self._of_the_judge(judge, priced=priced))
            if len(self._cache) < MOST_REMEMBERED:
                self._cache[key] = objections
        return objections

    def knows(self, name: str) -> bool:
        """Tells whether there is a provider of this name."""
        return self._providers.kind_of(name) is not None

    @property
    def answering(self) -> list[str]:
        """The names of the providers that can answer by these settings."""
        return [name for name in self._providers.names if not self._refused(name)]

    def only_quotes(self, provider: str | None) -> bool:
        """Tells that the provider, by default that of the settings, surely is the offline one."""
        is_sure = provider is not None or self._certain or self._providers.is_default_set
        return is_sure and self._providers.kind_of(provider or self._providers.default) is ProviderKind.EXTRACTIVE

    def refuses_model(self, model: str) -> bool:
        """Tells that no job can be answered by this name: a model of the default provider, a provider, or both by a colon.

        Without the workers' settings a default that is not set here may be another one there.
        """
        providers, turn = self._providers, Turn.parse(model)
        if providers.kind_of(turn.provider) is None:
            return self.only_quotes(None) and providers.lacks_model(providers.default, model) is not None
        return self._refused(turn.provider) or providers.lacks_model(turn.provider, turn.model) is not None

    def _refused(self, name: str) -> bool:
        return self._providers.gives_probabilities(name) or self._unusable(name) is not None

    def _of_the_answer(self, config: GenerationConfig, *, priced: bool) -> Iterator[Objection]:
        if config.lane is Lane.PROVIDER_BATCH or config.lane in WINDOWS:
            yield from self._of_lane(config)
        if self._knows(config):
            yield from self._of_turn(Turn(config.provider or self._providers.default, config.model), priced=priced)
        for field, turn in _further_turns(config):
            for objection in self._of_turn(turn, priced=priced):
                yield Objection(field, objection.message, objection.certain)
        yield from self._of_repeated_models(config)

    def _of_repeated_models(self, config: GenerationConfig) -> Iterator[Objection]:
        """A further model that has answered the same question before would be paid for the same answer again."""
        own = {"": Turn(config.provider or self._providers.default, config.model)} if self._knows(config) else {}
        escalation = {field: turn for field, turn in _further_turns(config) if field.startswith("config.escalate")}
        models: set[tuple[str, str | None]] = set()
        for field, turn in (own | escalation).items():
            if self._providers.kind_of(turn.provider) is None:
                continue
            model = (turn.provider, self._providers.model_of(turn.provider, turn.model))
            if model in models:
                name = ":".join(part for part in model if part)
                yield Objection(
                    field, f"{name} is asked before that; name another model, or leave it out", self._certain
                )
            models.add(model)

    def _of_lane(self, config: GenerationConfig) -> Iterator[Objection]:
        """The providers of a job that can't be called in the lane that it names."""
        turns = {"config.lane": Turn(config.provider or self._providers.default)} if self._knows(config) else {}
        turns |= dict(_further_turns(config))
        for field, turn in turns.items():
            kind = self._providers.kind_of(turn.provider)
            # The offline one is at no price, so it answers at once in the place of a batch that failed.
            stands_in = kind is ProviderKind.EXTRACTIVE and field != "config.lane"
            if kind is None or stands_in:
                continue
            if config.lane in WINDOWS and not self._providers.has_background(turn.provider):
                remedy = "'provider_batch', 'auto' or 'standard'" if kind in HAVE_BATCHES else "'auto' or 'standard'"
                reason = (
                    f"the lane {config.lane.value!r} is OpenAI's own, and the provider {turn.provider!r} does not have it: "
                    f"use the lane {remedy}, or the provider 'openai'"
                )
                yield Objection(field, reason, self._certain)
            elif config.lane is Lane.PROVIDER_BATCH and kind not in HAVE_BATCHES:
                reason = f"the provider {turn.provider!r} has no batches, so the lane 'provider_batch' can't call it"
                yield Objection(field, reason, self._certain)

    def _knows(self, config: GenerationConfig) -> bool:
        """True if the provider of a job is known here; without the workers' settings their default is not."""
        return config.provider is not None or self._certain

    def _of_turn(self, turn: Turn, *, priced: bool) -> Iterator[Objection]:
        providers = self._providers
        if (unusable := self._unusable(turn.provider)) is not None:
            yield Objection("config.provider", unusable, self._certain)
        elif providers.gives_probabilities(turn.provider):
            yield Objection("config.provider", f"{turn.provider!r} only judges, it writes no answer", self._certain)
        elif (model := providers.lacks_model(turn.provider, turn.model)) is not None:
            by = "" if turn.model else " of NIGHTDESK_MODEL"
            yield Objection("config.model", _NO_SUCH_MODEL.format(turn.provider, model, by), self._certain)
        elif providers.needs_model(turn.provider) and turn.model is None and self._certain:
            yield Objection("config.model", f"{turn.provider!r} has no default model: name one here or in its settings")
        elif priced and not providers.has_price(turn.provider, turn.model):
            yield Objection("config.model", self._unpriced(turn), self._certain)

    def _of_checkers(self, config: GenerationConfig) -> Iterator[Objection]:
        """Names that are neither a layer of the check nor a checker of the settings."""
        for at, name in enumerate(config.checkers):
            if not isinstance(name, CheckerName) and name not in self._own_checkers:
                listing = ", ".join((*CheckerName, *self._own_checkers))
                yield Objection(
                    f"config.checkers.{at}",
                    f"there is no checker {name!r}; there is {listing} (checkers of your own: NIGHTDESK_CHECKERS)",
                    self._certain,
                )

    def _of_the_judge(self, judge: str, *, priced: bool) -> Iterator[Objection]:
        turn = Turn.parse(judge)
        if (unusable := self._unusable(turn.provider)) is not None:
            yield Objection("config.judge", unusable, self._certain)
        elif self._providers.kind_of(turn.provider) is ProviderKind.EXTRACTIVE:
            yield Objection("config.judge", f"{turn.provider!r} quotes sentences and can't judge", self._certain)
        elif priced and not self._providers.has_price(turn.provider, turn.model):
            yield Objection("config.judge", self._unpriced(turn), self._certain)

    def _unusable(self, name: str) -> str | None:
        """The reason that a provider can't be called, by these settings; None without one."""
        providers = self._providers
        if providers.kind_of(name) is None:
            setting = " of NIGHTDESK_PROVIDER" if providers.is_default_set and name == providers.default else ""
            return f"no provider {name!r}{setting} is configured; there is {', '.join(providers.names)}"
        if self._certain and (variable := providers.missing_key(name)) is not None:
            return f"the provider {name!r} needs a key: set {variable}"
        return None

    def _unpriced(self, turn: Turn) -> str:
        return UNPRICED.format(self._providers.model_of(turn.provider, turn.model), turn.provider)
