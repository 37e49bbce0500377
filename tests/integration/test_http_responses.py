"""The stock OpenAI client, unchanged: one question with its sources, as a response, a stream, or in the background."""

import asyncio
import base64
import hashlib
import queue
import threading
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import openai
import psycopg
import pydantic
import pytest

from schemas.answer import Citation
from schemas.failure import FailureKind
from schemas.grounding import Claim, Grounding, Verdict
from schemas.model_call import Usage
from schemas.states import Outcome, Step
from tasks.ports import FinalJob, Leased
from tests.builders import make_failed, make_final, make_record
from tests.deadlines import scale_to_load
from tests.http_service import Door, running_service
from tests.lent_ledger import KeptLedger
from tests.servers import Servers
from worker.http import openai_responses

# One service and one worker for all of them.
pytestmark = pytest.mark.xdist_group("responses")

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SOURCE = "The notice period is three months. The rent is 900 euros."
QUOTE = "The notice period is three months."
ANSWER = "The notice period is three months [1]. It is easy to end."
INPUT: Any = [
    {
        "role": "user",
        "content": [
            {"type": "input_file", "filename": "lease.txt", "file_data": base64.b64encode(SOURCE.encode()).decode()},
            {"type": "input_text", "text": "How long is the notice period?"},
        ],
    }
]


def answered(job: Leased, more: int = 0) -> FinalJob:
    """An answer with a citation, a claim that no source supports, and so many more."""
    claims = (
        Claim(text=QUOTE, start_pos=0, end_pos=38, verdict=Verdict.SUPPORTED),
        Claim(text="It is easy to end.", start_pos=39, end_pos=57, verdict=Verdict.UNSUPPORTED),
        *(
            Claim(text=hashlib.sha256(b"%d" % n).hexdigest(), start_pos=39, end_pos=57, verdict=Verdict.UNSUPPORTED)
            for n in range(more)
        ),
    )
    citation = Citation(
        source_index=0, rank=1, chunk_id=job.request.context[0].chunk_id, document_id="d", quoted_text=QUOTE,
        text_snippet=QUOTE, start_pos=34, end_pos=37, source_start=0, source_end=34, verified=True,
    )  # fmt: skip
    record = make_record(
        job,
        answer=ANSWER,
        citations=(citation,),
        grounding=Grounding(grounding_score=0.5, confidence=0.25, claims=claims),
        usage=Usage(input_tokens=40, output_tokens=12, cached_input_tokens=8),
    )
    return make_final(job, outcome=Outcome.PARTIAL, record=record)


WRITER = {"writer": {"kind": "openai_chat", "base_url": "http://127.0.0.1:9/v1", "model": "m"}}
"""A provider that could fill a schema; no worker of these tests calls it."""


NOTIFY = """
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NOTIFY job; RETURN NULL; END $$;
CREATE TRIGGER tell AFTER INSERT ON job EXECUTE FUNCTION tell();
LISTEN job
"""


