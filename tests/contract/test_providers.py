"""The promises of every provider: the offline provider, and those over HTTP through their real SDKs."""

import asyncio
import hashlib
import json
import sys
import threading
from decimal import Decimal
from typing import Any

import orjson
import pytest
from aiohttp import web

from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol, Lane
from schemas.job import Sampling
from schemas.model_call import FinishReason, Usage
from tasks.answers.postprocess import postprocess
from tasks.errors import ProviderError
from tasks.grounding import ground
from tasks.ports import Answered, Provider
from tests.providers import (
    ANTHROPIC,
    CHAT,
    CLOSES,
    EVERY,
    EXTRACTIVE,
    KEY,
    OPENAI,
    OPENS,
    OVER_HTTP,
    Kind,
    ask,
    plan,
    question,
    using,
)
from tests.stub import faults
from tests.stub.answers import USAGE
from tests.stub.server import Stub

every = pytest.mark.parametrize("kind", EVERY, ids=str)
over_http = pytest.mark.parametrize("kind", OVER_HTTP, ids=str)


# ---- all four --------------------------------------------------------------------------------------------------


@every
def test_a_plan_is_pure_and_its_hash_is_of_the_body(kind: Kind, stub: Stub) -> None:
    provider = kind.at(stub)

    async def twice(provider: Provider) -> list[Any]:
        return [plan(provider, question()), plan(provider, question())]

    first, second = using(provider, twice)
    assert first.body == second.body
    assert first.request_hash == second.request_hash == hashlib.sha256(first.body).digest()
    assert KEY.encode() not in first.body
    assert not stub.requests


@every
def test_an_answer_is_complete_and_can_be_audited(kind: Kind, stub: Stub) -> None:
    call, answered = ask(kind.at(stub), question())
    completion = answered.completion
    assert completion.finish_reason is FinishReason.STOP
    assert completion.protocol is call.protocol
    assert completion.usage is not None
    assert completion.usage.input_tokens > 0
    assert not completion.sanitised
    snapshot = completion.snapshot
    assert snapshot.provider == kind.name
    assert snapshot.model_returned
    assert snapshot.lane == "standard"
    assert snapshot.request_id
    assert snapshot.endpoint
    assert KEY not in completion.model_dump_json()


@every
def test_its_answer_is_read_cited_and_grounded(kind: Kind, stub: Stub) -> None:
    request = question()
    call, answered = ask(kind.at(stub), request)
    processed = postprocess(request, call.prompt, answered.completion)
    assert processed.parsed
    assert processed.response.startswith(OPENS.rstrip("."))
    first = processed.citations[0]
    assert (first.source_index, first.verified, first.quoted_text) == (0, True, OPENS)
    assert {claim.verdict.value for claim in ground(request, processed).claims} == {"supported"}


@every
def test_a_lane_it_cannot_serve_is_refused_or_not_claimed(kind: Kind, stub: Stub) -> None:
    async def lane(provider: Provider) -> str:
        return plan(provider, question(lane=Lane.BACKGROUND)).lane

    if kind is EXTRACTIVE:
        assert using(kind.at(stub), lane) == "standard"
        return
    with pytest.raises(ProviderError, match="'background'") as raised:
        using(kind.at(stub), lane)
    assert raised.value.kind is FailureKind.CONFIGURATION


