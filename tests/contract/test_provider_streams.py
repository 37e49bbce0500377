"""Streamed answers: the same as those fetched whole, heard while they come, and what came is kept when they break."""

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from schemas.failure import FailureKind as K
from schemas.generation import AnswerProtocol
from schemas.model_call import Completion, FinishReason
from tasks.errors import ProviderError
from tasks.ports import Answered, Listener, Provider
from tests.deadlines import scale_to_load
from tests.llmock import Llmock, running_llmock
from tests.providers import (
    ANTHROPIC,
    CHAT,
    EVERY,
    EXTRACTIVE,
    KEY,
    OPENAI,
    OPENS,
    OVER_HTTP,
    Kind,
    ask,
    hear,
    plan,
    question,
    using,
)
from tests.stub import faults
from tests.stub.server import Stub
from tests.stub.streams import broken, not_streamed

every = pytest.mark.parametrize("kind", EVERY, ids=str)
over_http = pytest.mark.parametrize("kind", OVER_HTTP, ids=str)

SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["hour"],
    "properties": {"hour": {"type": "string"}},
}


def whole(kind: Kind, stub: Stub, **config: Any) -> Completion:
    """The same answer fetched whole, in the protocol that a stream gets."""
    target = {} if kind in {ANTHROPIC, EXTRACTIVE} or "output_schema" in config else {"json_schema": False}
    return ask(kind.at(stub, **target), question(**config))[1].completion


def facts(completion: Completion) -> dict[str, Any]:
    """All of a completion but what differs between two calls, or says that one was streamed."""
    facts_of_completion = completion.model_dump(mode="json")
    for name in ("request_id", "parameters_sent", "parameters_dropped"):
        facts_of_completion["snapshot"].pop(name)
    facts_of_completion["snapshot"]["rate_limits"].pop("date", None)
    return facts_of_completion


def heard_whole(kind: Kind, stub: Stub, **config: Any) -> tuple[list[str], Answered]:
    pieces, answered, _ = hear(kind.at(stub), question(stream=True, **config))
    assert isinstance(answered, Answered), answered
    return pieces, answered


# ---- whole answers ---------------------------------------------------------------------------------------------


@every
def test_a_streamed_answer_is_the_one_fetched_whole(kind: Kind, stub: Stub) -> None:
    expected = whole(kind, stub)
    pieces, answered = heard_whole(kind, stub)
    assert facts(answered.completion) == facts(expected)
    assert answered.completion.snapshot.request_id
    assert answered.completion.snapshot.parameters_sent["stream"] is True
    assert len(pieces) > 3
    if kind is EXTRACTIVE:
        assert "".join(pieces) == "The night desk opens at nine in the evening. [1]"
    else:
        assert "".join(pieces) == answered.completion.text


@over_http
def test_an_object_by_schema_is_streamed_too(kind: Kind, stub: Stub) -> None:
    expected = whole(kind, stub, output_schema=SCHEMA)
    pieces, answered = heard_whole(kind, stub, output_schema=SCHEMA)
    assert answered.completion.protocol is AnswerProtocol.SEGMENTS
    assert facts(answered.completion) == facts(expected)
    assert orjson.loads("".join(pieces))["data"] == {"hour": "x"}


@over_http
def test_received_bytes_are_stored_unchanged(kind: Kind, stub: Stub) -> None:
    call, answered = ask(kind.at(stub), question(stream=True))
    (request,) = stub.requests
    assert request.body == call.body
    assert call.stream
    assert request.json["stream"] is True
    assert ("stream_options" in request.json) is (kind is CHAT)
    assert request.headers["accept-encoding"] == "identity"
    lines = answered.raw.splitlines()
    assert all(line.startswith((b"data: ", b"event: ")) or not line for line in lines)
    assert answered.raw.endswith(b"\n\n")


def _refused(answer: dict[str, Any]) -> None:
    if "output" in answer:
        answer["output"][1]["content"] = [{"type": "refusal", "refusal": "I can't."}]
    elif "choices" in answer:
        answer["choices"][0]["message"] |= {"content": None, "refusal": "I can't."}
    else:
        details = {"type": "refusal", "category": "bio", "explanation": "I can't."}
        answer |= {"content": [], "stop_reason": "refusal", "stop_details": details}


