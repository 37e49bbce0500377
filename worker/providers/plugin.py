"""Calls a model by code of one's own: planning, the time limit, errors and the record are here, the call alone is there."""

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

import orjson

from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol
from schemas.job import GenerationConfig, JobRequest
from schemas.model_call import Completion, FinishReason, Prompt, ProviderSnapshot, Usage
from tasks.answers.parse import storable
from tasks.errors import ConfigurationError, ProviderError
from tasks.ports import Answered, Call, Listener
from worker.plugins import Plugin, describe
from worker.providers.adapter import Target, choose_protocol, messages_of, sampling_of, standard_lane
from worker.providers.failures import Failures
from worker.providers.whole_calls import CallLimit


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call for a plugin to make.

    Attributes:
        model: of the job or the settings; None: the plugin's own.
        messages: ``role`` (system, user or assistant) and ``content`` of each, in order.
        parameters: max_tokens, and what the job sets of temperature, top_p, top_k, seed, stop and reasoning_effort.
        reply_schema: JSON Schema of the reply, where one is asked for; None: running text with ``[N]`` markers.
        timeout_s: seconds after which the call is cancelled.
    """

    model: str | None
    messages: list[dict[str, str]]
    parameters: Mapping[str, Any]
    reply_schema: Mapping[str, Any] | None
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a plugin; what it does not know stays None, and is recorded as unknown."""

    text: str
    finish_reason: FinishReason = FinishReason.STOP
    input_tokens: int | None = None
    output_tokens: int = 0
    cost_usd: Decimal | None = None
    model: str | None = None
    request_id: str | None = None
    raw: bytes | None = None
    """The answer as it came; None: its text."""


class Model(Protocol):
    """A plugin: makes one call, without retries. It may also have ``async def close(self)``."""

    async def complete(self, call: ModelCall) -> Reply:
        """Makes the call once.

        A ``ProviderError`` tells by its kind what follows: retry, hold or fallback. Any other exception counts as a call
        that may have been billed.
        """
        ...


