"""Makes sure, before anything is submitted, that the first jobs can be answered: provider, key, model, price."""

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from importlib import import_module
from typing import NamedTuple

from schemas.failure import FailureKind
from schemas.generation import CheckerName, Lane
from schemas.job import GenerationConfig, JobRequest
from schemas.model_call import Usage
from tasks.errors import ConfigurationError, ServiceUnavailable
from tasks.ports import NewJob, Provider, Turn
from worker.provider_settings import ProviderKind
from worker.providers.registry import ConfiguredProviders
from worker.providers.vendors import CLOUDS, VENDORS
from worker.settings import Settings

NOTHING = "Nothing was submitted; --no-preflight submits without asking"

_MODEL = "Name another model in NIGHTDESK_MODEL, or in config.model of the jobs"
_JUDGE = "Name another judge in NIGHTDESK_JUDGE, or in config.judge of the jobs"
_NO_JUDGE = "jobs ask for a judge, and there is none: set NIGHTDESK_JUDGE, or config.judge of the jobs; else their answers say that it is missing"

_MANY = 3
"""Models named in the first line."""


class FirstJobs(NamedTuple):
    """The first jobs of an input, which stand for all."""

    configs: Sequence[GenerationConfig]
    """Of those that call a model, each once."""
    judges: Sequence[str | None]
    """Those that jobs ask for, each once; None: the judge of the settings."""


def first_jobs(jobs: Sequence[NewJob]) -> FirstJobs:
    """Reads the first jobs of an input."""
    requests = [JobRequest.model_validate_json(job.request) for job in jobs]
    called = [request.config for request in requests if not request.check_only]
    configs = {(each.provider, each.model, each.fallbacks, each.lane): each for each in called}
    judges = dict.fromkeys(each.config.judge for each in requests if CheckerName.JUDGE in each.config.checkers)
    return FirstJobs(tuple(configs.values()), tuple(judges))


# ---- who answers -----------------------------------------------------------------------------------------------------


def models_line(providers: ConfiguredProviders, settings: Settings, configs: Iterable[GenerationConfig]) -> str:
    """The models that answer, what they cost, and the setting that chose them, for people; empty where none is called."""
    parts: dict[str, None] = {}
    for config in configs:
        turn = providers.turns(config)[0]
        if providers.kind_of(turn.provider) is not None:
            parts[_described(providers, turn, config.lane) + _reason(providers, settings, config)] = None
    if not parts:
        return ""
    more = f"; and {len(parts) - _MANY} more models" if len(parts) > _MANY else ""
    return f"answers by {'; '.join([*parts][:_MANY])}{more}"


def judges_line(providers: ConfiguredProviders, settings: Settings, judges: Iterable[str | None]) -> str:
    """The judges that jobs ask for with their prices, for people; empty where none does."""
    parts = [
        _described(providers, turn, Lane.STANDARD) + (" (by NIGHTDESK_JUDGE)" if by_settings else "")
        for turn, by_settings in _judge_turns(settings, judges).items()
        if providers.kind_of(turn.provider) is not None
    ]
    return f"judged by {'; '.join(parts)}" if parts else ""


def _judge_turns(settings: Settings, judges: Iterable[str | None]) -> dict[Turn, bool]:
    """The judges that are there, each with whether the settings name it."""
    named = {name or settings.judge: name is None for name in judges}
    return {Turn.parse(name): by_settings for name, by_settings in named.items() if name}


def _described(providers: ConfiguredProviders, turn: Turn, lane: Lane) -> str:
    if providers.kind_of(turn.provider) is ProviderKind.EXTRACTIVE:
        return f"{turn.provider}: quotes of the sources, offline and free"
    model = providers.model_of(turn.provider, turn.model)
    prices = [
        providers.usage_usd(turn.provider, model, usage, lane)
        for usage in (Usage(input_tokens=1_000, output_tokens=0), Usage(input_tokens=0, output_tokens=1_000))
    ]
    name = f"{turn.provider}:{model}" if model else turn.provider
    if None in prices:
        return f"{name}: its price is not known, so no cost is counted"
    input_usd, output_usd = (f"{((price or Decimal(0)) * 1_000).normalize():f}" for price in prices)
    return f"{name}: {input_usd} USD a million tokens in, {output_usd} out"


def _reason(providers: ConfiguredProviders, settings: Settings, config: GenerationConfig) -> str:
    """The setting that chose a provider, where no job did, and the variable that moves it to another address."""
    name = config.provider or providers.default
    kind = providers.kind_of(name)
    vendor = VENDORS.get(kind) if kind is not None else None
    reasons = []
    if config.provider is None:
        by_key = "as no key is set" if vendor is None else f"as {vendor.key_variable} is set"
        reasons.append(by_key if settings.provider is None else "by NIGHTDESK_PROVIDER")
    if config.model is None and settings.model is not None:
        reasons.append("model by NIGHTDESK_MODEL" if name == providers.default else "NIGHTDESK_MODEL is not for it")
    if (variable := providers.address_variable(name)) is not None:
        reasons.append(f"address by {variable}")
    return f" ({', '.join(reasons)})" if reasons else ""


