"""Models by name: the defaults, and the sampling rules of each. An unknown model is passed through."""

import re

DEFAULT_MODELS = {"openai": "gpt-6-luna", "openai_decisions": "gpt-6-luna", "anthropic": "claude-haiku-5-5"}
"""Per kind of provider: the small current models, priced for bulk (names as in openai 3.54 and anthropic 2.12); for
decisions the only one that OpenAI has."""

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
