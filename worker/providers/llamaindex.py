"""Calls any LLM class of LlamaIndex, and so every server of its integrations (extra ``llamaindex``)."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from importlib import import_module, metadata
from typing import Any

import orjson
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole
from llama_index.core.llms import LLM, CustomLLM

from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol
from schemas.job import GenerationConfig, JobRequest
from schemas.model_call import Completion, FinishReason, Prompt, ProviderSnapshot, Usage
from tasks.answers.parse import storable
from tasks.errors import ConfigurationError, ProviderError
from tasks.ports import Answered, Call, Listener
from worker.providers.adapter import choose_protocol, messages_of, sampling_of, standard_lane
from worker.providers.failures import Failures
from worker.providers.whole_calls import CallLimit

SDK = f"llama-index-core {metadata.version('llama-index-core')}"

_DECIDED_BY_CLASS = "set for the class in 'options' of its settings, not with a call"

_NO_MODEL = "unknown"
"""Model name of a class that names none (``LLMMetadata``)."""

_FINISH = {
    "stop": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.REFUSAL,
}


def connect(
    *,
    name: str,
    path: str,
    options: Mapping[str, Any],
    api_key: str | None,
    model: str | None,
    json_schema: bool,
    answer_protocol: AnswerProtocol | None,
) -> "LlamaIndex":
    """Builds the LLM that the settings name.

    Args:
        name: of the provider in settings and jobs.
        path: ``package.module:Name`` of a class or factory.
        options: its arguments.
        api_key: handed over as ``api_key``; None: the class finds its own.
        model: handed over as ``model``; None: the class's own.
        json_schema: the model keeps to a JSON form that is asked for in words.
        answer_protocol: of jobs that name none.

    Raises: ConfigurationError naming what is missing or refused.
    """
    arguments = {**options, **({"api_key": api_key} if api_key else {}), **({"model": model} if model else {})}
    failures = Failures(name, (api_key,) if api_key else ())
    try:
        llm = _factory(path)(**arguments)
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - a class may raise anything about its arguments
        reason = failures.error(FailureKind.CONFIGURATION, f"can't build {path}: {type(error).__name__}: {error}")
        raise ConfigurationError(str(reason)) from None
    if not isinstance(llm, LLM):
        raise ConfigurationError(f"the provider {name!r}: {path} made a {type(llm).__name__}, which is no LLM")
    return LlamaIndex(name, llm, failures, json_schema=json_schema, answer_protocol=answer_protocol)


def _factory(path: str) -> Callable[..., Any]:
    module, _, attribute = path.partition(":")
    try:
        factory = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"can't find {path!r} ({error}); it is written 'package.module:Name'") from None
    if not callable(factory):
        raise ConfigurationError(f"{path!r} is neither a class nor a factory")
    typed: Callable[..., Any] = factory
    return typed


class LlamaIndex:
    """One call is one ``achat`` (or ``chat`` in a thread, where the class has no other); what the class retries by itself is set by its own ``options`` (``max_retries``)."""

    def __init__(
        self,
        name: str,
        llm: LLM,
        failures: Failures,
        *,
        json_schema: bool = False,
        answer_protocol: AnswerProtocol | None = None,
    ) -> None:
        self.name = name
        self._llm = llm
        self._failures = failures
        self._json_schema = json_schema
        self._answer_protocol = answer_protocol

    def protocol(self, config: GenerationConfig) -> AnswerProtocol:
        """See ``tasks.ports.Provider``: running text with markers, for nothing enforces a schema here."""
        segments = config.output_schema is not None or self._json_schema
        best = AnswerProtocol.SEGMENTS if segments else AnswerProtocol.MARKERS
        serves = (AnswerProtocol.SEGMENTS, AnswerProtocol.MARKERS)
        return choose_protocol(config, best, serves, self._answer_protocol, self._failures)

    def model_of(self, config: GenerationConfig) -> str | None:  # noqa: ARG002 - the port's signature
        """See ``tasks.ports.Provider``; it is built with one."""
        model = self._llm.metadata.model_name
        return None if model == _NO_MODEL else model

    def plan(self, request: JobRequest, prompt: Prompt) -> Call:
        """See ``tasks.ports.Provider``; the body is the messages, for the class alone knows what goes on its wire."""
        config = request.config
        lane = standard_lane(config, self._failures)
        model = self.model_of(config)
        if config.model not in {None, model}:
            reason = f"is built with one model and can't call {config.model!r}: name that in its settings"
            raise self._failures.error(FailureKind.CONFIGURATION, reason)
        body = orjson.dumps({"model": model, "messages": messages_of(request, prompt)})
        return Call(
            provider=self.name,
            model=model,
            lane=lane.value,
            protocol=prompt.snapshot.protocol,
            body=body,
            request_hash=hashlib.sha256(body).digest(),
            timeout_s=config.timeout_s,
            reserve_usd=None,
            prompt=prompt,
            request=request,
            parameters_sent={"class": self._llm.class_name()},
            parameters_dropped=_dropped(config, prompt),
        )

    def expected_usd(self, call: Call) -> None:
        """Always unknown."""

    async def call(self, call: Call, listener: Listener | None = None) -> Answered:  # noqa: ARG002 - fetched whole
        """See ``tasks.ports.Provider``."""
        messages = [
            ChatMessage(role=MessageRole(message["role"]), content=message["content"])
            for message in orjson.loads(call.take_body())["messages"]
        ]
        try:
            async with CallLimit(call.timeout_s):
                response = await self._chat(messages)
        except Exception as error:  # noqa: BLE001 - each integration lets errors of its own SDK through
            raise self._error(error) from None
        try:
            return self._answered(call, response)
        except (AttributeError, TypeError, ValueError) as error:
            reason = f"answered with an unknown shape ({type(error).__name__}: {error})"
            raise self._failures.error(FailureKind.BAD_ANSWER, reason) from None

    async def _chat(self, messages: list[ChatMessage]) -> ChatResponse:
        if isinstance(self._llm, CustomLLM):
            # Its ``achat`` is its ``chat``, and would hold up every other call of the process.
            return await asyncio.to_thread(self._llm.chat, messages)
        return await self._llm.achat(messages)

    async def close(self) -> None:
        """Nothing: the classes keep their connections to themselves."""

    def _error(self, error: Exception) -> ProviderError:
        """The SDKs behind most classes carry the response; whatever does not may have been served and billed."""
        response = getattr(error, "response", None)
        if isinstance(getattr(response, "status_code", None), int) and hasattr(response, "headers"):
            return self._failures.of_status(response, getattr(error, "body", None) or str(error))  # type: ignore[arg-type]
        failure = self._failures.of_connection(error)
        if failure.kind is not FailureKind.INTERNAL:
            return failure
        reason = f"broke off the call: {type(error).__name__}: {error}"
        return self._failures.error(FailureKind.UNKNOWN_OUTCOME, reason)

    def _answered(self, call: Call, response: ChatResponse) -> Answered:
        content = response.message.content or ""
        text = storable(content)
        raw = _plain(response.raw)
        returned = raw.get("model")
        snapshot = ProviderSnapshot(
            provider=self.name,
            model_asked=call.model,
            model_returned=returned if isinstance(returned, str) else None,
            lane=call.lane,
            protocol=call.protocol,
            request_id=raw["id"] if isinstance(raw.get("id"), str) else None,
            parameters_sent=call.parameters_sent,
            parameters_dropped=call.parameters_dropped,
            sdk=SDK,
        )
        completion = Completion(
            text=text,
            finish_reason=_finish_reason(response, raw),
            protocol=call.protocol,
            sanitised=text != content,
            usage=_usage(raw.get("usage")),
            cost_usd=None,
            snapshot=snapshot,
        )
        return Answered(json.dumps({"text": content, "raw": raw}).encode(), completion)


def _dropped(config: GenerationConfig, prompt: Prompt) -> dict[str, str]:
    parameters: dict[str, Any] = {**sampling_of(config), "max_tokens": config.max_tokens}
    if config.reasoning_effort is not None:
        parameters["reasoning_effort"] = config.reasoning_effort
    dropped = dict.fromkeys(parameters, _DECIDED_BY_CLASS)
    if prompt.snapshot.protocol is AnswerProtocol.SEGMENTS:
        dropped["response_format"] = "nothing enforces a schema: the form is asked for in words"
    if config.stream:
        dropped["stream"] = "the answer is fetched whole"
    return dropped


def _plain(raw: Any) -> dict[str, Any]:
    """Provider's own answer as JSON values, as far as the class keeps it."""
    if hasattr(raw, "model_dump"):
        raw = raw.model_dump(mode="json")
    if not isinstance(raw, Mapping):
        return {}
    # The standard library's: it takes lone surrogates, and a paid answer is kept whatever is in it.
    plain: dict[str, Any] = json.loads(json.dumps({str(key): value for key, value in raw.items()}, default=str))
    return plain


def _finish_reason(response: ChatResponse, raw: Mapping[str, Any]) -> FinishReason:
    """Finishes reason from the places of the integrations; without one an answer counts as complete."""
    choices = raw.get("choices")
    first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    reason = first.get("finish_reason") or raw.get("stop_reason") or response.additional_kwargs.get("finish_reason")
    return FinishReason.STOP if reason is None else _FINISH.get(str(reason).lower(), FinishReason.OTHER)


def _usage(fields: Any) -> Usage | None:
    """Parses token counts by the field names of OpenAI or Anthropic."""
    if not isinstance(fields, Mapping):
        return None
    prompt = fields.get("prompt_tokens", fields.get("input_tokens"))
    if not isinstance(prompt, int):
        return None
    answer = fields.get("completion_tokens", fields.get("output_tokens"))
    return Usage(input_tokens=prompt, output_tokens=answer if isinstance(answer, int) else 0)
