"""Turns an order of a response, in the form of OpenAI's API, into a job."""

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field

from schemas.job import Sampling
from tasks.errors import InputError
from tasks.raw_jobs.names import field_of
from tasks.submit import validated
from worker.http.openai_metadata import Metadata
from worker.http.problems import Problem, invalid, problem_of
from worker.providers.registry import Installation

OWN_MODEL = "nightdesk"
"""The model of the settings."""

MOST_ITEMS = 4_000
PRIORITY = 50
"""Of a response that its caller waits for: it goes before the jobs of batches."""

NOTE = "openai"
"""Key of the job's metadata with the parts of the order that the job itself does not have."""

_SOURCE_FIELDS = frozenset(
    {"title", "page", "article", "section", "section_hierarchy", "source_path", "product_name", "document_type", "date",
     "url", "chunk_id", "document_id", "relevance_score", "sub_query"}
)  # fmt: skip
"""A part of text with one of them is a source."""

_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""Types of parts with a text, and the field that has it."""


NO_LOGPROBS = "an answer has no probabilities of its tokens but a verdict and a score for each claim; leave it out"


def _refuse(value: Any) -> Any:
    if value:
        raise ValueError(
            "not taken, as each response answers one question from its own sources; send all of it in this request"
        )
    return value


def _refuse_logprobs(value: Any) -> None:
    """Refuses a number of them, and a list of what to include that names them."""
    if any("logprobs" in str(each) for each in value) if isinstance(value, list) else value:
        raise ValueError(f"not taken, as {NO_LOGPROBS}")


def _require_input(value: Any) -> Any:
    if isinstance(value, str) and value:
        return [{"role": "user", "content": value}]
    if isinstance(value, list) and 0 < len(value) <= MOST_ITEMS and all(isinstance(item, dict) for item in value):
        return value
    raise ValueError(f"must be a text, or a list of 1 to {MOST_ITEMS:,} messages")


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str | dict) else value


_ITEMS = "send messages, and calls of functions with their results, each itself as clients do with store=false"
_FREE = (None, "auto", "none")
"""Choices that leave it to the model whether a function is called."""

Never = Annotated[Any, BeforeValidator(_refuse)]
_NoLogprobs = Annotated[Any, BeforeValidator(_refuse_logprobs)]


class CreateResponse(Sampling):
    """The order of a response. What it names besides is ignored: this service stores every answer, for instance."""

    model_config = ConfigDict(extra="ignore")

    input: Annotated[Any, BeforeValidator(_require_input)]
    model: Annotated[str, Field(max_length=300)] | None = None
    instructions: str | None = None
    metadata: Metadata = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: float | None = None
    stop: Annotated[tuple[str, ...], BeforeValidator(_listed)] | None = None
    reasoning: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    background: bool | None = None
    stream: bool | None = None
    sources: Annotated[list[Any] | None, BeforeValidator(_listed)] = Field(
        default=None, description="as 'context' of a job, whose other names are read, too"
    )
    config: dict[str, Any] | None = Field(default=None, description="as 'config' of a job")
    priority: int | None = None
    tools: list[Any] | None = Field(default=None, description="one function, whose arguments are the object")
    tool_choice: Any = None
    previous_response_id: Never = None
    conversation: Never = None
    prompt: Never = None
    top_logprobs: _NoLogprobs = None
    include: _NoLogprobs = None

    @property
    def function(self) -> dict[str, Any] | None:
        """The function that must be called; raises ``Problem`` where the model may choose whether it calls one."""
        match self.tools:
            case None | []:
                return None
            case [{"name": str(name), "parameters": dict(schema)}] if self.tool_choice not in _FREE:
                return {"name": name, "parameters": schema}
        detail = "taken for the form of the answer alone; send one function, and require it by tool_choice"
        raise invalid(detail, "tools")


def require_served(model: str | None, catalog: Installation) -> None:
    """Raises ``Problem`` for a model that nothing here answers with."""
    if model is not None and model != OWN_MODEL and catalog.refuses_model(model):
        detail = f"no provider here answers with the model {model!r}; GET /openai/v1/models lists the names there are"
        raise Problem(404, "model-not-found", "Model not found", detail, "model")


def sources_in(raw: dict[str, Any]) -> Any:
    """The sources of an order, under any name that a job has for them."""
    return raw.get("sources") or next((each for key, each in raw.items() if field_of(key) == "context"), None)


def read_order(raw: Any, catalog: Installation) -> tuple[CreateResponse, dict[str, Any]]:
    """The order in a body, and its job, if a model here can answer it; raises ``InputError`` or ``Problem`` that names the parameter."""
    if not isinstance(raw, dict):
        raise invalid("the body must be a JSON object")
    order: CreateResponse = validated(CreateResponse, {**raw, "sources": sources_in(raw)})
    job = _job_of(order, catalog.knows)
    require_served(order.model, catalog)
    if order.sources is None and not job["context"]:
        raise invalid(_NO_SOURCES, "sources")
    config = job["config"]
    if config.get("output_schema") is not None and catalog.only_quotes(config.get("provider")):
        detail = "the provider 'extractive' quotes sentences, and fills no schema; name another provider in model"
        raise invalid(detail, "tools" if order.tools else "text.format")
    return order, job


def _job_of(order: CreateResponse, is_provider: Callable[[str], bool]) -> dict[str, Any]:
    """The job of an order, as it would be submitted; raises ``Problem`` that names the parameter."""
    reading = _Input([] if order.instructions is None else [order.instructions])
    reading.read(order.input)
    function = order.function
    note = {"model": order.model, "background": order.background or None, "function": function and function["name"]}
    waits = not order.background
    return {
        "query": reading.question,
        "context": [*(order.sources or ()), *reading.sources],
        "config": {**_config(order, is_provider), **(order.config or {})},
        "system_instructions": "\n\n".join(reading.instructions) or None,
        "conversation_history": reading.history,
        "metadata": {**(order.metadata or {}), NOTE: {key: value for key, value in note.items() if value is not None}},
        "priority": order.priority if order.priority is not None else PRIORITY if waits else 0,
    }


_NO_SOURCES = (
    "is missing, and no text of a prompt is taken for a source: send them here (extra_body of a client), as files, or as texts with "
    "a title; [] asks without any"
)

_PARAMETERS = {
    "query": "input",
    "context": "sources",
    "conversation_history": "input",
    "system_instructions": "instructions",
    "config.provider": "model",
    "config.model": "model",
    "config.max_tokens": "max_output_tokens",
    "config.temperature": "temperature",
    "config.reasoning_effort": "reasoning.effort",
    "config.output_schema": "text.format.schema",
}
"""Names of the fields of a job in an order."""

NAMED = r"(?:^|(?<=; ))"
"""Matches before the name of a parameter in a message, which may tell of several."""

_FIELD = re.compile(NAMED + r"[\w.]+(?=: )")
_SOURCE_FIELD = re.compile(r"context\.(\d+)(.*)")


def renamed(error: InputError, job: Any) -> Problem:
    """The problem of a job that an order became, with the parameters of the order in place of the job's fields."""
    problem = problem_of(error)
    problem.detail = _FIELD.sub(lambda match: _parameter(match[0], job), problem.detail)
    problem.field = problem.field and _parameter(problem.field, job)
    return problem


