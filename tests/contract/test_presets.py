"""Presets, answer protocols and refused parameters, over HTTP through the real SDKs."""

import json
from decimal import Decimal
from typing import Any

import pytest

from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol
from schemas.job import JobRequest, Sampling
from schemas.model_call import FinishReason
from tasks.answers.postprocess import postprocess
from tasks.errors import ConfigurationError
from tasks.ports import Provider, Turn
from tests.providers import ANTHROPIC, CHAT, EXTRACTIVE, KEY, OPENAI, OPENS, Kind, ask, fails, plan, question
from tests.stub import faults
from tests.stub.server import Stub
from worker.providers.registry import ConfiguredProviders
from worker.settings import Settings

EVERYTHING: dict[str, Any] = {
    "temperature": 0.2,
    "reasoning_effort": "low",
    "sampling": {
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.1,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.1,
        "seed": 7,
        "stop": ["END"],
    },
    "max_tokens": 300,
}
SEGMENTS, NATIVE, MARKERS = AnswerProtocol.SEGMENTS, AnswerProtocol.NATIVE, AnswerProtocol.MARKERS


def preset(name: str, stub: Stub, **more: Any) -> Provider:
    """A preset as it is, but for its address (and a key for that address)."""
    assert EVERYTHING["sampling"].keys() == Sampling.model_fields.keys(), "a new parameter needs a value here"
    settings = {"preset": name, "base_url": f"{stub.url}/v1", "model": "m", "api_key_env": "MINE", **more}
    return ConfiguredProviders(Settings(providers={name: settings}), {"MINE": KEY}).get(name)  # type: ignore[dict-item]


# ---- presets ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "base_url", "model"),
    [
        ("ollama", "http://localhost:11434/v1", None),
        ("vllm", "http://localhost:8000/v1", None),
        ("llamacpp", "http://localhost:8080/v1", "default"),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta/openai/", "gemini-3.8-flash"),
        ("openrouter", "https://openrouter.ai/api/v1", None),
        ("litellm", "http://localhost:4000/v1", None),
    ],
)
def test_a_preset_needs_no_settings(name: str, base_url: str, model: str | None) -> None:
    environment = {"GEMINI_API_KEY": KEY, "OPENROUTER_API_KEY": KEY, "OPENAI_API_KEY": "sk-another-0123456789"}
    provider: Any = ConfiguredProviders(Settings(), environment).get(name)

    assert (provider.target.base_url, provider.target.model) == (base_url, model)
    assert provider.target.api_key == (KEY if name in {"gemini", "openrouter"} else None)


def test_geminis_key_is_named_when_it_is_missing() -> None:
    with pytest.raises(ConfigurationError, match="set GEMINI_API_KEY"):
        ConfiguredProviders(Settings(), {}).get("gemini")


def test_geminis_key_is_not_sent_elsewhere() -> None:
    settings: Any = {"mine": {"preset": "gemini", "base_url": "http://127.0.0.1:9/v1"}}
    provider: Any = ConfiguredProviders(Settings(providers=settings), {"GEMINI_API_KEY": KEY}).get("mine")

    assert provider.target.api_key is None


SENT_PARAMETERS = {
    "max_tokens",
    "messages",
    "model",
    "reasoning_effort",
    "response_format",
    "stop",
    "temperature",
    "top_p",
}
PENALTIES = {"presence_penalty", "frequency_penalty"}
BEYOND = {"top_k", "min_p", "repetition_penalty"}


@pytest.mark.parametrize(
    ("name", "parameters", "dropped"),
    [
        ("ollama", SENT_PARAMETERS | PENALTIES | {"seed"}, BEYOND),
        ("vllm", SENT_PARAMETERS | PENALTIES | BEYOND | {"seed"}, set()),
        ("llamacpp", SENT_PARAMETERS | PENALTIES | {"seed", "top_k", "min_p"}, {"repetition_penalty"}),
        ("gemini", SENT_PARAMETERS, BEYOND | PENALTIES | {"seed"}),
        ("openrouter", SENT_PARAMETERS | PENALTIES | BEYOND | {"seed"}, set()),
        ("litellm", SENT_PARAMETERS | PENALTIES | {"seed"}, BEYOND),
    ],
)
def test_a_preset_sends_what_its_server_knows(name: str, parameters: set[str], dropped: set[str], stub: Stub) -> None:
    request = question(**EVERYTHING)
    call, answered = ask(preset(name, stub), request)

    (sent_request,) = stub.requests
    assert set(sent_request.json) == parameters
    assert sent_request.json["response_format"]["json_schema"]["strict"] is True
    assert sent_request.headers["authorization"] == f"Bearer {KEY}"
    snapshot = answered.completion.snapshot
    assert set(snapshot.parameters_dropped) == dropped
    assert snapshot.protocol is SEGMENTS
    processed = postprocess(request, call.prompt, answered.completion)
    assert (processed.parsed, processed.citations[0].quoted_text) == (True, OPENS)


