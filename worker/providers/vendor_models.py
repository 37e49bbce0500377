"""Models by name: the defaults, the cheap judges, and which take sampling parameters."""

import re

DEFAULT_MODELS = {"openai": "gpt-6-luna", "openai_decisions": "gpt-6-luna", "anthropic": "claude-haiku-5-5"}
"""Per kind of provider: the small current models, priced for bulk (names as in openai 3.54 and anthropic 2.12); for
decisions the only one that OpenAI has."""

OFFLINE_MODEL = "extractive-5"
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
