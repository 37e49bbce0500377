"""Renders a request into the messages of a prompt and of its second round; they refer to sources and repeat none."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from schemas.base import share_field_names
from schemas.generation import AnswerProtocol
from schemas.job import SHOWN_METADATA, GenerationConfig, JobRequest, SourceContext
from schemas.model_call import Correction, Message, MessagesSnapshot, Prompt, Role, SourcePart, TextPart, hash_messages
from schemas.structured import requested_schema
from tasks.answers.formats import resolve_format
from tasks.answers.objects import embed_schema
from tasks.errors import InputError
from tasks.prompting.sources.injection import (
    WORD_JOINER,
    Slots,
    as_message,
    attribute,
    chat_tokens,
    defuse,
    fill,
    flags,
    unused_tag,
)
from tasks.prompting.sources.pack import pack, quarter_tokens, sub_queries
from tasks.prompting.templates import PromptTemplate, load, load_part

_DEFUSES_SINCE = 2
"""First major version of the shipped templates that disables chat tokens; those of older versions can still be asked for."""

ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["sufficient", "segments"],
    "properties": {
        "sufficient": {"type": "boolean"},
        "segments": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["text", "citations"],
                "properties": {
                    "text": {"type": "string"},
                    "citations": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["source", "quote"],
                            "properties": {"source": {"type": "integer"}, "quote": {"type": "string"}},
                        },
                    },
                },
            },
        },
    },
}
"""The canonical answer as a strict JSON Schema (all keys required, none added), for OpenAI's strict mode."""


def answer_schema(config: GenerationConfig) -> dict[str, Any]:
    """The JSON Schema of a SEGMENTS answer; ``config.output_schema`` becomes the schema of its key ``data``."""
    if config.output_schema is None:
        return ANSWER_SCHEMA
    data, definitions = embed_schema(requested_schema(config.output_schema), "data")
    return {
        **ANSWER_SCHEMA,
        "required": [*ANSWER_SCHEMA["required"], "data"],
        "properties": {**ANSWER_SCHEMA["properties"], "data": data},
        **definitions,
    }


def render(request: JobRequest, protocol: AnswerProtocol, model: str | None = None) -> Prompt:
    """Renders a request for one answer protocol.

    The prompt has the best sources first, without duplicates, as many as fit into ``max_context_tokens`` (see
    ``tasks.prompting.sources.pack``). ``snapshot.shown`` maps source numbers to sources, ``snapshot.left_out`` lists the omitted
    sources with their reasons.

    Args:
        request: the job's request.
        protocol: the protocol of the answer.
        model: the model that answers, for its tokenizer; None: the model of the config, if any.

    Raises: ``InputError`` for a prompt name or version that does not exist.
    """
    template = load(request.config.prompt_name or request.config.mode.value, request.config.prompt_version)
    packed = pack(request, model)
    shown_parts = {part.source_index: _pieces(part, request, protocol, template) for part in packed.parts}
    messages = _messages(request, protocol, template, shown_parts, _unused_tag(request, shown_parts))
    contents = [source.content for source in request.context]
    texts = [part.text for message in messages for part in message.parts if isinstance(part, TextPart)]
    snapshot = MessagesSnapshot(
        messages=messages,
        shown=tuple(shown_parts),
        protocol=protocol,
        sha256=hash_messages([(message.role, message.text(contents)) for message in messages]),
        left_out=packed.left_out,
        flags=flags({index: contents[index] for index in shown_parts}, packed.search_texts),
        prompt_tokens=packed.source_tokens + packed.counter.count("".join(texts)),
        source_tokens=packed.source_tokens,
        counted_by=packed.counter.name,
    )
    prompt = Prompt(
        name=template.name,
        version=template.version,
        template_sha256=template.sha256,
        snapshot=share_field_names(snapshot),
        reply_schema=_reply_schema(request, protocol),
    )
    return share_field_names(prompt)