class Hands:
    """A worker that ends the next job for each order, as it is told."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._orders: queue.Queue[Any] = queue.Queue()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._work()))

    def answer(self, make: Any = answered) -> None:
        """End the next job."""
        self._orders.put(make)

    def stop(self) -> None:
        """End the thread."""
        self._orders.put(None)
        self.thread.join(60)

    async def _work(self) -> None:
        async with (
            KeptLedger(self._database_url) as ledger,
            await psycopg.AsyncConnection.connect(self._database_url, autocommit=True) as listener,
        ):
            await listener.execute(NOTIFY)
            while (make := await asyncio.to_thread(self._orders.get)) is not None:
                async with asyncio.timeout(scale_to_load(30)):
                    while not (jobs := await ledger.queue.lease(Step.GENERATE, "w", timedelta(minutes=5), 1)):
                        await anext(listener.notifies())
                await ledger.queue.finish([make(jobs[0])])


@pytest.fixture(scope="module")
def door(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with (
        servers.database() as url,
        running_service(
            url, servers.redis_url, tmp_path_factory.mktemp("home"), provider="extractive", providers=WRITER
        ) as door,
    ):
        yield door


@pytest.fixture(scope="module")
def hands(door: Door) -> Iterator[Hands]:
    hands = Hands(door.database_url)
    hands.thread.start()
    yield hands
    hands.stop()


def test_an_answer_comes_with_citations_usage_cost_and_verdicts(client: openai.OpenAI, hands: Hands) -> None:
    traces: list[str | None] = []

    def traced(job: Leased) -> FinalJob:
        traces.append(job.request.traceparent)
        return answered(job)

    hands.answer(traced)
    response = client.responses.create(
        model="nightdesk", input=INPUT, metadata={"case": "7"}, instructions="Be kind.",
        extra_headers={"traceparent": TRACE},
    )  # fmt: skip

    assert traces == [TRACE]
    assert (response.status, response.output_text) == ("completed", ANSWER)
    (annotation,) = response.output[0].content[0].annotations  # type: ignore[union-attr]
    assert (annotation.type, annotation.filename) == ("file_citation", "lease.txt")  # type: ignore[union-attr]
    place = annotation.model_dump()
    assert ANSWER[place["start_index"] : place["end_index"]] == "[1]"
    assert SOURCE[place["source_start"] : place["source_end"]] == place["quote"]
    assert response.usage is not None
    assert (response.usage.total_tokens, response.usage.input_tokens_details.cached_tokens) == (52, 8)
    assert Decimal(response.usage.model_dump()["cost_usd"]) == 0
    assert response.metadata == {
        "case": "7",
        "nightdesk_outcome": "partial",
        "nightdesk_confidence": "0.25",
        "nightdesk_grounding_score": "0.5",
        "nightdesk_claims": "2",
        "nightdesk_supported": "1",
        "nightdesk_unsupported": "1",
        "nightdesk_cost_usd": "0",
    }
    assert response.instructions == "Be kind."
    assert response.model_dump()["nightdesk"]["claims"][1]["verdict"] == "unsupported"
    assert client.responses.retrieve(response.id) == response


def test_a_stream_has_the_events_of_the_real_service_and_resumes(client: openai.OpenAI, hands: Hands) -> None:
    hands.answer()
    with client.responses.create(model="nightdesk", input=INPUT, stream=True) as stream:
        events = [*stream]
    kinds = [event.type for event in events if event.type != "response.output_text.delta"]
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.annotation.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == ANSWER
    assert [event.sequence_number for event in events] == [*range(len(events))]
    done = events[-1].response  # type: ignore[union-attr]
    assert (done.output_text, done.id) == (ANSWER, events[0].response.id)  # type: ignore[union-attr]
    with client.responses.retrieve(done.id, stream=True, starting_after=4) as again:
        assert [*again] == events[5:]
    hands.answer()
    with client.responses.stream(model="nightdesk", input=INPUT) as helper:
        assert helper.get_final_response().output_text == ANSWER


def test_a_large_result_is_whole_by_each_door(door: Door, client: openai.OpenAI, hands: Hands) -> None:
    hands.answer(partial(answered, more=3_000))
    with client.responses.create(model="nightdesk", input=INPUT, stream=True) as stream:
        events = [*stream]
    response = events[-1].response  # type: ignore[union-attr]
    assert client.responses.retrieve(response.id) == response
    with client.responses.retrieve(response.id, stream=True, starting_after=4) as again:
        assert [*again] == events[5:]

    job_id = UUID(response.id.removeprefix("resp_"))
    get = partial(door.http.get, headers={"Authorization": f"Bearer {client.api_key}"})
    answer = get(f"/v1/jobs/{job_id}")
    assert int(answer.headers["content-length"]) == len(answer.content)
    result = answer.json()
    assert len(result["claims"]) == 3_002
    assert get(f"/v1/batches/{result['batch_id']}/results").json() == result
    assert get(f"/v1/jobs/{job_id}/record").json()["result"] == result


def test_a_response_in_the_background_is_retrieved_or_cancelled(client: openai.OpenAI, hands: Hands) -> None:
    first = client.responses.create(model="nightdesk", input=INPUT, background=True)
    assert (first.status, first.background, first.output, first.usage) == ("queued", True, [], None)
    hands.answer()
    with client.responses.retrieve(first.id, stream=True) as events:
        assert [event.type for event in events][-1] == "response.completed"
    second = client.responses.create(model="nightdesk", input=INPUT, background=True)
    assert client.responses.cancel(second.id).status == "cancelled"
    assert client.responses.cancel(first.id).status == "completed", "a final one stays as it is"


def test_a_failure_and_a_refusal_are_those_of_the_real_service(client: openai.OpenAI, hands: Hands) -> None:
    hands.answer(lambda job: make_failed(job, FailureKind.CONTEXT_EXCEEDED))
    failed = client.responses.create(model="nightdesk", input=INPUT)
    assert failed.error is not None
    assert (failed.status, failed.error.code, failed.output) == ("failed", "invalid_prompt", [])
    hands.answer(make_failed)
    with client.responses.create(model="nightdesk", input=INPUT, stream=True) as stream:
        assert [event.type for event in stream][-1] == "response.failed"
    hands.answer(lambda job: make_final(job, outcome=Outcome.REFUSED, record=make_record(job, answer="I won't.")))
    with client.responses.create(model="nightdesk", input=INPUT, stream=True) as stream:
        events = [*stream]
    assert "response.refusal.done" in [event.type for event in events]
    assert events[-1].response.output[0].content[0].refusal == "I won't."  # type: ignore[union-attr]


class Period(pydantic.BaseModel):
    months: int


FORMAT: Any = {"format": {"type": "json_schema", "name": "p", "schema": Period.model_json_schema()}}
MESSAGES: Any = [
    {
        "role": "user",
        "content": [
            {"type": "file", "file": INPUT[0]["content"][0] | {"type": "input_file"}},
            {"type": "text", "text": "How long is the notice period?"},
        ],
    }
]


def test_an_object_is_parsed_by_the_client(client: openai.OpenAI, hands: Hands) -> None:
    hands.answer(lambda job: make_final(job, record=make_record(job, output_structured={"months": 3})))
    parsed = client.responses.parse(model="writer", input=INPUT, text_format=Period)
    assert parsed.output_parsed == Period(months=3)
    hands.answer(lambda job: make_final(job, record=make_record(job, output_structured={"months": 3})))
    chat = client.chat.completions.parse(model="writer", messages=MESSAGES, response_format=Period)
    assert chat.choices[0].message.parsed == Period(months=3)


@pytest.mark.parametrize("data", [None, {"months": "three"}, {}])
def test_an_object_that_was_not_given_fails_where_the_client_looks(
    client: openai.OpenAI, hands: Hands, data: dict[str, Any] | None
) -> None:
    def answer(job: Leased) -> FinalJob:
        return make_final(job, record=make_record(job, answer=ANSWER, output_structured=data))

    hands.answer(answer)
    parsed = client.responses.parse(model="writer", input=INPUT, text_format=Period)
    assert parsed.error is not None
    assert (parsed.status, parsed.output_parsed, parsed.output) == ("failed", None, [])
    assert "output_schema" in parsed.error.message
    hands.answer(answer)
    with client.responses.create(model="writer", input=INPUT, text=FORMAT, stream=True) as stream:
        assert [event.type for event in stream][-1] == "response.failed"
    hands.answer(answer)
    with pytest.raises(openai.InternalServerError, match="output_schema"):
        client.with_options(max_retries=2).chat.completions.parse(
            model="writer", messages=MESSAGES, response_format=Period
        )


@pytest.mark.parametrize("outcome", [Outcome.ABSTAINED, Outcome.NO_EVIDENCE, Outcome.REJECTED])
def test_an_abstention_is_a_refusal_to_fill_a_schema(client: openai.OpenAI, hands: Hands, outcome: Outcome) -> None:
    def answer(job: Leased) -> FinalJob:
        record = make_record(job, answer="The sources do not say.", output_structured={"months": 1})
        return make_final(job, outcome=outcome, record=record)

    hands.answer(answer)
    parsed = client.responses.parse(model="writer", input=INPUT, text_format=Period)
    assert (parsed.status, parsed.output_parsed) == ("completed", None)
    assert parsed.output[0].content[0].refusal == "The sources do not say."  # type: ignore[union-attr]
    hands.answer(answer)
    message = (
        client.chat.completions.parse(model="writer", messages=MESSAGES, response_format=Period).choices[0].message
    )
    assert (message.content, message.parsed, message.refusal) == (None, None, "The sources do not say.")
    hands.answer(lambda job: make_final(job, outcome=outcome, record=make_record(job, answer="Not there.")))
    plain = client.responses.create(model="writer", input=INPUT)
    assert plain.output_text == "Not there.", "without a schema it is a text"


@pytest.mark.parametrize("model", ["nightdesk", "extractive", "extractive-5"])
def test_the_offline_provider_is_not_asked_to_fill_a_schema(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.BadRequestError, match="fills no schema"):
        client.responses.parse(model=model, input=INPUT, text_format=Period)
    with pytest.raises(openai.BadRequestError, match="fills no schema") as refused:
        client.chat.completions.parse(model=model, messages=MESSAGES, response_format=Period)
    assert refused.value.param == "response_format"
    config = {"config": {"output_schema": Period.model_json_schema()}}
    with pytest.raises(openai.BadRequestError, match="fills no schema"):
        client.responses.create(model=model, input=INPUT, extra_body=config)


def test_a_chat_is_answered_from_its_sources(client: openai.OpenAI, hands: Hands) -> None:
    for sources, messages in (
        ([{"content": SOURCE, "title": "lease.txt"}], [{"role": "user", "content": "How long is the notice period?"}]),
        (None, MESSAGES),
    ):
        hands.answer()
        order: Any = {"model": "nightdesk", "messages": messages}
        chat = client.chat.completions.create(**order, extra_body={"sources": sources} if sources else None)
        (choice,) = chat.choices
        assert (choice.message.content, choice.finish_reason, choice.message.refusal) == (ANSWER, "stop", None)
        (cited,) = choice.message.annotations or ()
        assert (cited.url_citation.title, cited.url_citation.start_index) == ("lease.txt", 34)
        assert chat.usage is not None
        assert (chat.usage.prompt_tokens, chat.usage.completion_tokens) == (40, 12)
        job = client.responses.retrieve("resp_" + chat.id.removeprefix("chatcmpl_"))
        assert job.output_text == ANSWER
    hands.answer()
    stream = client.chat.completions.create(**order, stream=True, stream_options={"include_usage": True})
    chunks = [*stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == ANSWER
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].usage.total_tokens == 52


def test_a_function_that_must_be_called_gets_the_object(client: openai.OpenAI, hands: Hands) -> None:
    function = {"name": "Period", "parameters": Period.model_json_schema()}
    tools: Any = [{"type": "function", "function": function}]
    order: Any = {"model": "writer", "messages": MESSAGES, "tools": tools, "tool_choice": "required"}

    def answer(job: Leased) -> FinalJob:
        return make_final(job, record=make_record(job, output_structured={"months": 3}))

    hands.answer(answer)
    (choice,) = client.chat.completions.create(**order).choices
    (call,) = choice.message.tool_calls or ()
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert (call.function.name, call.function.arguments) == ("Period", '{"months":3}')  # type: ignore[union-attr]
    hands.answer(answer)
    deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**order, stream=True)]
    (streamed,) = [delta.tool_calls[0] for delta in deltas if delta.tool_calls]
    assert streamed.function.arguments == '{"months":3}'
    hands.answer(answer)
    called: Any = {"tools": [{"type": "function", **function, "strict": True}], "tool_choice": "required"}
    response = client.responses.parse(model="writer", input=INPUT, **called)
    (item,) = response.output
    assert item.type == "function_call"
    assert (item.name, item.arguments, response.output_text) == ("Period", '{"months":3}', "")
    hands.answer(answer)
    with client.responses.stream(model="writer", input=INPUT, **called) as stream:
        assert "response.function_call_arguments.done" in {event.type for event in stream}
        assert stream.get_final_response().output[0].arguments == '{"months":3}'  # type: ignore[union-attr]


def test_a_conversation_goes_on_with_the_answers_that_were_given(client: openai.OpenAI, hands: Hands) -> None:
    histories: list[Any] = []
    called, refused = {"months": 3}, "The sources do not say."

    def call(job: Leased) -> FinalJob:
        histories.append(job.request.conversation_history)
        return make_final(job, record=make_record(job, output_structured=called))

    def refuse(job: Leased) -> FinalJob:
        histories.append(job.request.conversation_history)
        return make_final(job, outcome=Outcome.ABSTAINED, record=make_record(job, answer=refused))

    function = {"name": "Period", "parameters": Period.model_json_schema()}
    chat: Any = {"model": "writer", "tools": [{"type": "function", "function": function}], "tool_choice": "required"}
    messages = [*MESSAGES]
    for make in (call, refuse, call):
        hands.answer(make)
        (choice,) = client.chat.completions.create(**chat, messages=messages).choices
        messages.append(choice.message)
        calls = choice.message.tool_calls or ()
        messages += [{"role": "tool", "tool_call_id": tool.id, "content": "Noted."} for tool in calls] + MESSAGES
    items = [*INPUT]
    response: Any = {"model": "writer", "tools": [{"type": "function", **function}], "tool_choice": "required"}
    for make in (call, refuse, call):
        hands.answer(make)
        (item,) = client.responses.create(**response, input=items).output
        items.append(item)
        if item.type == "function_call":
            items.append({"type": "function_call_output", "call_id": item.call_id, "output": "Noted."})
        items += INPUT

    question = ("user", "How long is the notice period?")
    first = (question, ("assistant", '{"months":3}'), ("user", "Noted."))
    assert histories == [(), first, (*first, question, ("assistant", refused))] * 2


def test_a_prompt_is_a_question_for_clients_that_know_no_chat(client: openai.OpenAI, hands: Hands) -> None:
    order: Any = {"model": "nightdesk", "prompt": ["How long is the notice period?"]}
    order["extra_body"] = {"sources": [{"content": SOURCE, "title": "lease.txt"}]}
    hands.answer()
    completion = client.completions.create(**order, stop="END")
    assert (completion.choices[0].text, completion.choices[0].finish_reason) == (ANSWER, "stop")
    assert completion.usage is not None
    assert completion.usage.total_tokens == 52
    job = client.responses.retrieve("resp_" + completion.id.removeprefix("cmpl_"))
    assert job.output_text == ANSWER
    hands.answer()
    chunks = [*client.completions.create(**order, stream=True, stream_options={"include_usage": True})]
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == ANSWER
    assert chunks[-1].usage.total_tokens == 52


def test_a_chat_that_a_client_printed_as_a_prompt_is_read(client: openai.OpenAI, hands: Hands) -> None:
    """So do LlamaIndex, and Vercel's SDK with its instructions first."""
    requests: list[Any] = []

    def note(job: Leased) -> FinalJob:
        request = job.request
        requests.append((request.query, request.conversation_history, request.system_instructions))
        return answered(job)

    for prompt in (
        "system: Be brief.\nuser: Hi\nassistant: Hello.\nuser: How long is\n\nthe notice period?\nassistant: ",
        "Be brief.\n\nuser:\nHi\n\nassistant:\nHello.\n\nuser:\nHow long is\n\nthe notice period?\n\nassistant:\n",
        "Who is the user: a tenant, or an assistant:",
        "user: Why?",
    ):
        hands.answer(note)
        client.completions.create(model="nightdesk", prompt=prompt, extra_body={"sources": [SOURCE]})
    chat = ("How long is\n\nthe notice period?", (("user", "Hi"), ("assistant", "Hello.")), "Be brief.")
    assert requests == [chat, chat, ("Who is the user: a tenant, or an assistant:", (), None), ("user: Why?", (), None)]