# ---- whether they can ------------------------------------------------------------------------------------------------


async def check_models(
    providers: ConfiguredProviders,
    settings: Settings,
    configs: Iterable[GenerationConfig],
    judges: Sequence[str | None] = (),
) -> list[str]:
    """Asks each provider for key and model by a call without cost.

    Returns: what is wrong with models that have another one to fall back on, or are not the only ones, and that a judge is
        missing.
    Raises: ConfigurationError, ServiceUnavailable with the remedy.
    """
    warnings = [_NO_JUDGE] if None in judges and not settings.judge else []
    turns: dict[Turn, bool] = {}
    for config in configs:
        first, *fallbacks = providers.turns(config)
        turns[first] = turns.get(first, True) and not fallbacks
    passed: set[Turn] = set()
    refused: list[ConfigurationError | ServiceUnavailable] = []
    try:
        for turn, alone in turns.items():
            if (error := await _objection(providers, settings, turn, _MODEL)) is None:
                passed.add(turn)
            elif alone and len(turns) == 1:
                raise _final(error)
            elif alone:
                refused.append(error)
            else:
                warnings.append(f"{error}; the fallbacks are asked instead")
        if refused and len(refused) == len(turns):
            raise _final(refused[0])
        warnings += [f"{error}; jobs that ask it wait or fail, the others are answered" for error in refused]
        for turn in _judge_turns(settings, judges):
            # A judge has no fallbacks: that a model has some does not excuse it.
            if turn not in passed and (error := await _objection(providers, settings, turn, _JUDGE)) is not None:
                raise _final(error)
    finally:
        await providers.close()
    return warnings


def _final(error: ConfigurationError | ServiceUnavailable) -> ConfigurationError | ServiceUnavailable:
    return type(error)(f"{error}. {NOTHING}")


async def _objection(
    providers: ConfiguredProviders, settings: Settings, turn: Turn, other: str
) -> ConfigurationError | ServiceUnavailable | None:
    """The failure of each call of a model; ``other`` says how to name another one."""
    name = turn.provider
    kind = providers.kind_of(name)
    model = None if kind is None else providers.model_of(name, turn.model)
    # A missing key is named with each line.
    if model is None or kind is ProviderKind.EXTRACTIVE or providers.missing_key(name) is not None:
        return None
    try:
        provider = providers.get(name)
    except ConfigurationError as fault:
        return fault
    return None if kind in CLOUDS else await _refusal(providers, settings, provider, model, other)


async def _refusal(
    providers: ConfiguredProviders, settings: Settings, provider: Provider, model: str, other: str
) -> ConfigurationError | ServiceUnavailable | None:
    name = provider.name
    kind = providers.kind_of(name)
    # An SDK takes a second to load, which only its users pay.
    module = import_module("worker.providers.probe")
    error = await module.probe(provider, model, lists_all=providers.lists_all(name))
    if error is None:
        return None
    if error.kind is FailureKind.UNAVAILABLE:
        if kind is ProviderKind.OPENAI and error.status_code is not None:
            served = await module.chat_models(provider)
            if served is not None:
                return ConfigurationError(_as_chat(providers, settings, name, model, served))
        variable = providers.address_variable(name) or f"base_url of {name!r} in NIGHTDESK_PROVIDERS"
        return ServiceUnavailable(f"{error}. Start it, or correct {variable}")
    key = providers.key_variable(name)
    remedy = {
        FailureKind.AUTHENTICATION: f"Correct the key in {key}" if key else "Give it a key by api_key_env",
        FailureKind.QUOTA: "Raise the limit of the account",
    }.get(error.kind, other)
    return ConfigurationError(f"{str(error).rstrip('.')}. {remedy}")


def _as_chat(providers: ConfiguredProviders, settings: Settings, name: str, model: str, served: list[str]) -> str:
    """The setting to type for a server that has chat completions and not the Responses API; all others stay as they are."""
    own = {each: entry.model_dump(mode="json", exclude_unset=True) for each, entry in settings.providers.items()}
    entry: dict[str, object] = {"kind": ProviderKind.OPENAI_CHAT.value, "base_url": providers.address(name)}
    if (key := providers.key_variable(name)) is not None:
        entry["api_key_env"] = key
    entry["model"] = model if model in served or not served else served[0]
    setting = json.dumps({**own, name: {**own.get(name, {}), **entry}}, ensure_ascii=False)
    return (
        f"the server at {providers.address(name)} answers chat completions, and not OpenAI's Responses API. "
        f"Set NIGHTDESK_PROVIDERS='{setting}'"
    )
