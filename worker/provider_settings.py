"""The settings of one provider, with presets of servers that speak OpenAI's chat completions."""

import re
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, field_validator, model_validator

from schemas.generation import AnswerProtocol

PRESETS: dict[str, dict[str, Any]] = {
    "ollama": {"base_url": "http://localhost:11434/v1", "drops": ("top_k",)},
    "vllm": {"base_url": "http://localhost:8000/v1", "takes": ("top_k", "min_p", "repetition_penalty")},
    "llamacpp": {"base_url": "http://localhost:8080/v1", "model": "default", "takes": ("top_k", "min_p")},
    "gemini": {
        "base_url": "https://generativelanguage.googleapis.com/v1beta/openai/",
        "api_key_env": "GEMINI_API_KEY",
        "model": "gemini-3.8-flash",
        "drops": ("seed", "top_k", "presence_penalty", "frequency_penalty"),
    },
    "openrouter": {
        "base_url": "https://openrouter.ai/api/v1",
        "api_key_env": "OPENROUTER_API_KEY",
        "takes": ("top_k", "min_p", "repetition_penalty"),
    },
    "litellm": {"base_url": "http://localhost:4000/v1"},
}
"""By the name of the server: fields of ``ProviderSettings``, which settings override.

All enforce a JSON schema given as ``response_format``, the two gateways as far as the model behind does. llama.cpp's server has one model loaded and takes any name
for it; what the others serve is the operator's choice. Sources: each project's page on its OpenAI-compatible API
(Ollama: "supported request fields"; vLLM and llama.cpp: extra sampling parameters; OpenRouter: "parameters"; Gemini answers 400 to what
it drops, "Unknown name ... Cannot find field"), 2026-11.
"""


def with_preset(settings: dict[str, Any]) -> dict[str, Any]:
    """Fills in the values of a preset that the settings lack; raises ``ValueError`` naming the presets."""
    name = settings.get("preset")
    if name is None:
        return settings
    preset = PRESETS.get(name) if isinstance(name, str) else None
    if preset is None:
        raise ValueError(f"there is no such preset; there is {', '.join(sorted(PRESETS))}")
    values = {"kind": "openai_chat", **preset}
    if settings.get("base_url") not in {None, preset["base_url"]}:
        # A key is for the address it was made for; another one has to be named.
        values.pop("api_key_env", None)
    return {**values, **settings}


_SECRET_OPTION = re.compile(r"(?:^|_)(?:key|secret|password|token)$", re.IGNORECASE)


class ProviderKind(StrEnum):
    """The protocol of a provider."""

    OPENAI = "openai"
    """OpenAI's Responses API."""
    OPENAI_CHAT = "openai_chat"
    """Chat completions of any OpenAI-compatible server."""
    OPENAI_DECISIONS = "openai_decisions"
    """OpenAI's Decisions API: a probability for each claim; only a judge."""
    ANTHROPIC = "anthropic"
    """Anthropic's Messages API."""
    AZURE_OPENAI = "azure_openai"
    """OpenAI's Responses API of an Azure resource."""
    BEDROCK = "bedrock"
    """Anthropic's Messages API at Amazon Bedrock."""
    VERTEX = "vertex"
    """Anthropic's Messages API at Google Vertex."""
    LLAMAINDEX = "llamaindex"
    """Any LLM class of LlamaIndex (the extra ``llamaindex``)."""
    PLUGIN = "plugin"
    """Code of one's own, by import path or entry point."""
    EXTRACTIVE = "extractive"
    """Offline: quotes the best source sentences."""


CLOUD_OPTIONS = {
    ProviderKind.AZURE_OPENAI: frozenset({"api_version", "scope"}),
    ProviderKind.BEDROCK: frozenset({"aws_profile", "aws_region"}),
    ProviderKind.VERTEX: frozenset({"project_id", "region"}),
}
"""Arguments of the clients of clouds that ``options`` may hold."""


class LimitSettings(BaseModel):
    """Limits of a provider, or of one of its models, over all workers; unset: those of the level above, or none."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    requests_per_minute: PositiveFloat | None = None
    input_tokens_per_minute: PositiveFloat | None = None
    output_tokens_per_minute: PositiveFloat | None = None
    max_concurrency: Annotated[int, Field(ge=1)] | None = None


Usd = Annotated[Decimal, Field(ge=0, le=10_000, allow_inf_nan=False)]


class TokenPrice(BaseModel):
    """The price of a model in USD per million tokens, in place of that of the tables."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Usd
    output: Usd
    cached: Usd | None = Field(default=None, description="read from the cache; unset: as input")
    cache_write: Usd | None = Field(default=None, description="written to the cache; unset: as input")
    batch: Annotated[Decimal, Field(gt=0, le=1)] = Field(
        default=Decimal(1), description="share of these prices that a provider batch costs"
    )


