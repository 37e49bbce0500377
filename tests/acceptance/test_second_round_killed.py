"""A worker is killed with the second call of a job under way: the first answer is not paid for again, nothing is lost."""

import json
import os
import signal
from typing import Any

from tests.acceptance.conftest import System
from tests.deadlines import scale_to_load
from tests.stub import faults
from tests.stub.server import running_stub

QUESTION = {
    "query": "When does the desk open?",
    "context": ["The desk opens at nine in the morning. It closes at noon."],
    "config": {"on_ungrounded": "retry", "strictness": "strict", "output_schema": "ComparisonResult"},
}
DATA = {"similarities": [], "differences": [], "contradictions": [], "conclusion": "nine"}


def says(text: str) -> faults.Act:
    """Answer with one sentence that cites source 1."""

    def change(answer: dict[str, Any]) -> None:
        segment = {"text": text, "citations": [{"source": 1, "quote": ""}]}
        answer_json = {"sufficient": True, "segments": [segment], "data": DATA}
        answer["choices"][0]["message"]["content"] = json.dumps(answer_json)

    return faults.changed(change)


def test_the_next_worker_continues_the_second_round(system: System) -> None:
    with running_stub() as stub:
        providers = f'{{"mine": {{"kind": "openai_chat", "base_url": "{stub.url}/v1", "model": "m"}}}}'
        stub.then(says("Forty purple editors eat pancakes on Mars."), faults.slow(60))
        stub.then(says("The desk opens at nine in the morning."))
        system.submit([QUESTION])
        killed = system.start_worker(provider="mine", providers=providers)
        system.until(lambda: len(stub.requests) == 2, what="the second call")
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait(scale_to_load(10))

        system.start_worker(provider="mine", providers=providers)
        system.until_final(1)
        conversations = [request.json["messages"] for request in stub.requests]
        calls = sorted(stub.calls.values())

    attempts = system.rows("SELECT round, purpose, outcome FROM attempt ORDER BY opened_at")
    assert attempts == [(0, "generate", "ok"), (1, "correct", "unknown"), (1, "correct", "ok")]
    assert calls == [1, 2]
    assert conversations[1] == conversations[2] != conversations[0]
    assert conversations[1][-2]["role"] == "assistant"
    assert '- "Forty purple editors eat pancakes on Mars."' in conversations[1][-1]["content"]
    assert system.rows("SELECT outcome, round, correction ->> 'purpose' FROM job") == [("answered", 1, "correct")]
    ((answer, structured),) = system.rows("SELECT answer, output_structured FROM generation_record")
    assert answer == "The desk opens at nine in the morning [1]."
    assert structured == DATA
