"""Calls OpenAI by its Responses API, with the answer's JSON schema enforced."""

from typing import Any

from schemas.completion import FinishReason, Usage
from schemas.job import JobRequest
from schemas.prompt import Prompt
from tasks.prompting.messages import stable_prefix
from worker.providers.adapter import Draft, Reading, Received, Target, messages_of
from worker.providers.openai_sdk import OpenAIAdapter, add_sampling, build_client, is_strict
from worker.providers.streaming import Collector

_INCOMPLETE = {
    "max_output_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}


class OpenAI(OpenAIAdapter):
    """Answers by the Responses API."""

    path = "/responses"

    def __init__(self, target: Target) -> None:
        super().__init__(target, build_client(target), "openai")

    def draft(self, request: JobRequest, prompt: Prompt, model: str) -> Draft:
        """Writes a Responses body; OpenAI keeps nothing (``store``)."""
        config = request.config
        draft = Draft(
            content={"input": messages_of(request, prompt)},
            parameters={"model": model, "max_output_tokens": config.max_tokens, "store": False},
            dropped={},
        )
        if (prefix := stable_prefix(prompt)).pays:
            draft.parameters["prompt_cache_key"] = prefix.key
        if config.reasoning_effort is not None:
            draft.parameters["reasoning"] = {"effort": config.reasoning_effort}
        add_sampling(draft, config, model, lambda _: "the Responses API has no such parameter")
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
            return FinishReason.STOP
        case "incomplete":
            reason = str((value.get("incomplete_details") or {}).get("reason"))
            return _INCOMPLETE.get(reason, FinishReason.OTHER)
        case _:
            return FinishReason.INTERRUPTED


def usage_of(fields: dict[str, Any] | None) -> Usage | None:
    """Parses the usage of a Responses or Decisions call; OpenAI's input tokens include the cached ones, as ours do."""
    if not fields:
        return None
    details = fields.get("input_tokens_details") or {}
    return Usage(
        input_tokens=fields["input_tokens"],
        output_tokens=fields["output_tokens"],
        cached_input_tokens=details.get("cached_tokens") or 0,
        cache_write_tokens=details.get("cache_write_tokens") or 0,
        reasoning_tokens=(fields.get("output_tokens_details") or {}).get("reasoning_tokens") or 0,
    )