def test_every_value_of_a_preset_can_be_overridden(stub: Stub) -> None:
    provider = preset("gemini", stub, drops=("reasoning_effort",), json_schema=False, answer_protocol="markers")
    ask(provider, question(**EVERYTHING))

    (request,) = stub.requests
    assert "reasoning_effort" not in request.json
    assert "response_format" not in request.json
    assert request.json["seed"] == 7


def test_a_preset_that_there_is_not_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="there is gemini, litellm, llamacpp, ollama, openrouter, vllm"):
        Settings(providers={"mine": {"preset": "lmstudio"}})  # type: ignore[dict-item]


# ---- prices and fields of one's own ----------------------------------------------------------------------------


def test_prices_of_the_settings_make_ceilings_and_costs_of_a_server_of_ones_own(stub: Stub) -> None:
    prices = {"m": {"input": 0.2, "output": 0.8, "cached": 0.05}, "*": {"input": 1, "output": 2}}
    call, answered = ask(preset("litellm", stub, prices=prices), question(max_tokens=1_000))

    usage = answered.completion.usage
    assert usage is not None
    assert usage.input_tokens > usage.cached_input_tokens
    fresh = usage.input_tokens - usage.cached_input_tokens
    micro_usd = (
        fresh * Decimal("0.2") + usage.cached_input_tokens * Decimal("0.05") + usage.output_tokens * Decimal("0.8")
    )
    assert answered.completion.cost_usd == micro_usd / 1_000_000
    assert call.reserve_usd is not None
    assert call.reserve_usd > answered.completion.cost_usd
    dearer = plan(preset("litellm", stub, prices=prices), question(max_tokens=1_000, model="another"))
    assert dearer.reserve_usd is not None
    assert dearer.reserve_usd > 2 * call.reserve_usd, "any other model has the price of '*'"
    unnamed = {"another": {"input": 1, "output": 2}}
    assert plan(preset("litellm", stub, prices=unnamed), question()).reserve_usd is None


def test_fields_of_the_settings_are_sent_and_recorded_beneath_those_of_the_job(stub: Stub) -> None:
    own = {"provider": {"order": ["a"]}, "seed": 1, "temperature": 0.5, "messages_format": "x", "response_format": {}}
    _, answered = ask(preset("vllm", stub, extra_body=own), question(temperature=0.1))

    (request,) = stub.requests
    assert (request.json["provider"], request.json["seed"], request.json["temperature"]) == ({"order": ["a"]}, 1, 0.1)
    assert request.json["response_format"]["type"] == "json_schema"
    snapshot = answered.completion.snapshot
    assert snapshot.parameters_sent["provider"] == {"order": ["a"]}
    assert set(snapshot.parameters_dropped) == {"extra_body.temperature", "response_format"}