def _too_long(answer: dict[str, Any]) -> None:
    if "output" in answer:
        answer |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    elif "choices" in answer:
        answer["choices"][0]["finish_reason"] = "length"
    else:
        answer["stop_reason"] = "max_tokens"


def _unstorable(answer: dict[str, Any]) -> None:
    text = "nul \0 in it [1]"
    if "output" in answer:
        answer["output"][1]["content"][0]["text"] = text
    elif "choices" in answer:
        answer["choices"][0]["message"]["content"] = text
    else:
        answer["content"][1]["text"] = text


@over_http
@pytest.mark.parametrize("change", [_refused, _too_long, _unstorable])
def test_an_odd_answer_is_as_odd_in_a_stream(kind: Kind, change: Any, stub: Stub) -> None:
    stub.then(faults.changed(change))
    expected = whole(kind, stub)
    stub.then(faults.changed(change))
    pieces, answered = heard_whole(kind, stub)
    streamed_facts, fetched = facts(answered.completion), facts(expected)
    streamed_facts["snapshot"].pop("rate_limits")
    fetched["snapshot"].pop("rate_limits")
    assert streamed_facts == fetched
    assert "\0" not in "".join(pieces)


@over_http
def test_a_server_that_knows_no_streams_is_understood(kind: Kind, stub: Stub) -> None:
    stub.then(not_streamed())
    pieces, answered = heard_whole(kind, stub)
    assert answered.completion.text.startswith(OPENS)
    assert "".join(pieces) == answered.completion.text
    assert answered.raw.startswith(b"{")


def test_a_price_needs_the_usage_that_comes_last(stub: Stub) -> None:
    _, answered = heard_whole(ANTHROPIC, stub)
    assert answered.completion.usage is not None
    assert answered.completion.usage.output_tokens == 80
    assert answered.completion.cost_usd == whole(ANTHROPIC, stub).cost_usd


# ---- broken ones -----------------------------------------------------------------------------------------------

KINDS = {"disconnect": K.UNKNOWN_OUTCOME, "truncate": K.UNKNOWN_OUTCOME, "malformed": K.BAD_ANSWER}
"""What each break is taken for; an error event says itself."""


def assert_kept(pieces: list[str], listener: Listener) -> Completion:
    partial = listener.so_far()
    assert partial is not None
    assert partial.completion.finish_reason is FinishReason.INTERRUPTED
    assert partial.completion.text == "".join(pieces)
    assert partial.completion.cost_usd is None
    assert partial.raw.startswith((b"data: ", b"event: "))
    assert KEY not in partial.completion.model_dump_json()
    return partial.completion


@over_http
@pytest.mark.parametrize("how", [*KINDS, "error"])
def test_a_broken_stream_is_an_error_and_what_came_is_kept(kind: Kind, how: str, stub: Stub) -> None:
    stub.then(broken(how, after=7))
    pieces, error, listener = hear(kind.at(stub), question(stream=True))
    assert isinstance(error, ProviderError)
    expected = KINDS.get(how) or (K.OVERLOADED if kind is ANTHROPIC else K.UNKNOWN_OUTCOME)
    assert error.kind is expected
    assert error.provider_request_id == "req_broken"
    assert error.__cause__ is None
    assert "".join(pieces)
    assert OPENS.startswith("".join(pieces).strip())
    assert assert_kept(pieces, listener).snapshot.request_id == "req_broken"
    if how == "error":
        assert "fell over" in str(error)


FLOOD = {
    OPENAI: b'data: {"type": "response.in_progress"}\n\n',
    CHAT: b'data: {"choices": []}\n\n',
    ANTHROPIC: b'event: message_delta\ndata: {"type": "message_delta", "delta": {}}\n\n',
}