DECIDED = frozenset(
    {"background", "input", "max_completion_tokens", "max_output_tokens", "max_tokens", "messages", "model", "n", "questions",
     "service_tier", "stream", "system"}
)  # fmt: skip
"""Fields of a request that Nightdesk writes for each job, or prices: ``extra_body`` can't set them."""


class ProviderSettings(BaseModel):
    """One named provider. Keys are never written here: ``api_key_env`` names the variable that holds one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: str | None = Field(
        default=None,
        description="ollama, vllm, llamacpp, gemini, openrouter or litellm: fills in what is not given here",
    )
    kind: ProviderKind
    base_url: str | None = Field(default=None, description="unset: the maker's own, or its SDK's variable")
    api_key_env: str | None = Field(
        default=None, description="variable with the key; unset: the SDK's own variable, or no key beside a base_url"
    )
    model: str | None = Field(default=None, description="model of jobs that name none")
    json_schema: bool = Field(
        default=True, description="the server enforces a JSON schema; false asks for running text with [N] markers"
    )
    answer_protocol: AnswerProtocol | None = Field(
        default=None, description="form of the answer for jobs that name none; unset: what the provider serves best"
    )
    service_tier: str | None = Field(default=None, description="sent as it is, for example 'flex' at OpenAI")
    takes: tuple[str, ...] = Field(
        default=(),
        description="sampling parameters beyond chat completions that the server knows: top_k, min_p, repetition_penalty",
    )
    drops: tuple[str, ...] = Field(
        default=(), description="parameters the server does not know: never sent, recorded as dropped"
    )
    llm: str | None = Field(
        default=None, description="llamaindex: import path of a class or factory, as 'package.module:Name'"
    )
    plugin: str | None = Field(
        default=None,
        description="plugin: a class or factory of your own, as 'package.module:name' or the name of an entry point of the "
        "group nightdesk.providers; it needs no kind",
    )
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="llamaindex and plugin: its arguments; a key comes from the variable of api_key_env. azure_openai: api_version, "
        "scope; bedrock: aws_region, aws_profile; vertex: region, project_id",
    )
    extra_body: dict[str, Any] = Field(
        default_factory=dict,
        description="fields added to the body of each request, where the job sets no other value, and recorded",
    )
    prices: dict[str, TokenPrice] | None = Field(
        default=None,
        description="own prices in USD per million tokens by model, '*' for every other one: input, output, cached, cache_write, "
        "batch (a share)",
    )
    limits: LimitSettings | None = Field(default=None, description="limits of each of its models")
    model_limits: dict[str, LimitSettings] | None = Field(default=None, description="limits by model, before 'limits'")

    @model_validator(mode="before")
    @classmethod
    def _fill_in_preset(cls, settings: Any) -> Any:
        if not isinstance(settings, dict):
            return settings
        return with_preset({"kind": ProviderKind.PLUGIN, **settings} if "plugin" in settings else settings)

    @model_validator(mode="after")
    def _name_the_plugin(self) -> "ProviderSettings":
        if (self.kind is ProviderKind.PLUGIN) != (self.plugin is not None):
            raise ValueError("needs 'plugin' for the kind 'plugin', and for no other: 'package.module:name'")
        if unknown := sorted(self.options.keys() - CLOUD_OPTIONS.get(self.kind, self.options.keys())):
            choices = ", ".join(sorted(CLOUD_OPTIONS[self.kind]))
            raise ValueError(
                f"has options that {self.kind.value!r} does not know: {', '.join(unknown)}; it has {choices}"
            )
        own_code = self.kind in {ProviderKind.EXTRACTIVE, ProviderKind.LLAMAINDEX, ProviderKind.PLUGIN}
        for name in ("prices", "extra_body") if own_code else ():
            if getattr(self, name):
                raise ValueError(
                    f"has {name}, which the kind {self.kind.value!r} does not use: it is for providers over HTTP"
                )
        return self

    @field_validator("extra_body")
    @classmethod
    def _beside_the_job(cls, body: dict[str, Any]) -> dict[str, Any]:
        if decided := sorted(DECIDED & body.keys()):
            raise ValueError(f"must not hold {', '.join(decided)}: the settings and the jobs decide that")
        return body

    @field_validator("options", "extra_body")
    @classmethod
    def _without_secrets(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name in options:
            if _SECRET_OPTION.search(name):
                raise ValueError(f"must not hold {name}: name the variable that holds it in api_key_env")
        return options

    @field_validator("base_url")
    @classmethod
    def _plain_http(cls, value: str | None) -> str | None:
        return None if value is None else plain_http(value)


def plain_http(url: str) -> str:
    """A base URL that the SDKs can call; raises ``ValueError`` without repeating what may be secret in it."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("must begin with http:// or https:// and name a host")
    if parts.username or parts.password:
        raise ValueError("must not hold credentials: put the key in the variable that api_key_env names")
    if parts.query or parts.fragment:
        raise ValueError("must end before the '?' or '#': a key goes into the variable that api_key_env names")
    return url
