"""Presets of servers that speak OpenAI's chat completions; settings override every value."""

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "ollama": {"base_url": "http://localhost:11434/v1", "drops": ("top_k",)},
    "vllm": {"base_url": "http://localhost:8000/v1", "takes": ("top_k",)},
    "llamacpp": {"base_url": "http://localhost:8080/v1", "model": "default", "takes": ("top_k",)},
    "gemini": {
        "base_url": "https://generativelanguage.googleapis.com/v1beta/openai/",
        "api_key_env": "GEMINI_API_KEY",
        "model": "gemini-3.8-flash",
        "drops": ("seed", "top_k"),
    },
}
"""By the name of the server: fields of ``ProviderSettings``.

All four enforce a JSON schema given as ``response_format``. llama.cpp's server has one model loaded and takes any name
for it; what the others serve is the operator's choice. Sources: each project's page on its OpenAI-compatible API
(Ollama: "supported request fields"; vLLM and llama.cpp: extra sampling parameters; Gemini answers 400 to ``seed`` and
``top_k``, "Unknown name ... Cannot find field"), 2026-11.
"""


def with_preset(settings: dict[str, Any]) -> dict[str, Any]:
    """Fill in the values of a preset that the settings lack; raises ``ValueError`` naming the presets."""
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