def _parameter(job_field: str, job: Any) -> str:
    """The parameter of an order that became a field of its job."""
    if source := _SOURCE_FIELD.fullmatch(job_field):
        return f"sources[{source[1]}]{source[2]}"
    if job_field == "config.output_schema" and job["metadata"][NOTE].get("function"):
        return "tools[0].parameters"
    return _PARAMETERS.get(job_field) or _PARAMETERS.get(job_field.partition(".")[0], job_field)


def _config(order: CreateResponse, is_provider: Callable[[str], bool]) -> dict[str, Any]:
    provider, model = None, order.model
    first, _, rest = (model or "").partition(":")
    if first and is_provider(first):
        provider, model = first, rest or None
    elif model == OWN_MODEL:
        model = None
    config = {
        "provider": provider,
        "model": model,
        "max_tokens": order.max_output_tokens,
        "temperature": order.temperature,
        "sampling": order.model_dump(include=set(Sampling.model_fields), exclude_none=True) or None,
        "reasoning_effort": (order.reasoning or {}).get("effort"),
        "output_schema": order.function["parameters"] if order.function else _schema(order.text),
    }
    return {name: value for name, value in config.items() if value is not None}


def _schema(text: dict[str, Any] | None) -> Any:
    form = (text or {}).get("format") or {"type": "text"}
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "json_schema":
        return form.get("schema")
    if kind != "text":
        raise invalid("must be text or json_schema, whose schema says which fields the object has", "text.format.type")
    return None


