"""Renders the prompt of a judge: numbered claims, or one question per claim."""

from typing import Any

from schemas.generation import AnswerProtocol
from schemas.job import JobRequest
from schemas.prompt import MessagesSnapshot, Prompt, SourcePart, hash_messages
from tasks.grounding.judge.plan import Selection
from tasks.prompting.sources.injection import attribute, unused_tag
from tasks.prompting.templates import PromptTemplate, Slots, as_message, fill, load_inner

WRITTEN_TEMPLATE = "_judge"
DECIDED_TEMPLATE = "_decide"

_QUESTION = "question"
"""Marker of a question in a template, in the place of a role."""

REPLY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "verdicts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "claim": {"type": "integer"},
                    "verdict": {"type": "string", "enum": ["supported", "contradicted", "partial", "unsupported"]},
                    "passage": {"type": "integer"},
                    "quote": {"type": "string"},
                },
                "required": ["claim", "verdict", "passage", "quote"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["verdicts"],
    "additionalProperties": False,
}
"""Schema of a judge's reply; strict enough for a provider that enforces schemas."""


def render_judge(request: JobRequest, selection: Selection, version: str | None = None) -> Prompt:
    """Renders the messages for a judge that quotes; sources are references, as in every prompt, in tags they cannot close."""
    prompt = _rendered(load_inner(WRITTEN_TEMPLATE, version), request, selection)
    return prompt.model_copy(update={"reply_schema": REPLY_SCHEMA})


def render_decision(request: JobRequest, selection: Selection, version: str | None = None) -> Prompt:
    """Renders the messages for a judge that gives probabilities: passages as messages, and a question per claim.

    A claim stands in tags of its own that it cannot close, because a question is an instruction to such a model.
    """
    return _rendered(load_inner(DECIDED_TEMPLATE, version), request, selection)


def _rendered(template: PromptTemplate, request: JobRequest, selection: Selection) -> Prompt:
    slots = Slots()
    contents = [source.content for source in request.context]
    passages = [contents[passage.source_index][passage.start : passage.end] for passage in selection.passages]
    texts = [*passages, *selection.texts, *selection.before]
    variables = {
        "tag": unused_tag("passage", texts),
        "said": unused_tag("statement", texts),
        "passages": [
            {
                "number": passage.number,
                "about": slots.add(title_of(request, passage.source_index)),
                "words": slots.add(SourcePart(source_index=passage.source_index, start=passage.start, end=passage.end)),
            }
            for passage in selection.passages
        ],
        "claims": [
            {"number": number, "words": slots.add(text), "before": slots.add(before)}
            for number, (text, before) in enumerate(zip(selection.texts, selection.before, strict=True), start=1)
        ],
    }
    filled = fill(template, slots, variables)
    messages = tuple(as_message(role, pieces) for role, pieces in filled if role != _QUESTION)
    questions = tuple("".join(pieces) for role, pieces in filled if role == _QUESTION)
    snapshot = MessagesSnapshot(
        messages=messages,
        questions=questions,
        shown=tuple(passage.source_index for passage in selection.passages),
        protocol=AnswerProtocol.SEGMENTS,
        sha256=hash_messages([(message.role, message.text(contents)) for message in messages], questions),
    )
    return Prompt(name=template.name, version=template.version, template_sha256=template.sha256, snapshot=snapshot)


def title_of(request: JobRequest, source_index: int) -> str:
    """Attribute with the title of a passage's source; empty without a title."""
    title = request.context[source_index].metadata.get("title")
    if not isinstance(title, str) or not title.strip():
        return ""
    return f' of="{attribute(title)}"'