def test_fields_inside_an_object_of_the_job_are_put_together(stub: Stub) -> None:
    provider = OPENAI.at(stub, extra_body={"reasoning": {"summary": "auto", "effort": "high"}})
    ask(provider, question(reasoning_effort="low"))

    assert stub.requests[-1].json["reasoning"] == {"summary": "auto", "effort": "low"}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"preset": "vllm", "extra_body": {"max_tokens": 9, "n": 2}}, "must not hold max_tokens, n"),
        ({"preset": "vllm", "extra_body": {"api_key": "sk-1"}}, "must not hold api_key"),
        ({"preset": "vllm", "prices": {"*": {"input": -1, "output": 1}}}, "greater than or equal to 0"),
        ({"preset": "vllm", "prices": {"*": {"input": 20_000, "output": 1}}}, "less than or equal to 10000"),
        ({"preset": "vllm", "prices": {"*": {"input": 1}}}, "output"),
        ({"kind": "extractive", "prices": {"*": {"input": 1, "output": 1}}}, "has prices, which the kind 'extractive'"),
        ({"kind": "llamaindex", "llm": "a:B", "extra_body": {"a": 1}}, "has extra_body, which the kind 'llamaindex'"),
    ],
)
def test_prices_and_fields_that_can_not_hold_are_refused(setting: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(providers={"mine": setting})


# ---- answer protocols ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "requested_protocol", "served"),
    [
        (OPENAI, None, SEGMENTS),
        (OPENAI, MARKERS, MARKERS),
        (CHAT, None, SEGMENTS),
        (CHAT, SEGMENTS, SEGMENTS),
        (CHAT, MARKERS, MARKERS),
        (ANTHROPIC, None, NATIVE),
        (ANTHROPIC, NATIVE, NATIVE),
        (ANTHROPIC, SEGMENTS, SEGMENTS),
        (ANTHROPIC, MARKERS, MARKERS),
        (EXTRACTIVE, MARKERS, SEGMENTS),
    ],
    ids=str,
)
@pytest.mark.parametrize("by", ["job", "settings"])
def test_the_protocol_asked_for_is_used_and_recorded(
    kind: Kind, requested_protocol: AnswerProtocol | None, served: AnswerProtocol, by: str, stub: Stub
) -> None:
    request = question(**({"answer_protocol": requested_protocol} if by == "job" else {}))
    provider = kind.at(stub, answer_protocol=requested_protocol if by == "settings" else None)
    call, answered = ask(provider, request)

    assert answered.completion.snapshot.protocol is call.protocol is served
    processed = postprocess(request, call.prompt, answered.completion)
    assert (processed.parsed, processed.citations[0].source_index) == (True, 0)
    if kind is EXTRACTIVE and by == "job":
        assert "always quotes in segments" in answered.completion.snapshot.parameters_dropped["answer_protocol"]


def test_a_job_with_a_schema_gets_its_object_whatever_the_settings_prefer(stub: Stub) -> None:
    schema = {"type": "object", "properties": {"opens": {"type": "string"}}}
    for kind in (OPENAI, CHAT, ANTHROPIC):
        call, _ = ask(kind.at(stub, answer_protocol=MARKERS), question(output_schema=schema))
        assert call.protocol is SEGMENTS


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        (OPENAI, {"answer_protocol": NATIVE}, "no answer protocol 'native'; it has 'segments', 'markers'"),
        (CHAT, {"answer_protocol": NATIVE}, "no answer protocol 'native'; it has 'segments', 'markers'"),
        (ANTHROPIC, {"answer_protocol": NATIVE, "output_schema": {"type": "object"}}, "use 'segments'"),
        (CHAT, {"answer_protocol": MARKERS, "output_schema": {"type": "object"}}, "use 'segments'"),
    ],
    ids=str,
)
def test_a_protocol_that_cannot_be_served_is_refused_before_the_call(
    kind: Kind, config: dict[str, Any], message: str, stub: Stub
) -> None:
    error = fails(kind.at(stub), question(**config))

    assert error.kind is FailureKind.CONFIGURATION
    assert message in str(error)
    assert not stub.requests


# ---- parameters that a server does not know --------------------------------------------------------------------

GEMINI_TOLD = 'Invalid JSON payload received. Unknown name "seed": Cannot find field.'


@pytest.mark.parametrize(
    ("kind", "act", "parameter"),
    [
        (CHAT, faults.status(400, [{"error": {"code": 400, "message": GEMINI_TOLD}}]), "seed"),
        (OPENAI, faults.openai_error(400, "unknown_parameter", "Unknown parameter: 'foo'."), "foo"),
        (
            CHAT,
            faults.status(400, {"error": {"message": "no", "code": "unsupported_value", "param": "temperature"}}),
            "temperature",
        ),
        (
            CHAT,
            faults.openai_error(400, "invalid_request_error", "Unrecognized request argument supplied: top_p"),
            "top_p",
        ),
        (
            ANTHROPIC,
            faults.anthropic_error(400, "invalid_request_error", "effort: Extra inputs are not permitted"),
            "effort",
        ),
        (CHAT, faults.status(422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "stop"]}]}), "stop"),
        (
            CHAT,
            faults.status(422, {"detail": [{"type": "less_than_equal", "loc": ["body", "temperature"]}]}),
            "temperature",
        ),
    ],
)
def test_a_parameter_that_a_server_does_not_know_is_named(
    kind: Kind, act: faults.Act, parameter: str, stub: Stub
) -> None:
    stub.then(act)
    error = fails(kind.at(stub))

    assert error.kind is FailureKind.PARAMETER
    assert f"refuses the parameter '{parameter}'" in str(error)
    assert "drops" in str(error)


