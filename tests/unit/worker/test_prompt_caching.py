"""Prompt caching: marked where a provider can cache the jobs' common front, left alone where it can't."""

import asyncio
import json
from typing import Any

import pytest

from schemas.job import JobRequest
from tasks.prompting.messages import render
from worker.providers.adapter import Adapter, Target
from worker.providers.anthropic import Anthropic
from worker.providers.openai import OpenAI
from worker.providers.openai_chat import OpenAIChat

LONG = "Names of customers are never repeated. " * 150
"""More than 1,024 tokens."""


def planned(kind: type[Adapter], base_url: str, instructions: str, query: str = "When?") -> tuple[dict[str, Any], Any]:
    async def plan() -> tuple[dict[str, Any], Any]:
        adapter = kind(Target("here", base_url, "key", "some-model"))
        try:
            request = JobRequest(query=query, context=["At nine."], system_instructions=instructions)
            call = adapter.plan(request, render(request, adapter.protocol(request.config)))
            return json.loads(call.body), call
        finally:
            await adapter.close()

    return asyncio.run(plan())


def test_a_long_prompt_prefix_is_marked_for_anthropic() -> None:
    body, call = planned(Anthropic, "https://example.test", LONG)
    (block,) = body["system"]
    assert block["cache_control"] == {"type": "ephemeral"}
    assert block["text"].endswith(LONG)
    assert call.parameters_sent["system.cache_control"] == "ephemeral"
    body, call = planned(Anthropic, "https://example.test", "Be brief.")
    assert isinstance(body["system"], str)
    assert "system.cache_control" not in call.parameters_sent


@pytest.mark.parametrize("kind", [OpenAI, OpenAIChat])
def test_openai_gets_a_key_that_jobs_of_a_configuration_share(kind: type[Adapter]) -> None:
    keys = {planned(kind, "https://api.openai.com/v1", LONG, query)[0]["prompt_cache_key"] for query in ("A?", "B?")}
    assert len(keys) == 1
    assert planned(kind, "https://api.openai.com/v1", LONG + "!")[0]["prompt_cache_key"] not in keys
    assert "prompt_cache_key" not in planned(kind, "https://api.openai.com/v1", "Be brief.")[0]
    assert "customers" not in keys.pop()


def test_other_servers_get_no_parameter_they_may_not_know() -> None:
    assert "prompt_cache_key" not in planned(OpenAIChat, "http://127.0.0.1:11434/v1", LONG)[0]