def assert_named(error: openai.BadRequestError, param: str) -> None:
    """Assert that the parameter stands in the message, too: most programs show it alone."""
    assert isinstance(error.body, dict)
    assert (error.param, error.body["message"].partition(": ")[0]) == (param, param)


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"50256": -100}}, "logit_bias"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": {}}}]}, "tools"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]"),
        ({"response_format": {"type": "json_object"}}, "response_format.type"),
        ({"max_completion_tokens": 0, "max_tokens": 5}, "max_completion_tokens"),
        ({"extra_body": {"sources": [{"colour": "red"}]}}, "sources[0].content"),
    ],
)
def test_a_chat_that_is_not_taken_names_its_own_parameter(client: openai.OpenAI, part: Any, param: str) -> None:
    order: Any = {"model": "nightdesk", "messages": MESSAGES, **part}
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**order)
    assert_named(refused.value, param)


def test_sources_may_come_beside_the_input_and_a_page_is_cited_by_its_url(client: openai.OpenAI, hands: Hands) -> None:
    hands.answer()
    sources = [{"content": SOURCE, "title": "Lease", "url": "https://acme.example/lease"}]
    body = {"sources": sources, "config": {"mode": "simple"}}
    response = client.responses.create(model="nightdesk", input="How long?", extra_body=body)
    (annotation,) = response.output[0].content[0].annotations  # type: ignore[union-attr]
    assert (annotation.type, annotation.title) == ("url_citation", "Lease")  # type: ignore[union-attr]
    assert annotation.url == "https://acme.example/lease"  # type: ignore[union-attr]


