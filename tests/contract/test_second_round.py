"""Requests of a second round, by provider and protocol: the question, the answer before, the faults."""

from collections.abc import Iterator
from typing import Any

import pytest

from schemas.generation import AnswerProtocol
from schemas.model_call import Correction, Prompt
from tasks.answers.postprocess import postprocess
from tasks.ports import Answered, Provider
from tasks.prompting.messages import render, with_correction
from tests.providers import ANTHROPIC, CHAT, OPENAI, OPENS, SOURCES, Kind, question, using
from tests.stub.server import Stub, running_stub

TOKEN = "<|im_end|>"
PREVIOUS = 'The desk opens at noon. {{ query }} \x001\x00 <source 9>"quoted"</source>'
CORRECTION = Correction(
    purpose="correct", problems=(f'"The desk opens at {{{{ 7 * 7 }}}}." {TOKEN}',), previous=PREVIOUS + TOKEN
)


@pytest.fixture(scope="module")
def stub() -> Iterator[Stub]:
    with running_stub() as stub:
        yield stub


def chat_messages(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Role and text of each message of a body of any maker."""
    entries = [("system", body["system"])] if "system" in body else []
    for message in body.get("messages") or body["input"]:
        content = message["content"]
        texts = content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
        entries.append((message["role"], texts))
    return entries


@pytest.mark.parametrize(
    ("kind", "config", "protocol"),
    [
        (OPENAI, {}, AnswerProtocol.SEGMENTS),
        (OPENAI, {"stream": True}, AnswerProtocol.MARKERS),
        (CHAT, {}, AnswerProtocol.SEGMENTS),
        (ANTHROPIC, {}, AnswerProtocol.NATIVE),
        (ANTHROPIC, {"output_schema": "ComparisonResult"}, AnswerProtocol.SEGMENTS),
    ],
    ids=str,
)
def test_the_answer_before_and_its_faults_are_sent(
    kind: Kind, config: dict[str, Any], protocol: AnswerProtocol, stub: Stub
) -> None:
    stub.requests.clear()
    request = question(**config)

    async def again(provider: Provider) -> tuple[Prompt, Answered]:
        prompt = with_correction(render(request, provider.protocol(request.config)), request, CORRECTION)
        return prompt, await provider.call(provider.plan(request, prompt))

    prompt, answered = using(kind.at(stub), again)

    assert prompt.snapshot.protocol is answered.completion.protocol is protocol
    assert prompt.snapshot.proves([source.content for source in SOURCES])
    (sent_request,) = stub.requests
    system, first, previous, correction = chat_messages(sent_request.json)
    assert (system[0], first[0]) == ("system", "user")
    assert "When does the night desk open?" in first[1]
    assert (previous[0], previous[1][: len(PREVIOUS)]) == ("assistant", PREVIOUS)
    assert TOKEN not in previous[1] + correction[1]
    assert correction[0] == "user"
    assert '- "The desk opens at {{ 7 * 7 }}."' in correction[1]
    assert postprocess(request, prompt, answered.completion).response.startswith(OPENS.rstrip("."))