@over_http
def test_a_flood_of_events_leaves_their_turns_to_other_calls(kind: Kind, stub: Stub) -> None:
    stub.then(faults.flood(FLOOD[kind] * 1_000, "text/event-stream", pieces=1))

    async def count_turns(provider: Provider) -> int:
        call, turns = asyncio.create_task(provider.call(plan(provider, question(stream=True)))), 0
        while not call.done():
            await asyncio.sleep(0)
            turns += 1
        with pytest.raises(ProviderError):
            await call
        return turns

    assert using(kind.at(stub), count_turns) > 1_000


@over_http
def test_a_stall_ends_with_the_time_allowed(kind: Kind, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    stub.then(broken("stall", after=7))
    pieces: list[str] = []

    def spend_the_time(piece: str) -> None:
        if not pieces:
            loop = asyncio.get_running_loop()
            monkeypatch.setattr(loop, "time", lambda time=loop.time: time() + 60)
        pieces.append(piece)

    listener = Listener(spend_the_time)

    async def call(provider: Provider) -> None:
        await provider.call(plan(provider, question(stream=True, timeout_s=60)), listener)

    with pytest.raises(ProviderError) as raised:
        using(kind.at(stub), call)
    assert raised.value.kind is K.UNKNOWN_OUTCOME
    assert_kept(pieces, listener)


@over_http
def test_a_call_that_is_cut_off_has_kept_what_came(kind: Kind, stub: Stub) -> None:
    stub.then(broken("stall", after=7))
    came = asyncio.Event()
    pieces: list[str] = []

    def on_text(piece: str) -> None:
        pieces.append(piece)
        came.set()

    listener = Listener(on_text)

    async def cut_off(provider: Provider) -> None:
        call = asyncio.create_task(provider.call(plan(provider, question(stream=True)), listener))
        await asyncio.wait_for(came.wait(), scale_to_load(5))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    using(kind.at(stub), cut_off)
    assert_kept(pieces, listener)


@over_http
@pytest.mark.parametrize("how", ["disconnect", "malformed", "stall"])
def test_an_answer_that_came_whole_is_not_lost_with_its_connection(kind: Kind, how: str, stub: Stub) -> None:
    expected = whole(kind, stub)
    stub.then(broken(how, after=1_000))
    # Only a connection that stalls is waited for.
    patience_s = scale_to_load(1) if how == "stall" else 30
    pieces, answered, _ = hear(kind.at(stub), question(stream=True, timeout_s=patience_s))
    assert isinstance(answered, Answered), answered
    assert answered.completion.text == expected.text == "".join(pieces)
    assert answered.completion.usage == expected.usage


# ---- against a simulator nobody here wrote ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def llmock() -> Iterator[Llmock]:
    with running_llmock() as simulator:
        yield simulator


def at_llmock(kind: Kind, llmock: Llmock) -> Provider:
    base = "/anthropic" if kind is ANTHROPIC else "/v1"
    return kind.build(kind.target(Stub(), base_url=llmock.url + base))


@over_http
def test_a_foreign_stream_is_read(kind: Kind, llmock: Llmock) -> None:
    llmock.script({"type": "reply", "text": "The desk opens at nine [1]."})
    pieces, answered, _ = hear(at_llmock(kind, llmock), question(stream=True))
    assert isinstance(answered, Answered), answered
    assert answered.completion.text == "".join(pieces) == "The desk opens at nine [1]."
    assert answered.completion.finish_reason is FinishReason.STOP
    assert answered.completion.usage is not None


@over_http
@pytest.mark.parametrize("how", KINDS)
def test_a_foreign_stream_that_breaks(kind: Kind, how: str, llmock: Llmock) -> None:
    llmock.script(
        {"type": "reply", "text": "The desk opens at nine in the evening, as it always did [1]."},
        {"type": "stream_fault", "kind": how, "after_chunks": 5},
    )
    pieces, error, listener = hear(at_llmock(kind, llmock), question(stream=True))
    assert isinstance(error, ProviderError), error
    assert error.kind is KINDS[how]
    assert listener.so_far() is not None
    if kind is not OPENAI:
        assert_kept(pieces, listener)