def test_errors_name_the_parameter_and_a_late_answer_is_not_ordered_again(
    door: Door, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model="nightdesk", input=INPUT, temperature=9)
    assert (refused.value.param, refused.value.type) == ("temperature", "invalid_request_error")
    with pytest.raises(openai.BadRequestError, match="no text of a prompt is taken for a source") as refused:
        client.responses.create(model="nightdesk", input=f"{SOURCE} Why?")
    assert refused.value.param == "sources"
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_nothing")
    monkeypatch.setattr(openai_responses, "LONGEST_S", 0.0)
    # A client that tries again by itself must not here: the answer would be paid for twice.
    with (
        openai.OpenAI(base_url=client.base_url, api_key=client.api_key, max_retries=2) as patient,
        pytest.raises(openai.InternalServerError, match="retrieve resp_") as late,
    ):
        patient.responses.create(model="nightdesk", input=INPUT, extra_headers={"Idempotency-Key": "late"})
    again = client.responses.create(
        model="nightdesk", input=INPUT, background=False, extra_headers={"Idempotency-Key": "late"}, timeout=60,
        stream=True,
    )  # fmt: skip
    with again as stream:
        first = next(iter(stream)).response  # type: ignore[union-attr]
    assert first.id in str(late.value), "the same key is the same answer"
    assert client.responses.cancel(first.id).status == "cancelled"


def test_models_are_listed_and_others_refused(client: openai.OpenAI) -> None:
    models = client.models.list()

    assert {"nightdesk", "extractive"} <= {model.id for model in models}
    assert "writer" in [model.id for model in models]
    assert models._request_id is not None
    assert models._request_id.startswith("req_")
    for name in ("nightdesk", "extractive", "extractive:extractive-5", "extractive-5"):
        assert client.models.retrieve(name).id == name
    for name in ("gpt-5", "nosuch", "nosuch:xx", "extractive:gpt-5", "org/model"):
        asks = (
            partial(client.models.retrieve, name),
            partial(client.responses.create, model=name, input=INPUT),
            partial(client.responses.create, model=name, input=INPUT, stream=True),
        )
        for ask in asks:
            with pytest.raises(openai.NotFoundError, match="no provider here answers with the model") as refused:
                ask()
            assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
