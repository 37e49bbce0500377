"""Calls Anthropic by its Messages API, with the model's own citations of the sources."""

import re
from functools import cached_property
from typing import Any, ClassVar

import anthropic

from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol
from schemas.job import GenerationConfig, JobRequest
from schemas.model_call import FinishReason, Message, NativeCitation, Prompt, Role, SourcePart, Usage
from tasks.ports.remote_batches import RemoteCalls
from tasks.prompting.messages import stable_prefix
from worker.providers.adapter import (
    FINISH_REASONS,
    NO_KEY,
    Draft,
    Reading,
    Received,
    Target,
    choose_protocol,
    counted,
    sampling_of,
)
from worker.providers.anthropic_batches import AnthropicBatches
from worker.providers.prices import PriceList
from worker.providers.streaming import Collector, StreamingAdapter
from worker.providers.whole_calls import SdkClient, client_of

EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})
"""Of ``output_config.effort`` in anthropic 2.12."""

# One class of characters first: the search then skips over all others at once.
_BOUNDARY = re.compile(r"[.!?…。！？\n](?:(?<=[。！？\n])|[\"'”’)\]]*\s)\s*(?=[^\sa-z])")  # noqa: RUF001 - full-width stops
_LEAST_PIECE = 20
"""Characters; a shorter piece (a heading, an abbreviation's end) goes with the one after it."""


class Anthropic(StreamingAdapter):
    """Answers in running text with native citations, or in segments where the job wants an object by its schema."""

    path = "/v1/messages"
    sdk: ClassVar[Any] = anthropic
    sdk_error: ClassVar[type[Exception]] = anthropic.AnthropicError
    stream_class = anthropic.AsyncStream[object]

    def __init__(self, target: Target, client: SdkClient | None = None, vendor: PriceList = "anthropic") -> None:
        super().__init__(target, client or _build_client(target), vendor)

    def protocol(self, config: GenerationConfig) -> AnswerProtocol:
        """See ``tasks.ports.Provider``. Citations and a JSON schema exclude each other (400)."""
        best = AnswerProtocol.NATIVE if config.output_schema is None else AnswerProtocol.SEGMENTS
        return choose_protocol(config, best, tuple(AnswerProtocol), self.target.answer_protocol, self.failures)

    @cached_property
    def batch_calls(self) -> RemoteCalls:
        """Message Batches."""
        return AnthropicBatches(self)

    def draft(self, request: JobRequest, prompt: Prompt, model: str) -> Draft:
        """A Messages body; with citations, one ``search_result`` block per source, in the order of their numbers."""
        config = request.config
        native = prompt.snapshot.protocol is AnswerProtocol.NATIVE
        contents = [source.content for source in request.context]
        system = [message.text(contents) for message in prompt.snapshot.messages if message.role is Role.SYSTEM]
        conversation = [message for message in prompt.snapshot.messages if message.role is not Role.SYSTEM]
        numbers = _numbers(prompt)
        instructions: Any = "\n\n".join(system)
        if cached := stable_prefix(prompt).pays:
            instructions = [{"type": "text", "text": instructions, "cache_control": {"type": "ephemeral"}}]
        draft = Draft(
            content={
                "system": instructions,
                "messages": [
                    {
                        "role": message.role.value,
                        "content": _blocks(message, request, numbers) if native else message.text(contents),
                    }
                    for message in conversation
                ],
            },
            parameters={"model": model, "max_tokens": config.max_tokens},
            dropped={},
            notes={"system.cache_control": "ephemeral"} if cached else {},
        )
        _add_sampling(draft, config)
        output: dict[str, Any] = {}
        if config.reasoning_effort in EFFORTS:
            output["effort"] = draft.notes["output_config.effort"] = config.reasoning_effort
        elif config.reasoning_effort is not None:
            draft.dropped["reasoning_effort"] = f"Anthropic has no such effort; it has {', '.join(sorted(EFFORTS))}"
        if prompt.reply_schema is not None and self.target.json_schema:
            output["format"] = {"type": "json_schema", "schema": self._schema(prompt.reply_schema)}
            draft.notes["output_config.format"] = "json_schema"
        if output:
            draft.content["output_config"] = output
        return draft

    def _schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        try:
            # What Anthropic's schemas lack (minimum, pattern) goes into descriptions.
            return anthropic.transform_schema(schema)
        except (TypeError, ValueError, AttributeError) as error:
            problem = f"can't take this JSON schema: {error}"
            raise self.failures.error(FailureKind.INVALID_REQUEST, problem) from None

    def read(self, received: Received) -> Reading:
        """Puts the text blocks together; each block's citations are those of its place in the text."""
        value = received.value
        if value.get("type") == "error":
            raise self.failures.in_answer(received.response, value)
        block_numbers = _block_numbers(received.call.prompt, received.call.request)
        texts: list[str] = []
        end = 0
        citations: list[NativeCitation] = []
        for block in value["content"]:
            if block.get("type") != "text":
                continue
            texts.append(block["text"])
            start, end = end, end + len(block["text"])
            citations.extend(
                NativeCitation(start=start, end=end, source_number=number, quote=citation.get("cited_text") or "")
                for citation in block.get("citations") or ()
                if (number := _number(citation, block_numbers)) is not None
            )
        usage = value.get("usage") or {}
        stop = value.get("stop_reason")
        return Reading(
            text="".join(texts),
            finish_reason=FINISH_REASONS.get(stop, FinishReason.OTHER),
            model=value.get("model"),
            usage=_usage(usage),
            citations=tuple(citations),
            refusal=_refusal(value.get("stop_details")) if stop == "refusal" else None,
            service_tier=usage.get("service_tier"),
        )

    def collector(self) -> Collector:
        """See ``MessageEvents``."""
        return MessageEvents()