def _speech(message: dict[str, Any]) -> Any:
    """The content of the assistant's message of a chat; without one what it refused with, or the arguments of its calls."""
    content, calls = message.get("content") or message.get("refusal"), message.get("tool_calls")
    if content is not None or not isinstance(calls, list):
        return content
    functions = [call.get("function") for call in calls if isinstance(call, dict)]
    return "\n".join(str(function.get("arguments")) for function in functions if isinstance(function, dict))


@dataclass(slots=True)
class _Input:
    """The items of an input, in order: the last question, its sources, and what was said before."""

    instructions: list[str]
    question: str = ""
    sources: list[Any] = field(default_factory=list)
    history: list[tuple[str, str]] = field(default_factory=list)

    def read(self, items: list[dict[str, Any]]) -> None:
        """Reads all items."""
        for number, item in enumerate(items):
            place = f"input[{number}]"
            kind, role = item.get("type", "message"), item.get("role")
            # Not a set: some send a list, which can't be looked up in one.
            if kind == "function_call":
                self._say("assistant", str(item.get("arguments", "")))
            elif kind == "function_call_output" or role == "tool":
                self.history.append(("user", self._text(item.get("output", item.get("content")), place)))
            elif kind != "message":
                raise invalid(f"an item of the type {kind!r} is not taken; {_ITEMS}", place)
            elif role in ("system", "developer"):
                self.instructions.append(self._text(item.get("content"), place))
            elif role == "user":
                self._say(role, self._text(item.get("content"), place))
            elif role == "assistant":
                self._say(role, self._text(_speech(item), place))
            else:
                raise invalid("must be user, assistant, system, developer or tool", f"{place}.role")
        if not self.question:
            raise invalid("holds no question: the last message must be the user's, with a text", "input")

    def _say(self, role: str, text: str) -> None:
        if role == "assistant":
            self.history += [*([("user", self.question)] if self.question else []), ("assistant", text)]
            self.question = ""
        elif text:
            # Sources may come in a message of their own.
            self.question = f"{self.question}\n\n{text}" if self.question else text

    def _text(self, content: Any, place: str) -> str:
        """The text of a message; its sources are collected."""
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            raise invalid("must be a text or a list of parts", f"{place}.content")
        texts = (self._text_of_part(part, f"{place}.content[{number}]") for number, part in enumerate(content))
        return "\n\n".join(text for text in texts if text is not None)

    def _text_of_part(self, part: Any, place: str) -> str | None:
        """The text of a part of a message; None where it is a source."""
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("input_file", "file"):
            own = part.get("file")
            self.sources.append(_file_source(own if isinstance(own, dict) else part, place))
            return None
        name = _TEXTS.get(kind) if isinstance(kind, str) else None
        text = None if name is None else part.get(name)
        if not isinstance(text, str):
            raise invalid(f"a part of the type {kind!r} is not taken; send input_text and input_file", place)
        named = {name: part[name] for name in _SOURCE_FIELDS & part.keys()}
        if not named or kind in ("output_text", "refusal"):
            return text
        self.sources.append({**named, "content": text})
        return None


def _file_source(part: dict[str, Any], path: str) -> dict[str, Any]:
    """A file of text as a source; nothing is fetched for a caller."""
    data, name = part.get("file_data"), part.get("filename")
    if not isinstance(data, str):
        raise invalid("send the content of the file itself, as file_data; this service fetches none", path)
    if name is not None and not isinstance(name, str):
        raise invalid("must be a string", f"{path}.filename")
    named = {key: part[key] for key in sorted(_SOURCE_FIELDS & part.keys())}
    return {**({"title": name} if name else {}), **named, "content": _decoded(data, f"{path}.file_data")}


def _decoded(data: str, path: str) -> str:
    """The text of a data URL; without one, base64."""
    encoded = data
    if data.startswith("data:"):
        head, _, encoded = data.partition(",")
        if not head.endswith(";base64"):
            raise invalid("a data URL must be in base64", path)
    try:
        return base64.b64decode(encoded, validate=True).decode("utf-8-sig")
    except (binascii.Error, ValueError):
        raise invalid(
            "must be a text in UTF-8, in base64; extract the text of a PDF or an office file first", path
        ) from None