OUT_OF_CREDIT = "Your credit balance is too low to access the API."
TOO_FEW_CREDITS = "This request requires more credits, or fewer max_tokens. You requested up to 9000 tokens."
WRONG_EFFORT = "Invalid value: '{}'. Supported values are: 'low', 'medium'."
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"fee": {"type": "number"}}, "required": ["fee"]}


@pytest.mark.parametrize(
    ("kind", "act", "config"),
    [
        (CHAT, faults.openai_error(400, "unknown_parameter", "Unknown parameter: 'seed'."), {"sampling": {"seed": 7}}),
        (
            CHAT,
            faults.openai_error(400, "unsupported_value", "Unsupported parameter: 'temperature'"),
            {"temperature": 0},
        ),
        (CHAT, faults.status(422, {"detail": [{"loc": ["body", "max_tokens"]}]}), {"max_tokens": 9000}),
        (CHAT, faults.status(402, {"error": {"message": TOO_FEW_CREDITS, "code": 402}}), {"max_tokens": 9000}),
        (CHAT, faults.openai_error(400, "unknown_parameter", "Unknown parameter: 'stream_options'."), {"stream": True}),
        (
            ANTHROPIC,
            faults.anthropic_error(400, "invalid_request_error", "stop_sequences: Extra inputs are not permitted"),
            {"sampling": {"stop": ["END"]}},
        ),
        (
            ANTHROPIC,
            faults.anthropic_error(400, "invalid_request_error", "output_config.format.schema: too deep"),
            {"output_schema": SCHEMA},
        ),
        (
            OPENAI,
            faults.status(400, {"error": {"message": "no such effort", "param": "reasoning.effort"}}),
            {"reasoning_effort": "most"},
        ),
        *(
            (CHAT, faults.openai_error(400, "invalid_value", WRONG_EFFORT.format(words)), {"reasoning_effort": words})
            for words in (
                OUT_OF_CREDIT,
                "Unknown parameter: 'foo'",
            )
        ),
    ],
)
def test_a_refusal_of_what_a_job_sets_or_says_itself_is_its_own(
    kind: Kind, act: faults.Act, config: dict[str, Any], stub: Stub
) -> None:
    """No lane is paused for it, whatever words a server repeats."""
    stub.then(act)

    assert fails(kind.at(stub), question(**config)).kind is FailureKind.INVALID_REQUEST


def test_what_the_settings_send_is_no_fault_of_a_job(stub: Stub) -> None:
    stub.then(faults.openai_error(400, "unsupported_value", "Unsupported parameter: 'temperature'"))
    error = fails(CHAT.at(stub, extra_body={"temperature": 0.2}), question(reasoning_effort="low"))

    assert error.kind is FailureKind.PARAMETER


def test_a_request_larger_than_a_minute_allows_is_not_tried_again(stub: Stub) -> None:
    told = "Request too large for gpt-6-luna on tokens per min (TPM): Limit 10000, Requested 50000."
    stub.then(faults.openai_error(429, "rate_limit_exceeded", told))

    assert fails(OPENAI.at(stub)).kind is FailureKind.CONTEXT_EXCEEDED


@pytest.mark.parametrize(
    ("kind", "act"),
    [
        (CHAT, faults.openai_error(400, "invalid_request_error", "This response_format type is unavailable now")),
        (CHAT, faults.status(400, {"error": {"message": "not supported", "param": "response_format.type"}})),
        (CHAT, faults.status(422, {"detail": [{"type": "literal_error", "loc": ["body", "response_format", "type"]}]})),
        (OPENAI, faults.openai_error(400, "invalid_request_error", "text.format is not supported with this model")),
    ],
)
def test_a_form_of_answers_that_a_server_does_not_take_names_its_setting(
    kind: Kind, act: faults.Act, stub: Stub
) -> None:
    stub.then(act)
    error = fails(kind.at(stub))

    assert error.kind is FailureKind.PARAMETER
    assert 'takes no JSON schema: set "json_schema": false' in str(error)


def test_a_schema_that_is_wrong_is_the_jobs_own_fault(stub: Stub) -> None:
    stub.then(faults.openai_error(400, "invalid_request_error", "Invalid schema for response_format 'answer'"))

    assert fails(CHAT.at(stub)).kind is FailureKind.INVALID_REQUEST


def test_a_redirect_names_the_address_and_a_gateway_the_words_behind_it(stub: Stub) -> None:
    stub.then(faults.status(307, {}, location="https://user:pw@gateway.example:8443/v1/?key=sk-1"))
    moved = fails(CHAT.at(stub))
    assert moved.kind is FailureKind.CONFIGURATION
    assert "its address is https://gateway.example:8443/v1/; correct the base URL" in str(moved)

    raw = {"message": "Provider returned error", "code": 502, "metadata": {"raw": "upstream overloaded"}}
    stub.then(faults.status(502, {"error": raw}))
    assert "Provider returned error: upstream overloaded" in str(fails(CHAT.at(stub)))


