"""The stub's answers are of the shapes that the makers' SDKs define: nothing missing, nothing unknown."""

import asyncio
import warnings
from typing import Any

import anthropic
import openai
import pytest
from openai.types import Decision
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from tests.providers import KEY
from tests.stub.judge import JUDGE
from tests.stub.server import running_stub

TEXT = "<source 1>\nThe desk opens at nine. It closes at noon.\n</source>\n\nQuestion: When?"
RESULT = {
    "type": "search_result",
    "source": "source-1",
    "title": "Hours",
    "content": [{"type": "text", "text": "The desk opens at nine."}],
    "citations": {"enabled": True},
}


async def _openai(url: str) -> list[Any]:
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1", max_retries=0) as client:
        return [
            await client.responses.create(model="gpt-6-luna", input=[{"role": "user", "content": TEXT}]),
            await client.chat.completions.create(model="gpt-6-luna", messages=[{"role": "user", "content": TEXT}]),
        ]


async def _anthropic(url: str) -> anthropic.types.Message:
    async with anthropic.AsyncAnthropic(api_key=KEY, base_url=url, max_retries=0) as client:
        content: Any = [RESULT, {"type": "text", "text": "When?"}]
        return await client.messages.create(
            model="claude-haiku-5-5", max_tokens=100, messages=[{"role": "user", "content": content}]
        )


@pytest.mark.parametrize("position", [0, 1])
def test_openai_shapes(position: int) -> None:
    with running_stub() as stub:
        answer = asyncio.run(_openai(stub.url))[position]
    # Strict: the SDK's own reading lets missing and wrong fields pass.
    type(answer).model_validate(answer.model_dump(exclude_unset=True, warnings=False))
    assert isinstance(answer, Response | ChatCompletion)
    text = answer.output_text if isinstance(answer, Response) else answer.choices[0].message.content
    assert text == "The desk opens at nine. [1]"
    assert answer.usage is not None
    assert answer._request_id is not None


def test_anthropic_shapes() -> None:
    with running_stub() as stub, warnings.catch_warnings():
        answer = asyncio.run(_anthropic(stub.url))
    anthropic.types.Message.model_validate(answer.model_dump(exclude_unset=True, warnings=False))
    block = answer.content[-1]
    assert block.type == "text"
    assert block.citations is not None
    assert block.citations[0].type == "search_result_location"
    assert answer.usage.cache_read_input_tokens == 200
    assert answer._request_id == "req_1"


async def _decision(url: str) -> Decision:
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1", max_retries=0) as client:
        statement = "Is it said? <statement>The desk opens at nine.</statement>"
        return await client.decisions.create(
            model="gpt-6-luna",
            input=[{"role": "user", "content": TEXT}],
            questions=[{"type": "predicate", "instructions": statement, "name": name} for name in ("a", "b")],
        )


@pytest.mark.parametrize(("how", "types"), [("honest", ["predicate"] * 2), ("declines", ["predicate", "refusal"])])
def test_decision_shapes(how: str, types: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JUDGE, "how", how)
    with running_stub() as stub:
        answer = asyncio.run(_decision(stub.url))
    Decision.model_validate(answer.model_dump(exclude_unset=True, warnings=False))
    assert [(item.type, item.name) for item in answer.answers] == list(zip(types, ("a", "b"), strict=True))
    assert answer.usage.input_tokens == 1200