@every
def test_unsent_parameters_are_recorded(kind: Kind, stub: Stub) -> None:
    values = {"top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 7, "stop": ("END",)}
    penalties = {"presence_penalty": 0.5, "frequency_penalty": 0.5, "repetition_penalty": 1.1}
    sampling = Sampling.model_validate(values | penalties)
    assert sampling.model_fields_set == set(Sampling.model_fields), "a new parameter needs a value here"
    config = question(temperature=0.3, sampling=sampling, stream=True).config
    call, answered = ask(kind.at(stub), question(**config.model_dump()))
    parameters, dropped = call.parameters_sent, call.parameters_dropped
    names = {"stop_sequences": "stop"}
    expected = {"temperature", "stream", *Sampling.model_fields}
    assert expected <= {names.get(name, name) for name in parameters} | set(dropped)
    assert not {names.get(name, name) for name in parameters} & set(dropped)
    assert all(dropped.values())
    assert answered.completion.snapshot.parameters_dropped == dropped


# ---- over HTTP -------------------------------------------------------------------------------------------------


@over_http
def test_one_call_is_one_request_with_the_planned_body(kind: Kind, stub: Stub) -> None:
    call, answered = ask(kind.at(stub), question())
    (request,) = stub.requests
    assert request.body == call.body
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["content-type"] == "application/json"
    assert stub.calls == {call.request_hash.hex(): 1}
    assert answered.raw.startswith(b"{")
    assert orjson.loads(answered.raw)["id"]


@over_http
def test_nobody_keeps_a_body_while_its_answer_is_awaited(kind: Kind, stub: Stub) -> None:
    arrived, answers = threading.Event(), threading.Event()

    async def hold(_: web.Request, answer: dict[str, Any]) -> web.Response:
        arrived.set()
        await asyncio.to_thread(answers.wait)
        return web.json_response(answer)

    async def holders(provider: Provider) -> int:
        call = plan(provider, question())
        body = call.body
        calling = asyncio.create_task(provider.call(call))
        try:
            await asyncio.to_thread(arrived.wait)
            # Beside the name here and the argument of the function.
            return sys.getrefcount(body) - 2
        finally:
            answers.set()
            await calling

    stub.then(hold)
    assert using(kind.at(stub), holders) == 0


@over_http
def test_usage_has_one_meaning(kind: Kind, stub: Stub) -> None:
    _, answered = ask(kind.at(stub), question())
    assert answered.completion.usage == Usage(
        input_tokens=USAGE["input"],
        output_tokens=USAGE["output"],
        cached_input_tokens=USAGE["cached"],
        cache_write_tokens=USAGE["written"],
        reasoning_tokens=USAGE["reasoning"],
    )


@over_http
@pytest.mark.parametrize("count", [-1, 1e300, 10**12, 10**400, 1.5, "many", [1]], ids=str)
def test_a_usage_that_no_call_can_have_is_none(kind: Kind, count: Any, stub: Stub) -> None:
    """A count beyond the ledger's made a paid answer one that can't be stored; a fraction had it asked for again.

    The call costs the worst case: what names no usage would cost nothing under a ceiling.
    """
    names = ("input_tokens", "prompt_tokens")
    stub.then(faults.changed(lambda answer: answer["usage"].update(dict.fromkeys(names, count))))
    call, answered = ask(kind.at(stub), question())
    assert OPENS in answered.completion.text
    assert (answered.completion.usage, answered.completion.cost_usd) == (None, call.reserve_usd)
    assert call.reserve_usd or kind is CHAT


@pytest.mark.parametrize("kind", [OPENAI, ANTHROPIC], ids=str)
def test_cost_is_known_and_within_the_reserve(kind: Kind, stub: Stub) -> None:
    call, answered = ask(kind.at(stub), question())
    # 900 fresh at 0.10, 200 cached at 0.01, 100 written at 0.125, 80 out at 0.50 USD a million: both list prices.
    assert answered.completion.cost_usd == Decimal("0.0001445")
    assert call.reserve_usd is not None
    assert call.reserve_usd > answered.completion.cost_usd


@over_http
def test_an_unknown_price_is_none_and_never_nothing(kind: Kind, stub: Stub) -> None:
    call, answered = ask(kind.at(stub), question(model="of-ones-own"))
    assert call.reserve_usd is None
    assert answered.completion.cost_usd is None
    assert answered.completion.usage is not None


@over_http
def test_another_model_than_asked_is_noticed(kind: Kind, stub: Stub) -> None:
    stub.then(faults.changed(lambda answer: answer.update(model="somebody-else")))
    _, answered = ask(kind.at(stub), question())
    snapshot = answered.completion.snapshot
    assert (snapshot.model_asked, snapshot.model_returned) == (kind.model, "somebody-else")
    assert answered.completion.cost_usd is None


@over_http
def test_the_names_in_an_answer_are_kept_within_bounds(kind: Kind, stub: Stub) -> None:
    names = {"model": "m" * 10_000, "service_tier": "t\0" * 10_000}
    stub.then(faults.changed(lambda answer: answer.update(names, usage=answer["usage"] | names)))
    _, answered = ask(kind.at(stub), question())
    snapshot = answered.completion.snapshot
    assert (snapshot.model_returned, snapshot.service_tier_returned) == ("m" * 300, "t\ufffd" * 150)


@over_http
def test_request_id_limits_and_endpoint_are_kept(kind: Kind, stub: Stub) -> None:
    _, answered = ask(kind.at(stub), question())
    snapshot = answered.completion.snapshot
    assert snapshot.request_id == "req_1"
    assert snapshot.sdk is not None
    assert snapshot.sdk.split()[0] == ("anthropic" if kind is ANTHROPIC else "openai")
    assert any("remaining" in name for name in snapshot.rate_limits)
    assert snapshot.endpoint == stub.requests[0].headers["host"] + stub.requests[0].path


def _refusal(kind: Kind) -> faults.Act:
    def change(answer: dict[str, Any]) -> None:
        if kind is OPENAI:
            answer["output"][1]["content"] = [{"type": "refusal", "refusal": "I can't."}]
        elif kind is CHAT:
            answer["choices"][0]["message"] |= {"content": None, "refusal": "I can't."}
        else:
            details = {"type": "refusal", "category": "bio", "explanation": "I can't."}
            answer |= {"content": [], "stop_reason": "refusal", "stop_details": details}

    return faults.changed(change)


def _stopped(kind: Kind, reason: str | None) -> faults.Act:
    def change(answer: dict[str, Any]) -> None:
        if kind is OPENAI:
            answer |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
        elif kind is CHAT:
            answer["choices"][0]["finish_reason"] = reason
        else:
            answer["stop_reason"] = reason

    return faults.changed(change)


@over_http
def test_a_refusal_is_never_a_stop(kind: Kind, stub: Stub) -> None:
    stub.then(_refusal(kind))
    _, answered = ask(kind.at(stub), question())
    assert answered.completion.finish_reason is FinishReason.REFUSAL
    assert "I can't." in (answered.completion.refusal or "")


@pytest.mark.parametrize(
    ("kind", "reason", "expected"),
    [
        (OPENAI, "max_output_tokens", FinishReason.LENGTH),
        (OPENAI, "content_filter", FinishReason.CONTENT_FILTER),
        (OPENAI, "steered", FinishReason.OTHER),
        (CHAT, "length", FinishReason.LENGTH),
        (CHAT, "content_filter", FinishReason.CONTENT_FILTER),
        (CHAT, "tool_calls", FinishReason.TOOL_CALL),
        (CHAT, None, FinishReason.INTERRUPTED),
        (ANTHROPIC, "max_tokens", FinishReason.LENGTH),
        (ANTHROPIC, "model_context_window_exceeded", FinishReason.CONTEXT_EXCEEDED),
        (ANTHROPIC, "pause_turn", FinishReason.OTHER),
        (ANTHROPIC, None, FinishReason.INTERRUPTED),
    ],
    ids=str,
)
def test_an_unfinished_answer_is_never_a_stop(
    kind: Kind, reason: str | None, expected: FinishReason, stub: Stub
) -> None:
    stub.then(_stopped(kind, reason))
    _, answered = ask(kind.at(stub), question())
    assert answered.completion.finish_reason is expected
    assert answered.completion.text


def _with_text(kind: Kind, text: str) -> faults.Act:
    def change(answer: dict[str, Any]) -> None:
        if kind is OPENAI:
            answer["output"][1]["content"][0]["text"] = text
        elif kind is CHAT:
            answer["choices"][0]["message"]["content"] = text
        else:
            answer["content"][1]["text"] = text

    return faults.changed(change)


@over_http
def test_unstorable_characters_are_replaced_one_for_one(kind: Kind, stub: Stub) -> None:
    stub.then(_with_text(kind, "nul \0 and half a pair \ud800 end"))
    _, answered = ask(kind.at(stub), question())
    assert answered.completion.text.startswith("nul \ufffd and half a pair \ufffd end")
    assert answered.completion.sanitised
    # The bytes are kept as they came.
    assert b"\\u0000" in answered.raw
    assert b"\\ud800" in answered.raw


@over_http
def test_bytes_that_are_no_utf8_are_replaced(kind: Kind, stub: Stub) -> None:
    _, whole = ask(kind.at(stub), question())
    stub.then(faults.raw(whole.raw.replace(b"nine", b"ni\xffe")))
    _, answered = ask(kind.at(stub), question())
    assert "ni\ufffde" in answered.completion.text
    assert answered.completion.sanitised
    assert b"ni\xffe" in answered.raw


SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["hour"],
    "properties": {"hour": {"type": "string"}},
}


