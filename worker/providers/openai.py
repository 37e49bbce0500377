"""Calls OpenAI: answers by its Responses API, probabilities by its Decisions API, and the common part of its chat API."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar

import openai
import orjson

from schemas.failure import FailureKind
from schemas.generation import WINDOWS, AnswerProtocol
from schemas.job import GenerationConfig, JobRequest
from schemas.model_call import Completion, FinishReason, Prompt, Usage
from tasks.answers.parse import storable
from tasks.errors import ProviderError
from tasks.ports import Answered
from tasks.ports.remote_batches import RemoteCalls, RemoteResponses
from tasks.prompting.messages import stable_prefix
from worker.providers.adapter import (
    NO_KEY,
    Adapter,
    Draft,
    Reading,
    Received,
    Target,
    choose_protocol,
    counted,
    messages_of,
    sampling_of,
)
from worker.providers.openai_background import UNDER_WAY, OpenAIBackground
from worker.providers.openai_batches import OpenAIBatches
from worker.providers.prices import PriceList
from worker.providers.streaming import Collector, StreamingAdapter
from worker.providers.vendor_models import why_no_sampling
from worker.providers.whole_calls import SdkClient, client_of

HOUR = timedelta(hours=1)


def build_client(target: Target, token: Callable[[], Awaitable[str]] | None = None) -> Any:
    """Builds a client that never retries, over aiohttp: the default transport's pool slows down with the calls in flight.

    ``token`` is asked for before each call, in place of the key.
    """
    # Organisation and project of the environment are for OpenAI itself, not for other servers.
    elsewhere: dict[str, Any] = {"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit()}
    return openai.AsyncOpenAI(
        api_key=token or target.api_key or NO_KEY,
        base_url=target.base_url,
        max_retries=0,
        default_headers=None if target.official else elsewhere,
        http_client=client_of(openai),
    )


class OpenAIAdapter(StreamingAdapter):
    """Common part of OpenAI's two APIs that write answers: in segments, or in running text with markers.

    Running text is for jobs that stream, and for servers without a JSON schema; a job with an ``output_schema`` is
    always asked for the JSON object.
    """

    sdk: ClassVar[Any] = openai
    sdk_error: ClassVar[type[Exception]] = openai.OpenAIError
    stream_class = openai.AsyncStream[object]

    def protocol(self, config: GenerationConfig) -> AnswerProtocol:
        """See ``tasks.ports.Provider``."""
        running_text = config.output_schema is None and (config.stream or not self.target.json_schema)
        best = AnswerProtocol.MARKERS if running_text else AnswerProtocol.SEGMENTS
        serves = (AnswerProtocol.SEGMENTS, AnswerProtocol.MARKERS)
        return choose_protocol(config, best, serves, self.target.answer_protocol, self.failures)

    @cached_property
    def batch_calls(self) -> RemoteCalls:
        """Files and Batches."""
        return OpenAIBatches(self)


_BY_MODEL = frozenset({"temperature", "top_p", "presence_penalty", "frequency_penalty"})
"""Sampling parameters that models which reason refuse."""
_OF_RESPONSES = frozenset({"temperature", "top_p"})
"""The sampling parameters that the Responses API has."""


def add_sampling(draft: Draft, config: GenerationConfig, model: str, problem_of: Callable[[str], str | None]) -> None:
    """Adds the sampling parameters of a job to a draft, or drops them with the reason.

    Args:
        draft: the request so far.
        config: the job's.
        model: decides about those that a reasoning model does not take.
        problem_of: the API's reason against a parameter; None for one that it has.
    """
    for name, value in sampling_of(config).items():
        problem = problem_of(name)
        if problem is None and name in _BY_MODEL:
            problem = why_no_sampling(model, config.reasoning_effort)
        if problem:
            draft.dropped[name] = problem
        else:
            draft.parameters[name] = value


def is_strict(schema: Any) -> bool:
    """True if a schema fits OpenAI's strict mode: every object closed, and all its properties required.

    Source: OpenAI's guide to structured outputs, "supported schemas" (2026-11).
    """
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or schema.get("additionalProperties") is not False:
            return False
        if set(schema.get("required", ())) != set(properties):
            return False
        rest = {name: value for name, value in schema.items() if name != "properties"}
        return all(map(is_strict, properties.values())) and all(map(is_strict, rest.values()))
    return all(map(is_strict, schema.values()))


_INCOMPLETE = {
    "max_output_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}


class OpenAI(OpenAIAdapter):
    """Answers by the Responses API."""

    path = "/responses"

    def __init__(self, target: Target, client: SdkClient | None = None, vendor: PriceList = "openai") -> None:
        super().__init__(target, client or build_client(target), vendor)

    @cached_property
    def background(self) -> RemoteResponses | None:
        """OpenAI's own; other servers with this API have no windows at a lower price."""
        return OpenAIBackground(self, self.background_usd) if self.target.official else None

    def background_usd(self, value: dict[str, Any]) -> Decimal | None:
        """The cost of a response that came to nothing; None: it names no usage."""
        window = (value.get("background_options") or {}).get("completion_window")
        tier = next((lane.value for lane, time in WINDOWS.items() if f"{time // HOUR}h" == window), None)
        return self._prices.cost_usd(str(value.get("model")), None, usage_of(value.get("usage")), tier)

    def answered(self, received: Received) -> Answered:
        """See ``Adapter.answered``; a response in the background is still to come."""
        answered = super().answered(received)
        if received.call.lane in WINDOWS and received.value.get("status") in UNDER_WAY:
            return replace(answered, remote_id=answered.completion.snapshot.response_id)
        return answered

    def completion(self, received: Received, reading: Reading) -> Completion:
        """See ``Adapter.completion``."""
        completion = super().completion(received, reading)
        if received.call.lane not in WINDOWS:
            return completion
        response_id = {"response_id": storable(received.value["id"])}
        return completion.model_copy(update={"snapshot": completion.snapshot.model_copy(update=response_id)})

    def draft(self, request: JobRequest, prompt: Prompt, model: str) -> Draft:
        """Writes a Responses body; OpenAI keeps nothing (``store``), except in its background."""
        config = request.config
        draft = Draft(
            content={"input": messages_of(request, prompt)},
            parameters={"model": model, "max_output_tokens": config.max_tokens, "store": False},
            dropped={},
        )
        if (window := WINDOWS.get(config.lane)) is not None:
            # The answer is fetched later; only a stored one is kept for longer than ten minutes.
            options = {"completion_window": f"{window // HOUR}h"}
            draft.parameters |= {"background": True, "background_options": options, "store": True}
        if (prefix := stable_prefix(prompt)).pays:
            draft.parameters["prompt_cache_key"] = prefix.key
        if config.reasoning_effort is not None:
            draft.parameters["reasoning"] = {"effort": config.reasoning_effort}
        add_sampling(
            draft,
            config,
            model,
            lambda name: None if name in _OF_RESPONSES else "the Responses API has no such parameter",
        )
        if (schema := prompt.reply_schema) is not None and self.target.json_schema:
            strict = is_strict(schema)
            form = {"type": "json_schema", "name": "answer", "strict": strict, "schema": schema}
            draft.content["text"] = {"format": form}
            draft.notes["text.format"] = f"json_schema, strict: {str(strict).lower()}"
        return draft

    def read(self, received: Received) -> Reading:
        """Puts the message's texts together; a response that failed is an error."""
        value = received.value
        status = value.get("status")
        if status == "failed" or value.get("error"):
            raise self.failures.in_answer(received.response, {"error": value.get("error") or {}})
        parts = [
            part
            for item in value["output"]
            if item.get("type") == "message"
            for part in item.get("content") or ()
        ]  # fmt: skip
        refusals = [part["refusal"] for part in parts if part.get("type") == "refusal"]
        return Reading(
            text="".join(part["text"] for part in parts if part.get("type") == "output_text"),
            finish_reason=FinishReason.REFUSAL if refusals else _finish_reason(value),
            model=value.get("model"),
            usage=usage_of(value.get("usage")),
            refusal="".join(refusals) if refusals else None,
            service_tier=value.get("service_tier"),
        )

    def collector(self) -> Collector:
        """See ``ResponseEvents``."""
        return ResponseEvents()


