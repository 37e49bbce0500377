"""The adapter over LlamaIndex with that library's own test LLMs: what is said, what comes back, and what goes wrong."""

import asyncio
import json
from importlib.util import find_spec
from typing import Any

import httpx2
import openai
import pytest

from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol
from schemas.model_call import FinishReason, Usage
from tasks.answers.postprocess import postprocess
from tasks.errors import ConfigurationError, ProviderError
from tasks.ports import Provider
from tests.providers import CLOSES, KEY, OPENS, ask, fails, plan, question, using
from worker.providers.registry import ConfiguredProviders
from worker.settings import Settings

if find_spec("llama_index") is None:
    pytest.skip("make test-llamaindex installs the extra", allow_module_level=True)

# Those of its dependencies are not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

MOCK = "llama_index.core.llms.mock:MockLLM"
SCRIPTED_LLM = "tests.llamaindex.scripted_llm:ScriptedLLM"


def provider(llm: str = MOCK, **settings: Any) -> Provider:
    """The provider of settings, built as a worker builds it."""
    providers: Any = {"mine": {"kind": "llamaindex", "llm": llm, **settings}}
    return ConfiguredProviders(Settings(providers=providers), {"MINE": KEY}).get("mine")


def test_the_test_llm_gets_the_prompt_and_its_answer_is_recorded() -> None:
    """Without a limit it says again what it was told: the sources come back, so the whole prompt was heard."""
    request = question()
    call, answered = ask(provider(), request)

    completion = answered.completion
    assert OPENS in completion.text
    assert CLOSES in completion.text
    assert request.query in completion.text
    assert completion.protocol is call.protocol is AnswerProtocol.MARKERS
    assert completion.cost_usd is None
    assert completion.usage is None
    snapshot = completion.snapshot
    assert (snapshot.model_asked, snapshot.model_returned) == (None, None)
    assert (snapshot.provider, snapshot.parameters_sent) == ("mine", {"class": "MockLLM"})
    assert (snapshot.sdk or "").startswith("llama-index-core ")
    assert json.loads(answered.raw)["text"] == completion.text
    assert postprocess(request, call.prompt, completion).response


def test_its_options_are_the_arguments_of_the_class() -> None:
    _, answered = ask(provider(options={"max_tokens": 3}), question())

    assert answered.completion.text == "text text text"


def test_a_cited_answer_is_located_in_its_source() -> None:
    request = question()
    raw = {
        "model": "m-2026",
        "id": "r-1",
        "usage": {"prompt_tokens": 12, "completion_tokens": 5},
        "choices": [{"finish_reason": "length"}],
    }
    call, answered = ask(provider(SCRIPTED_LLM, options={"answer": f"{OPENS} [1]", "raw": raw}), request)

    completion = answered.completion
    assert postprocess(request, call.prompt, completion).citations[0].quoted_text == OPENS
    assert completion.finish_reason is FinishReason.LENGTH
    assert completion.usage == Usage(input_tokens=12, output_tokens=5)
    assert (completion.snapshot.model_returned, completion.snapshot.request_id) == ("m-2026", "r-1")


def test_segments_are_asked_for_in_words_where_the_settings_say_so() -> None:
    answer_json = json.dumps(
        {"sufficient": True, "segments": [{"text": OPENS, "citations": [{"source": 1, "quote": OPENS}]}]}
    )
    for settings, config in (
        ({"json_schema": True}, {}),
        ({"answer_protocol": "segments"}, {}),
        ({}, {"answer_protocol": "segments"}),
    ):
        request = question(**config)
        call, answered = ask(provider(SCRIPTED_LLM, options={"answer": answer_json}, **settings), request)
        assert call.protocol is AnswerProtocol.SEGMENTS
        assert postprocess(request, call.prompt, answered.completion).citations[0].verified
        assert "asked for in words" in call.parameters_dropped["response_format"]


def test_unsupported_parameters_are_recorded_as_dropped() -> None:
    call = plan(provider(), question(temperature=0.5, sampling={"seed": 7}, reasoning_effort="low", stream=True))

    assert set(call.parameters_dropped) == {"max_tokens", "temperature", "seed", "reasoning_effort", "stream"}


def test_characters_that_cannot_be_stored_are_replaced_and_kept_raw() -> None:
    _, answered = ask(provider(SCRIPTED_LLM, options={"answer": "a\ud800b\x00"}), question())

    assert (answered.completion.text, answered.completion.sanitised) == ("a\ufffdb\ufffd", True)
    assert json.loads(answered.raw)["text"] == "a\ud800b\x00"


def test_failures_have_their_own_kinds() -> None:
    http_request = httpx2.Request("POST", "http://127.0.0.1:9/v1")
    limited = httpx2.Response(429, request=http_request, headers={"retry-after": "7"})
    refused = openai.APIConnectionError(request=http_request)
    refused.__cause__ = ConnectionRefusedError(111, "refused")
    for error, kind in (
        (openai.RateLimitError("slow down", response=limited, body=None), FailureKind.RATE_LIMITED),
        (refused, FailureKind.UNAVAILABLE),
        (ValueError(f"something with {KEY} in it"), FailureKind.UNKNOWN_OUTCOME),
    ):
        failure = fails(provider(SCRIPTED_LLM, options={"error": error}, api_key_env=None))
        assert failure.kind is kind
        assert KEY not in str(failure)


def test_a_call_ends_in_the_time_allowed() -> None:
    failure = fails(provider(SCRIPTED_LLM, options={"slow_s": 0.5}), question(timeout_s=0.05))

    assert failure.kind is FailureKind.UNKNOWN_OUTCOME


def test_a_class_that_only_waits_holds_up_no_other_call() -> None:
    async def both(slow: Provider) -> list[str]:
        order: list[str] = []

        async def called() -> None:
            await slow.call(plan(slow, question()))
            order.append("answered")

        async def beside() -> None:
            order.append("meanwhile")

        await asyncio.gather(called(), beside())
        return order

    assert using(provider(SCRIPTED_LLM, options={"slow_s": 0.2}), both) == ["meanwhile", "answered"]


def test_an_llm_with_calls_of_its_own_is_awaited() -> None:
    """One of LlamaIndex's own that is no ``CustomLLM``."""
    _, answered = ask(provider("llama_index.core.llms.mock:MockFunctionCallingLLM"), question())

    assert OPENS in answered.completion.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"llm": None}, "needs 'llm'"),
        ({"llm": "no_such_module:Name"}, "names 'no_such_module:Name', which can't be loaded"),
        ({"llm": "llama_index.core.llms.mock:Nobody"}, "can't be loaded"),
        ({"llm": "builtins:dict"}, "made a dict, which is no LLM"),
        ({"options": {"no_such": 1}}, "can't be built"),
    ],
)
def test_an_error_in_its_settings_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        provider(**{"llm": MOCK, **settings})


def test_a_key_is_handed_over_from_its_variable_and_never_told() -> None:
    with pytest.raises(ConfigurationError, match="api_key") as raised:
        provider(api_key_env="MINE")
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    "config", [{"lane": "provider_batch"}, {"model": "another"}, {"answer_protocol": "native"}], ids=str
)
def test_unsupported_requests_are_refused_before_the_call(config: dict[str, Any]) -> None:
    with pytest.raises(ProviderError) as raised:
        plan(provider(), question(**config))
    assert raised.value.kind is FailureKind.CONFIGURATION