@over_http
@pytest.mark.parametrize("strict", [True, False])
def test_an_object_by_schema_comes_with_the_answer(kind: Kind, *, strict: bool, stub: Stub) -> None:
    schema = SCHEMA if strict else {"type": "object", "properties": {"hour": {"type": "string"}}}
    request = question(output_schema=schema)
    call, answered = ask(kind.at(stub), request)
    assert call.protocol is AnswerProtocol.SEGMENTS
    processed = postprocess(request, call.prompt, answered.completion)
    assert processed.structured == {"hour": "x"}
    if kind is not ANTHROPIC:
        assert f'"strict":{json.dumps(strict)}'.encode() in call.body


@pytest.mark.parametrize("kind", [OPENAI, CHAT], ids=str)
@pytest.mark.parametrize("why", [{"stream": True}, {"json_schema": False}], ids=str)
def test_without_a_schema_the_answer_has_markers(kind: Kind, why: dict[str, bool], stub: Stub) -> None:
    target = {"json_schema": False} if "json_schema" in why else {}
    request = question(**({"stream": True} if "stream" in why else {}))
    call, answered = ask(kind.at(stub, **target), request)
    assert call.protocol is AnswerProtocol.MARKERS
    assert b"json_schema" not in call.body
    assert answered.completion.text == f"{OPENS} [1]"


