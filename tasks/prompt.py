"""Render a request into the messages a model is shown, with the sources referred to instead of repeated."""

import json
import re
from collections.abc import Sequence
from typing import Any

from schemas.generation import AnswerProtocol, GenerationConfig
from schemas.job import SHOWN_METADATA, JobRequest, SourceContext
from schemas.prompt import Message, MessagesSnapshot, Prompt, Role, SourcePart, TextPart, hash_messages
from schemas.structured import asked_for
from tasks.answers.objects import embedded
from tasks.answers.render import resolve_format
from tasks.templates import Slots, fill, load
from tasks.text.sentences import sentence_spans

CHARACTERS_PER_TOKEN = 4
"""Estimate for context limits, of English text in the tokenizers of OpenAI and Anthropic; no tokenizer is loaded."""
_WIDE = re.compile("[\u2e80-\U0010ffff]")
"""Characters counted as a token each: CJK and beyond."""
_LEAST_TRIMMED = 200
"""Characters; a source of which less would be left is left out."""
_LONGEST_METADATA = 200

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
"""The canonical answer as a strict JSON Schema (all keys required, none added), as OpenAI's strict mode wants it."""


def answer_schema(config: GenerationConfig) -> dict[str, Any]:
    """The JSON Schema of a SEGMENTS answer; ``config.output_schema`` becomes the schema of its key ``data``."""
    asked = asked_for(config.output_schema)
    if asked is None:
        return ANSWER_SCHEMA
    data, definitions = embedded(asked, "data")
    return {
        **ANSWER_SCHEMA,
        "required": [*ANSWER_SCHEMA["required"], "data"],
        "properties": {**ANSWER_SCHEMA["properties"], "data": data},
        **definitions,
    }


def render(request: JobRequest, protocol: AnswerProtocol) -> Prompt:
    """Render a request for one answer protocol.

    Sources are shown in the order given, until ``max_context_tokens`` (estimated) is reached; the one that crosses
    the limit is cut at a sentence end, the rest is left out. ``snapshot.shown`` says which source has which number.

    Raises: ``InputError`` for a prompt name or version that does not exist.
    """
    config = request.config
    template = load(config.prompt_name or config.mode.value, config.prompt_version)
    shown = _fit(request.context, config.max_context_tokens * CHARACTERS_PER_TOKEN)
    slots = Slots()
    variables = _variables(request, protocol, shown, slots)
    history = slots.put(_History(request.conversation_history)) if request.conversation_history else ""
    messages: list[Message] = []
    for role, pieces in fill(template, slots, {**variables, "history": history}):
        earlier = [turn for piece in pieces if isinstance(piece, _History) for turn in piece.turns]
        messages.append(_message(Role(role), [piece for piece in pieces if not isinstance(piece, _History)]))
        messages.extend(_message(_history_role(speaker), [text]) for speaker, text in earlier)
    contents = [source.content for source in request.context]
    snapshot = MessagesSnapshot(
        messages=tuple(messages),
        shown=tuple(part.source_index for part in shown),
        protocol=protocol,
        sha256=hash_messages([(message.role, message.text(contents)) for message in messages]),
    )
    return Prompt(name=template.name, version=template.version, template_sha256=template.sha256, snapshot=snapshot)


class _History:
    """The turns before the question; put in as messages of their own."""

    def __init__(self, turns: Sequence[tuple[str, str]]) -> None:
        self.turns = turns


def _history_role(speaker: str) -> Role:
    """Only two speakers exist: nobody can speak as the system through the history."""
    return Role.ASSISTANT if speaker.strip().lower() in {"assistant", "ai", "bot", "model"} else Role.USER


def _variables(
    request: JobRequest, protocol: AnswerProtocol, shown: Sequence[SourcePart], slots: Slots
) -> dict[str, Any]:
    config = request.config
    texts = [
        request.query,
        request.system_instructions or "",
        config.role or "",
        *(t for _, t in request.conversation_history),
    ]
    texts.extend(request.context[part.source_index].content for part in shown)
    asked = asked_for(config.output_schema)
    schema = json.dumps(asked, ensure_ascii=False) if asked is not None else None
    return {
        "protocol": protocol.value,
        "format": resolve_format(request).value,
        "tag": _unused_tag(texts),
        "role": slots.put(config.role),
        "audience": slots.put(config.audience),
        "language": slots.put(config.language),
        "max_characters": config.max_response_length,
        "schema": slots.put(schema if protocol is AnswerProtocol.SEGMENTS else None),
        "instructions": slots.put(request.system_instructions),
        "query": slots.put(request.query),
        "sources": [
            {
                "number": number,
                "about": slots.put(_about(request.context[part.source_index])),
                "words": slots.put(part),
            }
            for number, part in enumerate(shown, start=1)
        ],
    }


def _unused_tag(texts: Sequence[str]) -> str:
    """A tag name that no text of the job uses, so that none can pretend to end a source."""
    tag = "source"
    attempt = 1
    while any(f"<{tag}" in text or f"</{tag}" in text for text in texts):
        attempt += 1
        tag = f"source{attempt}"
    return tag


def _about(source: SourceContext) -> str:
    """The shown metadata as attributes; what could end the tag is replaced."""
    about = ""
    for key in SHOWN_METADATA:
        value = source.metadata.get(key)
        if value is None or value == "":
            continue
        text = " > ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        text = " ".join(text.split())[:_LONGEST_METADATA]
        about += f' {key}="{text.translate(_ATTRIBUTE)}"'
    return about


_ATTRIBUTE = str.maketrans({'"': "'", "<": "(", ">": ")"})


def _message(role: Role, pieces: Sequence[str | SourcePart]) -> Message:
    """A message whose neighbouring texts are one part."""
    parts: list[TextPart | SourcePart] = []
    literal: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            literal.append(piece)
            continue
        if literal:
            parts.append(TextPart(text="".join(literal)))
            literal = []
        parts.append(piece)
    if literal:
        parts.append(TextPart(text="".join(literal)))
    return Message(role=role, parts=tuple(parts))


# ---- fitting the sources ---------------------------------------------------------------------------------------


def _fit(sources: Sequence[SourceContext], budget: int) -> list[SourcePart]:
    """The spans of the sources that fit into ``budget`` quarter tokens, in the order given."""
    shown: list[SourcePart] = []
    for index, source in enumerate(sources):
        cost = _quarter_tokens(source.content)
        if cost <= budget:
            shown.append(SourcePart(source_index=index, start=0, end=len(source.content)))
            budget -= cost
            continue
        end = _sentence_end(source.content, len(source.content) * budget // cost)
        if end >= _LEAST_TRIMMED or (not shown and end):
            shown.append(SourcePart(source_index=index, start=0, end=end))
        break
    return shown


def _quarter_tokens(text: str) -> int:
    if text.isascii():
        return len(text)
    return len(text) + (CHARACTERS_PER_TOKEN - 1) * len(_WIDE.findall(text))


def _sentence_end(text: str, limit: int) -> int:
    """The last sentence end at or before ``limit``; ``limit`` itself when the first sentence is longer."""
    # A little beyond the limit, so that a sentence that ends exactly there is seen whole.
    ends = [span.end for span in sentence_spans(text[: limit + 200]) if span.end <= limit]
    return ends[-1] if ends else limit
