"""Calls any LLM class of LlamaIndex, and so every server of its integrations (extra ``llamaindex``)."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole
from llama_index.core.llms import LLM, CustomLLM

from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol
from schemas.job import GenerationConfig, JobRequest
from schemas.model_call import FinishReason, Prompt
from tasks.errors import ProviderError
from tasks.ports import Call
from worker.plugins import Plugin
from worker.providers.adapter import FINISH_REASONS, Target
from worker.providers.plugin import ModelCall, PluginProvider, Reply, parameters_of

SDK = f"llama-index-core {metadata.version('llama-index-core')}"
_DECIDED_BY_CLASS = "set for the class in 'options' of its settings, not with a call"
_NO_MODEL = "unknown"
"""Model name of a class that names none (``LLMMetadata``)."""


class LlamaIndex(PluginProvider):
    """One call is one ``achat`` (or ``chat`` in a thread, where the class has no other); what the class retries by itself is set by its own ``options`` (``max_retries``)."""

    def __init__(self, target: Target, plugin: Plugin) -> None:
        super().__init__(target, replace(plugin, identity=SDK))

    def arguments(self) -> dict[str, Any]:
        """See ``PluginProvider``; without a model the class has its own."""
        return {**super().arguments(), **({"model": self.target.model} if self.target.model else {})}

    def unfit(self) -> str | None:
        """See ``PluginProvider``."""
        return None if isinstance(self.model, LLM) else f"made a {type(self.model).__name__}, which is no LLM"

    def model_of(self, config: GenerationConfig) -> str | None:  # noqa: ARG002 - the port's signature
        """See ``tasks.ports.Provider``; it is built with one."""
        model: str = self.model.metadata.model_name
        return None if model == _NO_MODEL else model

    def plan(self, request: JobRequest, prompt: Prompt) -> Call:
        """See ``tasks.ports.Provider``."""
        if request.config.model not in {None, self.model_of(request.config)}:
            reason = f"is built with one model and can't call {request.config.model!r}: name that in its settings"
            raise self.failures.error(FailureKind.CONFIGURATION, reason)
        return super().plan(request, prompt)

    def parameters(self, config: GenerationConfig, prompt: Prompt) -> tuple[dict[str, Any], dict[str, str]]:
        """See ``PluginProvider``: the class alone knows what goes on its wire."""
        dropped = dict.fromkeys(parameters_of(config), _DECIDED_BY_CLASS)
        if prompt.snapshot.protocol is AnswerProtocol.SEGMENTS:
            dropped["response_format"] = "nothing enforces a schema: the form is asked for in words"
        if config.stream:
            dropped["stream"] = "the answer is fetched whole"
        return {"class": self.model.class_name()}, dropped

    async def complete(self, call: ModelCall) -> Reply:
        """See ``PluginProvider``."""
        messages = [ChatMessage(role=MessageRole(each["role"]), content=each["content"]) for each in call.messages]
        if isinstance(self.model, CustomLLM):
            # Its ``achat`` is its ``chat``, and would hold up every other call of the process.
            return _reply(await asyncio.to_thread(self.model.chat, messages))
        return _reply(await self.model.achat(messages))

    def broken(self, error: BaseException) -> ProviderError:
        """See ``PluginProvider``; the SDKs behind most classes carry the response."""
        response: Any = getattr(error, "response", None)
        if isinstance(getattr(response, "status_code", None), int) and hasattr(response, "headers"):
            return self.failures.of_status(response, getattr(error, "body", None) or str(error))
        return super().broken(error)


def _reply(response: ChatResponse) -> Reply:
    content = response.message.content or ""
    raw = _plain(response.raw)
    tokens_in, tokens_out = _usage(raw.get("usage"))
    model, request_id = (value if isinstance(value := raw.get(name), str) else None for name in ("model", "id"))
    return Reply(
        content,
        _finish_reason(response, raw),
        tokens_in,
        tokens_out,
        model=model,
        request_id=request_id,
        raw=json.dumps({"text": content, "raw": raw}).encode(),
    )


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
    return FinishReason.STOP if reason is None else FINISH_REASONS.get(str(reason).lower(), FinishReason.OTHER)


def _usage(fields: Any) -> tuple[int | None, int]:
    """The tokens in and out by the field names of OpenAI or Anthropic; None where they were not counted."""
    fields = fields if isinstance(fields, Mapping) else {}
    prompt, answer = (
        fields.get(f"{a}_tokens", fields.get(f"{b}_tokens")) for a, b in (("prompt", "input"), ("completion", "output"))
    )
    return prompt if isinstance(prompt, int) else None, answer if isinstance(answer, int) else 0
