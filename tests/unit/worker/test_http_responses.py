"""Responses in the form of OpenAI's API: the job that an order becomes, and the pieces of its text."""

from typing import Any

import pytest

from tasks.errors import InputError
from tasks.submit import parse_request, validated
from worker.http.chat_completions import CHAT
from worker.http.problems import Problem
from worker.http.response_events import pieces_of
from worker.http.response_order import CreateResponse, _job_of, sources_in


def job(**order: Any) -> dict[str, Any]:
    read: CreateResponse = validated(CreateResponse, {**order, "sources": sources_in(order)})
    return _job_of(read, {"mine", "openai"}.__contains__)


@pytest.mark.parametrize("name", ["sources", "context", "documents"])
@pytest.mark.parametrize("value", [["Rent is due."], "Rent is due.", {"hits": {"hits": [{"text": "Rent is due."}]}}])
def test_sources_may_have_each_name_and_shape_of_a_job(name: str, value: Any) -> None:
    response = job(input="When?", **{name: value})
    chat = job(**CHAT.read({"messages": [{"role": "user", "content": "When?"}], name: value}))
    assert [source.content for source in parse_request(response)[0].context] == ["Rent is due."]
    assert chat["context"] == response["context"]


@pytest.mark.parametrize(
    ("model", "config"),
    [
        (None, {}),
        ("nightdesk", {}),
        ("mine", {"provider": "mine"}),
        ("openai:gpt-5.6", {"provider": "openai", "model": "gpt-5.6"}),
        ("ft:gpt-4o:acme", {"model": "ft:gpt-4o:acme"}),
    ],
)
def test_a_model_names_its_provider_where_there_is_one(model: str | None, config: dict[str, str]) -> None:
    assert job(input="Why?", model=model)["config"] == config


def test_options_become_the_config_and_the_config_of_the_order_goes_before() -> None:
    form = {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}}
    options = {"max_output_tokens": 90, "temperature": 0.5, "top_p": 0.1, "reasoning": {"effort": "low"}, "text": form}
    result = job(
        input="Why?", config={"temperature": 0, "mode": "simple"}, background=True, metadata={"a": "b"}, **options
    )

    assert result["config"] == {
        "max_tokens": 90,
        "temperature": 0,
        "sampling": {"top_p": 0.1},
        "reasoning_effort": "low",
        "output_schema": {"type": "object"},
        "mode": "simple",
    }
    assert (result["metadata"], result["priority"]) == ({"a": "b", "openai": {"background": True}}, 0)
    assert job(input="Why?")["priority"] == 50, "a caller waits"


@pytest.mark.parametrize(
    ("order", "parameter"),
    [
        ({"input": [1]}, "input"),
        ({"input": [{"role": "assistant", "content": "So."}]}, "input"),
        ({"input": [{"role": "user", "content": 7}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]},
            "input[0].content[0]",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_data": "JVBERv8="}]}]},
            "input[0].content[0].file_data",
        ),
        ({"input": [{"role": [], "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": {}, "text": "x"}]}]}, "input[0].content[0]"),
        ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "x", "metadata": {"k": 1}}, "metadata"),
    ],
)
def test_what_can_not_be_done_is_refused_by_name(order: dict[str, Any], parameter: str) -> None:
    with pytest.raises((Problem, InputError)) as refused:
        job(**order)
    assert refused.value.field == parameter
    assert getattr(refused.value, "detail", str(refused.value)).startswith(f"{parameter}: ")


@pytest.mark.parametrize("text", ["", " ", "One.", "One two  three\n\nfour five six seven. \n", "\n\n- a\n- b [1]"])
def test_the_pieces_of_a_text_are_the_text(text: str) -> None:
    assert "".join(pieces_of(text)) == text