# ---- turns -----------------------------------------------------------------------------------------------------


def test_geminis_word_for_a_wrong_key(stub: Stub) -> None:
    message = "API key not valid. Please pass a valid API key."
    stub.then(faults.status(400, [{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}]))

    assert fails(preset("gemini", stub)).kind is FailureKind.AUTHENTICATION


@pytest.mark.parametrize(
    ("config", "turns"),
    [
        ({}, ["extractive", "ollama:llama3.2:3b", "openai"]),
        ({"provider": "openai", "model": "m"}, ["openai:m", "extractive", "ollama:llama3.2:3b", "openai"]),
        ({"provider": "openai"}, ["openai", "extractive", "ollama:llama3.2:3b"]),
        ({"fallbacks": ["vllm"]}, ["extractive", "vllm"]),
        ({"fallbacks": ["extractive"]}, ["extractive"]),
    ],
)
def test_whom_a_job_asks_in_turn(config: dict[str, Any], turns: list[str]) -> None:
    fallbacks = ("extractive", "ollama:llama3.2:3b", "openai")
    providers = ConfiguredProviders(Settings(fallbacks=fallbacks), {})
    request = JobRequest(query="q", context=["c"], config=config)

    assert providers.turns(request.config) == tuple(map(Turn.parse, turns))


def test_a_fallback_of_the_settings_that_there_is_not_stops_the_process() -> None:
    with pytest.raises(ConfigurationError, match="NIGHTDESK_FALLBACKS names 'opneai:x'"):
        ConfiguredProviders(Settings(fallbacks=("opneai:x",)), {})


@pytest.mark.parametrize(
    ("base_url", "name"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://ours.openai.azure.com/openai/v1", "max_completion_tokens"),
        ("http://127.0.0.1:9/v1", "max_tokens"),
    ],
)
def test_openais_models_get_the_name_of_the_limit_that_they_take(base_url: str, name: str) -> None:
    settings: Any = {"mine": {"kind": "openai_chat", "base_url": base_url, "model": "gpt-5-mini"}}
    call = plan(ConfiguredProviders(Settings(providers=settings), {}).get("mine"), question(max_tokens=77))

    assert call.parameters_sent[name] == 77


# ---- answers in other wrappings --------------------------------------------------------------------------------


def chat_answer(**choice: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return {"model": "m", "choices": [{"index": 0, "finish_reason": "stop", **choice}], "usage": usage}


def test_the_choice_with_the_least_index_is_taken(stub: Stub) -> None:
    body = chat_answer(message={"content": "The first."})
    body["choices"].insert(0, {"index": 1, "finish_reason": "stop", "message": {"content": "The second."}})
    stub.then(faults.status(200, body))

    assert ask(CHAT.at(stub), question())[1].completion.text == "The first."


def test_a_byte_order_mark_before_an_answer_is_passed_over(stub: Stub) -> None:
    stub.then(faults.raw(b"\xef\xbb\xbf" + json.dumps(chat_answer(message={"content": "It opens at nine."})).encode()))

    completion = ask(CHAT.at(stub), question())[1].completion
    assert (completion.text, completion.sanitised) == ("It opens at nine.", False)


@pytest.mark.parametrize("kind", [CHAT, OPENAI, ANTHROPIC], ids=str)
def test_events_in_answer_to_a_call_without_stream_are_read(kind: Kind, stub: Stub) -> None:
    stub.then(faults.in_events)
    text = ask(kind.at(stub), question())[1].completion.text

    assert OPENS.partition(".")[0] in text


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (CHAT, chat_answer(finish_reason="tool_calls", message={"content": None, "tool_calls": [{}]})),
        (OPENAI, {"status": "completed", "model": "m", "output": [{"type": "function_call", "name": "search"}]}),
        (ANTHROPIC, {"type": "message", "model": "m", "content": [{"type": "tool_use"}], "stop_reason": "tool_use"}),
    ],
)
def test_a_tool_called_in_the_place_of_an_answer_is_told(kind: Kind, body: dict[str, Any], stub: Stub) -> None:
    stub.then(faults.status(200, body))

    assert ask(kind.at(stub), question())[1].completion.finish_reason is FinishReason.TOOL_CALL