class PluginProvider:
    """``tasks.ports.Provider`` over a ``Model``."""

    def __init__(self, target: Target, plugin: Plugin) -> None:
        self.name = target.name
        self.target = target
        self.failures = Failures(target.name, (target.api_key,) if target.api_key else ())
        self._identity = plugin.identity
        where = f"the provider {target.name!r}"
        self.model = plugin.build(where, **self.arguments())
        if (problem := self.unfit()) is not None:
            raise ConfigurationError(f"{where} ({plugin.identity}) {problem}")

    # ---- what other code of others does in its own way ----

    def arguments(self) -> dict[str, Any]:
        """The arguments of the factory."""
        key = {"api_key": self.target.api_key} if self.target.api_key else {}
        return {**self.target.options, **key}

    def unfit(self) -> str | None:
        """The reason that what the factory made can't be called; None where it can."""
        has_call = inspect.iscoroutinefunction(getattr(self.model, "complete", None))
        return None if has_call else "has no 'async def complete(self, call)'"

    def parameters(self, config: GenerationConfig, prompt: Prompt) -> tuple[dict[str, Any], dict[str, str]]:  # noqa: ARG002
        """The parameters that are sent, and those that are not, with the reason."""
        return parameters_of(config), {"stream": "a plugin's answer is fetched whole"} if config.stream else {}

    async def complete(self, call: ModelCall) -> Reply:
        """Makes the call once."""
        reply: Reply = await self.model.complete(call)
        return reply

    def broken(self, error: BaseException) -> ProviderError:
        """The error of a call that broke: it may have been served and billed."""
        failure = self.failures.of_connection(error)
        if failure.kind is not FailureKind.INTERNAL:
            return failure
        return self.failures.error(FailureKind.UNKNOWN_OUTCOME, f"({self._identity}) broke: {describe(error)}")

    # ---- the port ----

    def protocol(self, config: GenerationConfig) -> AnswerProtocol:
        """See ``tasks.ports.Provider``: running text with markers, unless the plugin takes a schema."""
        segments = config.output_schema is not None or self.target.json_schema
        best = AnswerProtocol.SEGMENTS if segments else AnswerProtocol.MARKERS
        serves = (AnswerProtocol.SEGMENTS, AnswerProtocol.MARKERS)
        return choose_protocol(config, best, serves, self.target.answer_protocol, self.failures)

    def model_of(self, config: GenerationConfig) -> str | None:
        """See ``tasks.ports.Provider``."""
        return config.model or self.target.model

    def plan(self, request: JobRequest, prompt: Prompt) -> Call:
        """See ``tasks.ports.Provider``; the body is the messages and parameters, for the plugin alone knows its wire."""
        lane, model = standard_lane(request.config, self.failures), self.model_of(request.config)
        parameters, reasons = self.parameters(request.config, prompt)
        content = {"messages": messages_of(request, prompt), "reply_schema": prompt.reply_schema}
        body = orjson.dumps({"model": model, "parameters": parameters, **content})
        return Call(
            provider=self.name,
            model=model,
            lane=lane.value,
            protocol=prompt.snapshot.protocol,
            body=body,
            request_hash=hashlib.sha256(body).digest(),
            timeout_s=request.config.timeout_s,
            reserve_usd=None,
            prompt=prompt,
            request=request,
            parameters_sent=parameters,
            parameters_dropped=reasons,
        )

    def expected_usd(self, call: Call) -> None:
        """Always unknown."""

    async def call(self, call: Call, listener: Listener | None = None) -> Answered:  # noqa: ARG002 - fetched whole
        """See ``tasks.ports.Provider``."""
        body = orjson.loads(call.take_body())
        model_call = ModelCall(
            call.model, body["messages"], body["parameters"], body["reply_schema"], timeout_s=call.timeout_s
        )
        try:
            async with CallLimit(call.timeout_s):
                reply = await self.complete(model_call)
        except ProviderError as error:
            raise self.failures.error(
                error.kind, str(error), retry_after_s=error.retry_after_s, status_code=error.status_code
            ) from None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others may raise anything
            raise self.broken(error) from None
        try:
            return self._answered(call, reply)
        except (AttributeError, TypeError, ValueError) as error:
            reason = f"({self._identity}) returned no Reply: {type(error).__name__}: {error}"
            raise self.failures.error(FailureKind.BAD_ANSWER, reason) from None

    async def close(self) -> None:
        """See ``tasks.ports.Provider``."""
        if inspect.iscoroutinefunction(close := getattr(self.model, "close", None)):
            await close()

    def _answered(self, call: Call, reply: Reply) -> Answered:
        text = storable(reply.text)
        usage = None
        if reply.input_tokens is not None:
            usage = Usage(input_tokens=reply.input_tokens, output_tokens=reply.output_tokens)
        snapshot = ProviderSnapshot(
            provider=self.name,
            model_asked=call.model,
            model_returned=reply.model,
            lane=call.lane,
            protocol=call.protocol,
            request_id=reply.request_id,
            parameters_sent=call.parameters_sent,
            parameters_dropped=call.parameters_dropped,
            sdk=self._identity,
        )
        completion = Completion(
            text=text,
            finish_reason=reply.finish_reason,
            protocol=call.protocol,
            sanitised=text != reply.text,
            usage=usage,
            cost_usd=reply.cost_usd,
            snapshot=snapshot,
        )
        return Answered(reply.text.encode(errors="replace") if reply.raw is None else reply.raw, completion)


def parameters_of(config: GenerationConfig) -> dict[str, Any]:
    """The parameters of a job's call, by name."""
    effort = {} if config.reasoning_effort is None else {"reasoning_effort": config.reasoning_effort}
    return {"max_tokens": config.max_tokens, **sampling_of(config), **effort}
