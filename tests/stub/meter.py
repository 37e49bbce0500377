"""Usages of the stub's answers that follow the words of both sides, for measurements of cost."""

from collections.abc import Callable
from typing import Any

import orjson

from tasks.prompting.sources.pack import ESTIMATED, exact_counter

COUNTER = exact_counter("gpt-5") or ESTIMATED
"""By OpenAI's vocabulary o200k where the extra ``tokens`` is installed, else an estimate."""

_REQUEST_PARTS = ("input", "questions", "messages", "system", "text", "response_format", "output_config")
"""Parts of a request that are read as tokens: words and schemas."""
_ANSWER_PARTS = ("output", "choices", "content")


def meter(answer: Callable[[dict[str, Any]], dict[str, Any]], body: dict[str, Any]) -> dict[str, Any]:
    """An answer of the stub with its usage counted; nothing is cached, and nothing is thought."""
    metered = answer(body)
    request_tokens = sum(_count(body[name]) for name in _REQUEST_PARTS if name in body)
    answer_tokens = sum(_count(text) for name in _ANSWER_PARTS if name in metered for text in _texts(metered[name]))
    metered["usage"] = {
        key: _figure(key, value, request_tokens, answer_tokens) for key, value in metered["usage"].items()
    }
    return metered


def _figure(key: str, value: Any, request_tokens: int, answer_tokens: int) -> Any:
    if isinstance(value, dict):
        return dict.fromkeys(value, 0)
    if not isinstance(value, int):
        return value
    counts = {
        "input_tokens": request_tokens,
        "prompt_tokens": request_tokens,
        "output_tokens": answer_tokens,
        "completion_tokens": answer_tokens,
    }
    return request_tokens + answer_tokens if key == "total_tokens" else counts.get(key, 0)


def _count(value: Any) -> int:
    return COUNTER.count(value if isinstance(value, str) else orjson.dumps(value).decode())


def _texts(value: Any) -> list[str]:
    """The texts of an answer, in whichever shape they come."""
    if isinstance(value, list):
        return [text for entry in value for text in _texts(entry)]
    if not isinstance(value, dict):
        return []
    own = [entry for key, entry in value.items() if key in {"text", "content"} and isinstance(entry, str)]
    return own + [text for entry in value.values() if isinstance(entry, list | dict) for text in _texts(entry)]