def stored_prompt(request: JobRequest, prompt: Prompt) -> Prompt:
    """A recorded prompt to be sent again as it is; its reply schema, which no record has, is that of the request.

    Raises: ``InputError`` if the messages are not those of the record, because a source was changed or is missing.
    """
    contents = [source.content for source in request.context]
    if max(prompt.snapshot.shown, default=-1) >= len(contents) or not prompt.snapshot.proves(contents):
        raise InputError(f"the stored messages and sources no longer give the recorded hash {prompt.snapshot.sha256}")
    return prompt.model_copy(update={"reply_schema": _reply_schema(request, prompt.snapshot.protocol)})


def _reply_schema(request: JobRequest, protocol: AnswerProtocol) -> dict[str, Any] | None:
    return answer_schema(request.config) if protocol is AnswerProtocol.SEGMENTS else None


def _messages(
    request: JobRequest,
    protocol: AnswerProtocol,
    template: PromptTemplate,
    shown_parts: Mapping[int, Sequence[str | SourcePart]],
    tag: str,
) -> tuple[Message, ...]:
    slots = Slots(defuse if _defuses(template) else None)
    variables = _variables(request, protocol, shown_parts, slots)
    history = slots.add(_History(_turns(request.conversation_history))) if request.conversation_history else ""
    messages: list[Message] = []
    for role, pieces in fill(template, slots, {**variables, "tag": tag, "history": history}):
        earlier = [turn for piece in pieces if isinstance(piece, _History) for turn in piece.turns]
        # A source is a list of its parts.
        nested = [piece if isinstance(piece, list) else [piece] for piece in pieces if not isinstance(piece, _History)]
        messages.append(as_message(role, chain.from_iterable(nested)))
        messages.extend(as_message(role, [defuse(text) if _defuses(template) else text]) for role, text in earlier)
    return tuple(messages)


def _defuses(template: PromptTemplate) -> bool:
    return template.own or int(template.version.partition(".")[0]) >= _DEFUSES_SINCE


def _pieces(
    part: SourcePart, request: JobRequest, protocol: AnswerProtocol, template: PromptTemplate
) -> list[str | SourcePart]:
    """A source's span, split inside each chat token; whole if the provider takes sources as data."""
    if protocol is AnswerProtocol.NATIVE or not _defuses(template):
        return [part]
    pieces: list[str | SourcePart] = []
    start = part.start
    for place in chat_tokens(request.context[part.source_index].content[: part.end]):
        pieces += [part.model_copy(update={"start": start, "end": place}), WORD_JOINER]
        start = place
    return [*pieces, part.model_copy(update={"start": start})] if pieces else [part]


class _History:
    """The conversation before the question; each turn becomes a message."""

    def __init__(self, turns: Sequence[tuple[Role, str]]) -> None:
        self.turns = turns


_USERS = frozenset({"user", "human", "customer", "client", "system"})
_ASSISTANTS = frozenset({"assistant", "ai", "bot", "model", "agent"})


def _turns(history: Sequence[tuple[str, str]]) -> list[tuple[Role, str]]:
    """The turns of a history of (speaker, text), or of (question, answer) when no pair begins with a speaker.

    Only two speakers exist, so the history cannot contain a system message.
    """
    speakers = [first.strip().lower() for first, _ in history]
    if not any(speaker in _USERS or speaker in _ASSISTANTS for speaker in speakers):
        pairs = (((Role.USER, question), (Role.ASSISTANT, answer)) for question, answer in history)
        # Providers refuse a message without text.
        return [(role, text) for pair in pairs for role, text in pair if text.strip()]
    return [
        (Role.ASSISTANT if speaker in _ASSISTANTS else Role.USER, text)
        for speaker, (_, text) in zip(speakers, history, strict=True)
    ]


def _variables(
    request: JobRequest,
    protocol: AnswerProtocol,
    shown_parts: Mapping[int, Sequence[str | SourcePart]],
    slots: Slots,
) -> dict[str, Any]:
    config = request.config
    schema = None
    if config.output_schema is not None and protocol is AnswerProtocol.SEGMENTS:
        schema = json.dumps(requested_schema(config.output_schema), ensure_ascii=False)
    return {
        "protocol": protocol.value,
        "format": (request.fixed_format or resolve_format(request)).value,
        "role": slots.add(config.role),
        "audience": slots.add(config.audience),
        "language": slots.add(config.language),
        "style": slots.add(config.style),
        "plain_language": config.plain_language,
        "aggregate": request.aggregate,
        "max_characters": config.max_response_length,
        "schema": slots.add(schema),
        "instructions": slots.add(request.system_instructions),
        "query": slots.add(request.query),
        "sub_queries": [slots.add(query) for query in sub_queries(request.context)],
        "sources": [
            {"number": number, "about": slots.add(source_attributes(request.context[index])), "words": slots.add(words)}
            for number, (index, words) in enumerate(shown_parts.items(), start=1)
        ],
    }