def _build_client(target: Target) -> SdkClient:
    """A client that never retries (the SDK would sleep as long as a Retry-After says), over aiohttp."""
    client: SdkClient = anthropic.AsyncAnthropic(
        api_key=target.api_key or NO_KEY,
        base_url=target.base_url,
        max_retries=0,
        open_telemetry=False,
        http_client=client_of(anthropic),
    )
    return client


def _add_sampling(draft: Draft, config: GenerationConfig) -> None:
    for name, value in sampling_of(config).items():
        if name == "stop":
            draft.parameters["stop_sequences"] = value
        else:
            draft.dropped[name] = "the Messages API has no such parameter"


# ---- sources as citable blocks ---------------------------------------------------------------------------------


def _numbers(prompt: Prompt) -> dict[int, int]:
    """Number in the prompt of each source index."""
    return {index: number for number, index in enumerate(prompt.snapshot.shown, start=1)}


def _block_numbers(prompt: Prompt, request: JobRequest) -> list[int]:
    """Source number of each ``search_result`` block, in the order of the request."""
    numbers = _numbers(prompt)
    return [
        numbers[part.source_index]
        for message in prompt.snapshot.messages
        for part in message.parts
        if isinstance(part, SourcePart) and _words(part, request).strip()
    ]


def _blocks(message: Message, request: JobRequest, numbers: dict[int, int]) -> list[dict[str, Any]]:
    """A message as content blocks: its texts as they stand, its sources as ``search_result`` blocks."""
    blocks: list[dict[str, Any]] = []
    for part in message.parts:
        if not isinstance(part, SourcePart):
            # The API refuses blocks of white space alone.
            if part.text.strip():
                blocks.append({"type": "text", "text": part.text})
            continue
        words = _words(part, request)
        if not words.strip():
            continue
        source = request.context[part.source_index]
        number = numbers[part.source_index]
        blocks.append(
            {
                "type": "search_result",
                "source": f"source-{number}",
                "title": str(source.metadata.get("title") or f"Source {number}"),
                "content": [{"type": "text", "text": piece} for piece in pieces(words)],
                "citations": {"enabled": True},
            }
        )
    return blocks


