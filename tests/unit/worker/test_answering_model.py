"""The first line of a run: which model answers, and what it costs."""

import pytest

from worker.operations.answering_model import answering_line
from worker.settings import Settings


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "answers by extractive: quotes of the sources, offline and free"),
        (
            {"provider": "openai", "model": "gpt-5-mini"},
            "answers by openai:gpt-5-mini: 0.25 USD a million tokens in, 2 out",
        ),
        ({"provider": "vllm", "model": "own"}, "answers by vllm:own: its price is not known, so no cost is counted"),
    ],
)
def test_model_and_price_are_told(settings: dict[str, str], line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert answering_line(Settings(**settings)).startswith(line)