def _unused_tag(request: JobRequest, indexes: Iterable[int]) -> str:
    """A tag name that no text of the job contains, disguised or not, so that no text can forge a source."""
    texts = [
        request.query,
        request.system_instructions or "",
        *(text for turn in request.conversation_history for text in turn),
    ]
    texts += [value for value in (request.config.role, request.config.style, request.config.audience) if value]
    texts += [request.context[index].content for index in indexes]
    return unused_tag("source", [*texts, *sub_queries(request.context)])


def source_attributes(source: SourceContext) -> str:
    """The metadata of a source in a prompt, as attributes without characters that can end the tag."""
    about = ""
    for key in SHOWN_METADATA if source.metadata else ():
        value = source.metadata.get(key)
        if value is None or value == "":
            continue
        text = " > ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        # A path gets slashes: ``attribute`` replaces ">" by a bracket, which has another meaning.
        about += f' {key}="{attribute(text.replace(" > ", " / "))}"'
    return about


# ---- the cacheable front ----------------------------------------------------------------------------------------------

LEAST_CACHED = 1_024
"""Tokens; no provider caches a shorter prefix (OpenAI's prompt caching guide, and Anthropic's for its smallest limit;
Anthropic's newer models want 2,048 or 4,096 and ignore the mark below that, without a fee)."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """The stable front of a prompt: a key that is equal for equal fronts, and its estimated tokens."""

    key: str
    tokens: int

    @property
    def pays(self) -> bool:
        """True if the prefix is long enough for a provider's cache."""
        return self.tokens >= LEAST_CACHED


def stable_prefix(prompt: Prompt) -> Prefix:
    """The system message, which is identical for all jobs with the same configuration and instructions.

    The key depends on no tenant, question or source; the instructions enter it only as a hash.
    """
    texts = [
        part.text
        for message in prompt.snapshot.messages
        if message.role is Role.SYSTEM
        for part in message.parts
        if isinstance(part, TextPart)
    ]
    text = "".join(texts)
    digest = hashlib.sha256(f"{prompt.template_sha256}\n{text}".encode(errors="surrogatepass"))
    return Prefix(f"nightdesk-{digest.hexdigest()[:32]}", quarter_tokens(text) // 4)


# ---- the second round -------------------------------------------------------------------------------------------------

MAX_PREVIOUS_CHARACTERS = 20_000
"""Most characters of the first answer in the second prompt; about 5,000 tokens."""


def with_correction(prompt: Prompt, request: JobRequest, correction: Correction | None) -> Prompt:
    """The prompt of a model's second round; in its first the prompt itself.

    The first answer is the model's own text and the problems quote it. Neither passes through the template engine, and
    chat tokens in them (copied from a source, for example) are disabled like those of a source. The snapshot contains
    the added messages too, and its hash covers all of them.
    """
    if correction is None or correction.purpose == "escalate":
        return prompt
    slots = Slots(defuse)
    variables = {
        "purpose": correction.purpose,
        "problems": [slots.add(problem) for problem in correction.problems],
    }
    added = [as_message(role, pieces) for role, pieces in fill(load_part("_correction", "1"), slots, variables)]
    # Providers refuse a message without text.
    if previous := defuse(correction.previous[:MAX_PREVIOUS_CHARACTERS]).strip():
        added.insert(0, as_message(Role.ASSISTANT, [previous]))
    messages = (*prompt.snapshot.messages, *added)
    contents = [source.content for source in request.context]
    proof = hash_messages([(message.role, message.text(contents)) for message in messages])
    snapshot = prompt.snapshot.model_copy(update={"messages": messages, "sha256": proof})
    return prompt.model_copy(update={"snapshot": snapshot})