_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponseEvents:
    """Collector of a streamed response, whose last event holds the whole of it.

    Source: OpenAI's API reference, "Responses streaming" (openai 3.54).
    """

    def __init__(self) -> None:
        self.body: dict[str, Any] = {}
        self.complete = False

    def add(self, event: dict[str, Any]) -> str:
        """See ``Collector.add``."""
        kind = event.get("type")
        if kind == "error":
            # In the place of the end; read as the error of a response that failed.
            self.body, self.complete = {"error": event}, True
        elif isinstance(event.get("response"), dict):
            self.body, self.complete = event["response"], kind in _ENDS
        return str(event["delta"]) if kind == "response.output_text.delta" else ""


def _finish_reason(value: dict[str, Any]) -> FinishReason:
    match value.get("status"):
        case "completed":
            calls = [item for item in value["output"] if str(item.get("type")).endswith("_call")]
            messages = [item for item in value["output"] if item.get("type") == "message"]
            return FinishReason.TOOL_CALL if calls and not messages else FinishReason.STOP
        case "incomplete":
            reason = str((value.get("incomplete_details") or {}).get("reason"))
            return _INCOMPLETE.get(reason, FinishReason.OTHER)
        case _:
            return FinishReason.INTERRUPTED


def usage_of(
    fields: dict[str, Any] | None, inputs: str = "input_tokens", outputs: str = "output_tokens"
) -> Usage | None:
    """Parses the usage of a call; OpenAI's input tokens include the cached ones, as ours do. Servers leave out uncounted fields.

    ``inputs`` and ``outputs`` are the names of the sums, which chat completions have their own for.
    """
    if not fields or fields.get(inputs) is None:
        return None
    details = fields.get(f"{inputs}_details") or {}
    return counted(
        input_tokens=fields[inputs],
        output_tokens=fields.get(outputs),
        cached_input_tokens=details.get("cached_tokens"),
        cache_write_tokens=details.get("cache_write_tokens"),
        reasoning_tokens=(fields.get(f"{outputs}_details") or {}).get("reasoning_tokens"),
    )


