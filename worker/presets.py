"""Known servers and models: presets of servers that speak OpenAI's chat completions, default models, sampling rules."""

import re
from typing import Any

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


# ---- models -----------------------------------------------------------------------------------------------------------

DEFAULT_MODELS = {"openai": "gpt-6-luna", "openai_decisions": "gpt-6-luna", "anthropic": "claude-haiku-5-5"}
"""Per kind of provider: the small current models, priced for bulk (names as in openai 3.54 and anthropic 2.12); for
decisions the only one that OpenAI has."""

OFFLINE_MODEL = "extractive-4"
"""The one model of the offline provider: the version of its rules, which changes whenever an answer could."""

CHEAP_JUDGES: dict[str, tuple[str, str | None]] = {
    "openai": ("gpt-6-luna", "none"),
    "anthropic": ("claude-haiku-5-5", "low"),
    "gemini": ("gemini-3.1-flash-lite", None),
}
"""Models that judge by default what the other models of their vendor write, with the least reasoning effort that each takes.

By kind of provider, or preset. The cheapest current text model of each in ``genai-prices`` 0.2.3: $0.10, $0.10 and $0.25 a
million tokens read, $0.50, $0.50 and $1.50 written. What ``gpt-6-luna`` writes itself is judged by the Decisions API, the only
thing that costs less.
"""

LEAST_JUDGE_BYTES = {"written": 1_500, "decided": 850}
"""Bytes of a request to a judge without claims and passages: template, schema and the rest of the body."""

_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?:-|$)")
_O_SERIES = re.compile(r"o\d(?:-|$)")

_SAMPLING_WITHOUT_REASONING = (5, 1)
"""OpenAI's models from this version on take temperature and top_p, but only without reasoning."""


def why_no_sampling(model: str, reasoning_effort: str | None) -> str | None:
    """Reason for an OpenAI model to refuse temperature and top_p with this effort; None: it takes them, or is unknown."""
    if _O_SERIES.match(model):
        return "reasoning models of the o series take no sampling parameters"
    name = _GPT.match(model)
    if not name:
        return None
    version = (int(name[1]), int(name[2] or 0))
    if version < (5, 0):
        return None
    if version < _SAMPLING_WITHOUT_REASONING:
        return f"{model} takes no sampling parameters"
    if reasoning_effort != "none":
        return f"{model} takes it only with reasoning_effort 'none'"
    return None
