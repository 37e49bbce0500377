"""The offline provider: verbatim quotes that fit, or an honest no."""

import asyncio
import json
import threading
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.generation import AnswerProtocol
from schemas.grounding import Verdict
from schemas.job import GenerationConfig, JobRequest, Sampling
from schemas.model_call import FinishReason
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground
from tasks.ports import Answered, Call
from tasks.prompting.messages import render
from worker.providers import extractive
from worker.providers.extractive import Extractive, answer
from worker.providers.vendor_models import OFFLINE_MODEL

CONTEXT = [
    {
        "content": "# Rent\nThe landlord may increase the rent once in 12 months. What else? Notice of an\nincrease is"
        " given 60 days before.",
        "title": "Tenancy Act",
    },
    {"content": "The swimming pool opens in May. Children swim for free.", "title": "Pool rules"},
]


def planned(request: JobRequest, provider: Extractive | None = None) -> Call:
    return (provider or Extractive()).plan(request, render(request, AnswerProtocol.SEGMENTS))


def ask(query: str, context: Any = CONTEXT, **config: Any) -> JobRequest:
    return JobRequest(query=query, context=context, config=GenerationConfig(**config))


def answered(query: str, context: Any = CONTEXT) -> dict[str, Any]:
    answer_json: dict[str, Any] = json.loads(answer(planned(ask(query, context))).raw)
    return answer_json


def test_it_quotes_the_sentence_that_answers() -> None:
    answer_json = answered("How many days before is notice of an increase given?")
    assert answer_json["sufficient"]
    first = answer_json["segments"][0]
    assert first["text"] == "Notice of an increase is given 60 days before."
    assert first["citations"] == [{"source": 1, "quote": "Notice of an\nincrease is given 60 days before."}]


def test_questions_headings_and_hidden_text_are_never_quoted() -> None:
    request = ask("What else about rent?", context=["What else about rent? Nothing."])
    assert not json.loads(answer(planned(request)).raw)["sufficient"]
    long = "Filler stands here for a while and says nothing much. " * 20 + "The rent is 500 EUR a month."
    hidden = ask("What is the rent a month?", context=[long], max_context_tokens=100)
    assert "500" not in answer(planned(hidden)).completion.text


def test_the_call_is_free_and_says_what_it_dropped() -> None:
    config = {"temperature": 0.5, "sampling": Sampling(top_p=0.9), "model": "large", "stream": True}
    result = answer(planned(ask("When does the pool open?", **config)))
    completion = result.completion
    assert completion.cost_usd == Decimal(0)
    assert completion.finish_reason is FinishReason.STOP
    assert set(completion.snapshot.parameters_dropped) == {"temperature", "top_p", "model"}
    assert completion.snapshot.parameters_sent == {"stream": True}
    assert (completion.snapshot.model_asked, completion.snapshot.model_returned) == ("large", OFFLINE_MODEL)
    assert completion.usage is not None
    assert completion.usage.input_tokens > completion.usage.output_tokens > 0
    assert result.raw == completion.text.encode()


def test_its_answers_pass_the_check() -> None:
    request = ask("When does the swimming pool open?")
    call = planned(request)
    processed = postprocess(request, call.prompt, answer(call).completion)
    grounding = ground(request, processed)
    assert processed.response.startswith("The swimming pool opens in May [1].")
    assert all(citation.verified for citation in processed.citations)
    assert {claim.verdict for claim in grounding.claims} == {Verdict.SUPPORTED}


def test_an_urgent_call_is_answered_before_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    began, gate = threading.Event(), threading.Event()

    def slow(call: Call) -> Answered:
        began.set()
        assert gate.wait(10)
        order.append(call.request.query)
        return answer(call)

    monkeypatch.setattr(extractive, "answer", slow)

    async def scenario() -> None:
        provider = Extractive()
        requests = [JobRequest(query=f"Rent {number}?", context=CONTEXT) for number in range(4)]
        requests.append(JobRequest(query="Urgent rent?", context=CONTEXT, priority=1))
        calls = [asyncio.ensure_future(provider.call(planned(request, provider))) for request in requests]
        assert await asyncio.to_thread(began.wait, 10)
        calls[2].cancel()
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*calls, return_exceptions=True)
        await provider.close()

    asyncio.run(scenario())

    assert order == ["Rent 0?", "Urgent rent?", "Rent 1?", "Rent 3?"]


TEXT = st.text(
    alphabet=st.one_of(st.sampled_from("rent pool 12.?!\n狗需要同意。"), st.characters(codec="utf-8")),
    max_size=80,
)


@example("0,1", ["The rent is 0,1 of the price."])
@given(TEXT, st.lists(TEXT.filter(bool), max_size=4))
def test_every_quote_is_verbatim_whatever_the_text(query: str, contents: list[str]) -> None:
    request = ask("q" + query, context=contents)
    call = planned(request)
    for segment in json.loads(answer(call).raw)["segments"]:
        for citation in segment["citations"]:
            assert citation["quote"] in contents[call.prompt.snapshot.shown[citation["source"] - 1]]