MOST_QUESTIONS = 400
"""In one call (openai 3.54, ``decisions.create``)."""

_HAS_NOT = "the Decisions API has no such parameter"


class OpenAIDecisions(Adapter):
    """Asked as a judge alone, one ``predicate`` a question. It writes nothing: there is no output to limit or to pay for."""

    path = "/decisions"
    sdk: ClassVar[Any] = openai
    sdk_error: ClassVar[type[Exception]] = openai.OpenAIError

    def __init__(self, target: Target) -> None:
        self._tier = target.service_tier
        super().__init__(replace(target, service_tier=None), build_client(target), "openai-decisions")

    def protocol(self, config: GenerationConfig) -> AnswerProtocol:  # noqa: ARG002 - the port's signature
        """Always raises: no question of a job can be put to it."""
        raise self._only_judges()

    def _only_judges(self) -> ProviderError:
        problem = (
            "gives probabilities and writes no answers: name it as a judge (NIGHTDESK_JUDGE), and another provider here"
        )
        return self.failures.error(FailureKind.CONFIGURATION, problem)

    def draft(self, request: JobRequest, prompt: Prompt, model: str) -> Draft:
        """A body of ``decisions.create``; questions are named by their number, so that answers find them."""
        questions = prompt.snapshot.questions
        if not questions:
            raise self._only_judges()
        if len(questions) > MOST_QUESTIONS:
            problem = f"takes {MOST_QUESTIONS} questions a call, not {len(questions)}"
            raise self.failures.error(FailureKind.CONFIGURATION, problem)
        predicates = [
            {"type": "predicate", "name": str(number), "instructions": text}
            for number, text in enumerate(questions, start=1)
        ]
        messages = [{"type": "message", **message} for message in messages_of(request, prompt)]
        not_sent: dict[str, Any] = {
            **sampling_of(request.config),
            "reasoning_effort": request.config.reasoning_effort,
            "service_tier": self._tier,
        }
        return Draft(
            content={"input": messages, "questions": predicates},
            parameters={"model": model},
            dropped={name: _HAS_NOT for name, value in not_sent.items() if value is not None},
            notes={"questions": f"{len(questions)}, of the type predicate"},
        )

    def read(self, received: Received) -> Reading:
        """Converts the answers to the form of the port; a call with every question declined is a refusal."""
        value = received.value
        if value.get("error"):
            raise self.failures.in_answer(received.response, value)
        answers = value["answers"]
        if not isinstance(answers, list):
            raise TypeError("answers is no list")
        count = len(received.call.prompt.snapshot.questions)
        entries = [
            read
            for at, answer in enumerate(answers)
            if (number := _number(answer.get("name"), at, whole=len(answers) == count)) is not None
            and (read := _answer(number, answer)) is not None
        ]
        refused = bool(entries) and all("refused" in entry for entry in entries)
        return Reading(
            text=orjson.dumps({"answers": entries}).decode(),
            finish_reason=FinishReason.REFUSAL if refused else FinishReason.STOP,
            model=value.get("model"),
            usage=usage_of(value.get("usage")),
            refusal="declined every question" if refused else None,
        )

    def completion(self, received: Received, reading: Reading) -> Completion:
        """See ``Adapter.completion``; none of the forms of an answer was asked for."""
        completion = super().completion(received, reading)
        return completion.model_copy(update={"snapshot": completion.snapshot.model_copy(update={"protocol": None})})


def _number(name: object, at: int, *, whole: bool) -> int | None:
    """Question number of an answer: by its name, else by its position if every question has an answer."""
    if name is None:
        return at + 1 if whole else None
    return int(name) if isinstance(name, str) and name.isascii() and name.isdigit() else None


def _answer(number: int, answer: dict[str, Any]) -> dict[str, Any] | None:
    """Converts an answer to the form of the port; the reader checks that its figure is a probability."""
    match answer.get("type"):
        case "predicate":
            return {"question": number, "probability": answer.get("probability")}
        case "refusal":
            return {"question": number, "refused": True}
        case _:
            return None