# ---- one maker's own -------------------------------------------------------------------------------------------


def test_anthropic_cites_sources_by_their_numbers_and_places(stub: Stub) -> None:
    call, answered = ask(ANTHROPIC.at(stub), question())
    blocks = [block for block in call_content(call.body) if block["type"] == "search_result"]
    assert [(block["title"], block["citations"]) for block in blocks] == [
        ("Hours", {"enabled": True}),
        ("Source 2", {"enabled": True}),
    ]
    contents = [source.content for source in call.request.context]
    assert ["".join(piece["text"] for piece in block["content"]) for block in blocks] == contents
    text = answered.completion.text
    assert text == f"{OPENS} {CLOSES}"
    cited = [
        (text[citation.start : citation.end], citation.source_number)
        for citation in answered.completion.native_citations
    ]
    assert cited == [(OPENS, 1), (CLOSES, 2)]
    assert [citation.quote.strip() for citation in answered.completion.native_citations] == [OPENS, CLOSES]


def call_content(body: bytes) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = orjson.loads(body)["messages"][-1]["content"]
    return content


def test_anthropic_shows_every_word_of_the_prompt_in_order(stub: Stub) -> None:
    call, _ = ask(ANTHROPIC.at(stub), question())
    prompt_text = "".join(
        block["text"] if block["type"] == "text" else "".join(piece["text"] for piece in block["content"])
        for block in call_content(call.body)
    )
    texts = call.prompt.snapshot.texts([source.content for source in call.request.context])
    assert "".join(prompt_text.split()) == "".join(texts[-1][1].split())


def test_openai_keeps_nothing_and_samples_only_without_reasoning(stub: Stub) -> None:
    call, _ = ask(OPENAI.at(stub), question(temperature=0.2))
    assert orjson.loads(call.body)["store"] is False
    assert call.parameters_dropped["temperature"] == "gpt-6-luna takes it only with reasoning_effort 'none'"
    call, _ = ask(OPENAI.at(stub), question(temperature=0.2, reasoning_effort="none"))
    assert orjson.loads(call.body)["temperature"] == 0.2
    assert orjson.loads(call.body)["reasoning"] == {"effort": "none"}


def test_the_organisation_of_the_environment_goes_to_openai_alone(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin")
    ask(CHAT.at(stub), question())
    ask(OPENAI.at(stub, official=True), question())
    own_request, other_request = stub.requests
    assert "openai-organization" not in own_request.headers
    assert other_request.headers["openai-organization"] == "org-secret"
    assert "sk-admin" not in str([own_request.headers, other_request.headers])


def test_a_tier_is_sent_and_priced(stub: Stub) -> None:
    call, answered = ask(OPENAI.at(stub, service_tier="flex"), question())
    assert orjson.loads(call.body)["service_tier"] == "flex"
    assert answered.completion.snapshot.service_tier_returned == "flex"
    assert answered.completion.cost_usd == Decimal("0.0001445") / 2


# ---- the heads of requests ---------------------------------------------------------------------------------------


@over_http
def test_each_call_has_the_head_that_the_sdk_writes(kind: Kind, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    own = ask_twice(kind.at(stub))
    # Behind a proxy, here the stub itself, the SDK sends its requests itself.
    monkeypatch.setenv("http_proxy", stub.url)
    monkeypatch.setenv("no_proxy", "")
    through_sdk = ask_twice(kind.at(stub))
    heads = [(record.path, record.headers) for record in stub.requests]
    assert len(heads) == 4
    assert [answer.completion.text for answer in own] == [answer.completion.text for answer in through_sdk]
    assert all(head == heads[0] for head in heads[1:])
    assert any(KEY in value for value in heads[0][1].values())


def ask_twice(provider: Provider) -> list[Answered]:
    """Calls twice, so that the second call repeats a head."""

    async def twice(provider: Provider) -> list[Answered]:
        return [await provider.call(plan(provider, question())) for _ in range(2)]

    return using(provider, twice)


def test_each_time_limit_has_its_own_head(stub: Stub) -> None:
    async def twice(provider: Provider) -> None:
        for timeout_s in (5.0, 7.0, 5.0):
            await provider.call(plan(provider, question(timeout_s=timeout_s)))

    using(CHAT.at(stub), twice)
    assert [record.headers["x-stainless-read-timeout"] for record in stub.requests] == ["5.0", "7.0", "5.0"]


def test_a_password_in_the_address_is_sent_as_a_header(stub: Stub) -> None:
    address = stub.url.replace("//", "//clerk:secret-word@") + "/v1"
    _, answered = ask(CHAT.at(stub, base_url=address), question())
    assert answered.completion.text
    assert stub.requests[0].headers["authorization"].startswith("Basic ")