def _words(part: SourcePart, request: JobRequest) -> str:
    return request.context[part.source_index].content[part.start : part.end]


def pieces(text: str) -> list[str]:
    """Cuts a source into citable pieces of about a sentence; put together they are the source again.

    A citation quotes whole pieces. The cuts are rough on purpose: the exact sentence splitter takes 0.6 ms for a
    source of 2.5 KB, this takes an eighth of it, and a cut at an abbreviation only makes a quote shorter or longer.
    """
    parts: list[str] = []
    start = 0
    # Every piece needs a word: the API refuses blocks of white space alone.
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    for boundary in _BOUNDARY.finditer(text, first):
        if boundary.end() - max(start, first) >= _LEAST_PIECE and boundary.end() < last:
            parts.append(text[start : boundary.end()])
            start = boundary.end()
    parts.append(text[start:])
    return parts


def _number(citation: dict[str, Any], block_numbers: list[int]) -> int | None:
    """Source number of a citation; None for a kind of citation other than of our blocks."""
    index = citation.get("search_result_index")
    if citation.get("type") != "search_result_location" or not isinstance(index, int):
        return None
    return block_numbers[index] if 0 <= index < len(block_numbers) else None


# ---- streaming -------------------------------------------------------------------------------------------------


class MessageEvents:
    """The events of a streamed message; blocks come one after the other, each with its citations beside its text.

    Source: Anthropic's API reference, "Streaming Messages" (anthropic 2.12).
    """

    def __init__(self) -> None:
        self.body: dict[str, Any] = {}
        self.complete = False
        self._blocks: dict[int, dict[str, Any]] = {}

    def add(self, event: dict[str, Any]) -> str:
        """See ``Collector.add``."""
        match event.get("type"):
            case "message_start":
                self.body = {**event["message"], "content": []}
            case "content_block_start":
                block = self._blocks[event["index"]] = dict(event["content_block"])
                self.body["content"].append(block)
                return block.get("text") or "" if block.get("type") == "text" else ""
            case "content_block_delta":
                return _append(self._blocks[event["index"]], event["delta"])
            case "message_delta":
                self.body.update(event.get("delta") or {})
                # Cumulative; a field that is not repeated keeps its first value.
                usage = {name: value for name, value in (event.get("usage") or {}).items() if value is not None}
                self.body["usage"] = {**(self.body.get("usage") or {}), **usage}
            case "message_stop":
                self.complete = self.body.get("stop_reason") is not None
        return ""


def _append(block: dict[str, Any], delta: dict[str, Any]) -> str:
    """Adds a delta to its block and returns its text. Thinking and signatures are no part of the answer."""
    if delta.get("type") == "text_delta":
        block["text"] = (block.get("text") or "") + delta["text"]
        return str(delta["text"])
    if delta.get("type") == "citations_delta":
        block["citations"] = block.get("citations") or []
        block["citations"].append(delta["citation"])
    return ""


# ---- reading ---------------------------------------------------------------------------------------------------


def _usage(fields: dict[str, Any]) -> Usage | None:
    """Parses usage; Anthropic counts cache reads and writes apart from the input tokens, we include them."""
    if fields.get("input_tokens") is None:
        return None
    usage = counted(
        input_tokens=fields["input_tokens"],
        output_tokens=fields.get("output_tokens"),
        cached_input_tokens=fields.get("cache_read_input_tokens"),
        cache_write_tokens=fields.get("cache_creation_input_tokens"),
        reasoning_tokens=(fields.get("output_tokens_details") or {}).get("thinking_tokens"),
    )
    if usage is None:
        return None
    whole = usage.input_tokens + usage.cached_input_tokens + usage.cache_write_tokens
    return usage.model_copy(update={"input_tokens": whole})


def _refusal(details: dict[str, Any] | None) -> str:
    details = details or {}
    return ": ".join(filter(None, (details.get("category"), details.get("explanation")))) or "refused"
