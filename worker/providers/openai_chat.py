"""Calls any OpenAI-compatible server by chat completions: vLLM, llama.cpp, Ollama, a gateway, Gemini's endpoint."""

from typing import Any
from urllib.parse import urlsplit

from schemas.job import JobRequest
from schemas.model_call import FinishReason, Prompt
from tasks.prompting.messages import stable_prefix
from worker.providers.adapter import FINISH_REASONS, Draft, Reading, Received, Target, messages_of
from worker.providers.openai import OpenAIAdapter, add_sampling, build_client, is_strict, usage_of
from worker.providers.streaming import Collector

BEYOND_CHAT = frozenset({"top_k", "min_p", "repetition_penalty"})
"""Sampling parameters that some servers add to OpenAI's; ``takes`` of the settings names those of a server."""


class OpenAIChat(OpenAIAdapter):
    """Answers by chat completions."""

    path = "/chat/completions"

    def __init__(self, target: Target) -> None:
        super().__init__(target, build_client(target), None)
        host = urlsplit(target.base_url).hostname or ""
        self._at_openai = host.endswith(".openai.com")
        # OpenAI's models refuse the older name, at Azure too.
        self._limit = "max_completion_tokens" if host.endswith((".openai.com", ".openai.azure.com")) else "max_tokens"

    def draft(self, request: JobRequest, prompt: Prompt, model: str) -> Draft:
        """Writes a chat completions body."""
        config = request.config
        draft = Draft(
            content={"messages": messages_of(request, prompt)},
            parameters={"model": model, self._limit: config.max_tokens},
            dropped={},
        )
        if self._at_openai and (prefix := stable_prefix(prompt)).pays:
            draft.parameters["prompt_cache_key"] = prefix.key
        if config.stream:
            # Without it a streamed answer comes without usage.
            draft.parameters["stream_options"] = {"include_usage": True}
        if config.reasoning_effort is not None:
            draft.parameters["reasoning_effort"] = config.reasoning_effort
        missing = dict.fromkeys(BEYOND_CHAT - self.target.takes, "chat completions have no such parameter")
        add_sampling(draft, config, model, missing.get)
        if (schema := prompt.reply_schema) is not None and self.target.json_schema:
            strict = is_strict(schema)
            form = {"name": "answer", "strict": strict, "schema": schema}
            draft.content["response_format"] = {"type": "json_schema", "json_schema": form}
            draft.notes["response_format"] = f"json_schema, strict: {str(strict).lower()}"
        elif schema is not None:
            draft.dropped["response_format"] = "the server enforces no JSON schema (json_schema: false)"
        return draft

    def read(self, received: Received) -> Reading:
        """Takes the first choice; an error object in its place is an error."""
        value = received.value
        if value.get("error"):
            raise self.failures.in_answer(received.response, value)
        # They come in any order.
        choice = min(value["choices"], key=lambda each: each.get("index") or 0)
        message = choice["message"]
        refusal = message.get("refusal")
        return Reading(
            text=_text(message.get("content")),
            finish_reason=FinishReason.REFUSAL
            if refusal
            else FINISH_REASONS.get(choice.get("finish_reason"), FinishReason.OTHER),
            model=value.get("model"),
            usage=usage_of(value.get("usage"), "prompt_tokens", "completion_tokens"),
            refusal=refusal,
            service_tier=value.get("service_tier"),
        )

    def collector(self) -> Collector:
        """See ``ChatChunks``."""
        return ChatChunks()


class ChatChunks:
    """The chunks of a streamed chat completion; text, refusal and reason come in the first choice, usage in a last chunk."""

    def __init__(self) -> None:
        self._body: dict[str, Any] = {}
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._reason: str | None = None

    @property
    def complete(self) -> bool:
        """True once a finish reason came; a server that breaks off sends none."""
        return bool(self._reason)

    @property
    def body(self) -> dict[str, Any]:
        """A chat completion."""
        message = {"content": "".join(self._content), "refusal": "".join(self._refusal) or None}
        return {**self._body, "choices": [{"message": message, "finish_reason": self._reason}]}

    def add(self, event: dict[str, Any]) -> str:
        """See ``Collector.add``."""
        fields = {name: event[name] for name in ("id", "model", "service_tier", "usage") if event.get(name)}
        self._body.update(fields)
        piece = ""
        for choice in event.get("choices") or ():
            if choice.get("index"):
                continue
            delta = choice.get("delta") or {}
            piece += _text(delta.get("content"))
            self._refusal.append(delta.get("refusal") or "")
            self._reason = choice.get("finish_reason") or self._reason
        self._content.append(piece)
        return piece


def _text(content: Any) -> str:
    """The text of a message; some servers send it in parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    if content is not None and not isinstance(content, str):
        raise TypeError("content is no text")
    return content or ""
