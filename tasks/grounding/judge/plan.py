"""Chooses the claims a judge is asked about and the passages it is shown, and renders both as its prompt."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.generation import AnswerProtocol
from schemas.job import JobRequest
from schemas.model_call import MessagesSnapshot, Prompt, SourcePart, hash_messages
from tasks.grounding.checkers import CheckedClaim
from tasks.prompting.messages import source_attributes
from tasks.prompting.sources.injection import Slots, as_message, fill, unused_tag
from tasks.prompting.templates import PromptTemplate, load_inner
from tasks.text.sentences import Span, sentence_spans

NEIGHBOURS = 1
"""Sentences shown on either side of a window: the subject is often just before it."""

MOST_PASSAGE_CHARACTERS = 24_000
"""All passages of one request together, some 6,000 tokens; the first claims come first."""

MOST_CLAIMS = 60
"""Claims in one request; those beyond stay without a verdict of the judge."""

MOST_DECIDED = 400
"""The same for a judge that gives probabilities: it writes nothing, so more claims make no longer reply. As many as the
one such API takes in a call (openai 3.54: "Ask 1-400 questions")."""

MOST_DECIDED_CHARACTERS = 96_000
"""Its passages together, some 24,000 tokens: room for the places of as many claims."""

_LEANS_BACK = re.compile(
    r"\W*(?:it|its|they|their|them|this|that|these|those|he|she|his|her|such|both|there"
    r"|er|sie|es|sein\w*|ihr\w*|dies\w*|das|beide"
    r"|él|ella|ellos|ellas|esto?s?|esta?s?|ese|esa|su|sus|ello"
    r"|il|elle|ils|elles|ce|cela|ceci|cette|ces|son|sa|ses|leur)\b"
    r"|\W*(?:它|他|她|这|那|其|该|هذا|هذه|ذلك|تلك|هو|هي|هم)",
    re.IGNORECASE,
)
"""A sentence that begins so needs the one before it to be understood."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Most claims of one request, and most characters of its passages together."""

    most_claims: int
    most_characters: int


WRITTEN_VERDICTS = Bounds(MOST_CLAIMS, MOST_PASSAGE_CHARACTERS)
PROBABILITIES = Bounds(MOST_DECIDED, MOST_DECIDED_CHARACTERS)


@dataclass(frozen=True, slots=True)
class Selection:
    """The claims and passages of one request to a judge.

    ``claims`` maps the number it sees (position + 1) to the claim's position among the checkable ones; ``passages`` are
    numbered alike; ``places`` are the best window of each claim, within the passages; ``whole`` is true if all of its windows are.
    """

    claims: tuple[int, ...]
    texts: tuple[str, ...]
    before: tuple[str, ...]
    unaccounted: tuple[str, ...]
    places: tuple[SourcePart, ...]
    passages: tuple[SourcePart, ...]
    whole: tuple[bool, ...]


def ask(
    claims: Sequence[CheckedClaim],
    undecided: Sequence[int],
    windows: Sequence[Sequence[SourcePart]],
    wide: Sequence[Sequence[SourcePart]],
    bounds: Bounds = WRITTEN_VERDICTS,
) -> Selection:
    """Puts the undecided claims and the best windows of the sources together.

    Windows that touch become one passage, so that no text is sent twice. A claim for whose best window there is no room is not asked about: the answer would say nothing of it.
    The same claims and windows always give the same selection.

    Args:
        claims: the checkable claims of the answer.
        undecided: positions of the claims to ask about.
        windows: for each position of ``undecided`` its windows of the sources, best first and at least one.
        wide: for each of them the parts of the sources in the prompt: its windows, maybe with their neighbours.
        bounds: most claims and characters.
    """
    parts = _fitting(wide[: bounds.most_claims], bounds.most_characters)
    passages = _merged(parts)
    chosen = [
        (position, of_claim[0], parts.issuperset(of_prompt))
        for position, of_claim, of_prompt in zip(undecided, windows[: bounds.most_claims], wide, strict=False)
        if _within(of_claim[0], passages)
    ]
    return Selection(
        claims=tuple(position for position, _, _ in chosen),
        texts=tuple(text_of(claims[position]) for position, _, _ in chosen),
        before=tuple(text_before(claims, position) for position, _, _ in chosen),
        unaccounted=tuple(", ".join(claims[position].unaccounted) for position, _, _ in chosen),
        places=tuple(place for _, place, _ in chosen),
        passages=tuple(passages),
        whole=tuple(whole for _, _, whole in chosen),
    )


def text_of(claim: CheckedClaim) -> str:
    """A claim's words as a judge reads them."""
    return " ".join(claim.text.split())


def _within(place: SourcePart, passages: Sequence[SourcePart]) -> bool:
    return any(
        passage.source_index == place.source_index and passage.start <= place.start and place.end <= passage.end
        for passage in passages
    )


def text_before(claims: Sequence[CheckedClaim], position: int) -> str:
    """The words of the claim before; empty where a claim can be understood without."""
    if position == 0 or not _LEANS_BACK.match(claims[position].text):
        return ""
    return text_of(claims[position - 1])


def _in_turn(windows: Sequence[Sequence[SourcePart]]) -> Iterable[SourcePart]:
    """The best window of every claim, then the second best of every claim, and so on."""
    for rank in range(max(map(len, windows), default=0)):
        for of_claim in windows:
            if rank < len(of_claim):
                yield of_claim[rank]


def widened(request: JobRequest, windows: Sequence[Sequence[SourcePart]]) -> list[list[SourcePart]]:
    """The windows of each claim with a neighbouring sentence on each side."""
    sentences: dict[int, list[Span]] = {}
    return [[_wide(request, window, sentences) for window in of_claim] for of_claim in windows]


def _wide(request: JobRequest, window: SourcePart, sentences: dict[int, list[Span]]) -> SourcePart:
    source = window.source_index
    if source not in sentences:
        sentences[source] = list(sentence_spans(request.context[source].content))
    spans = sentences[source]
    touched = [at for at, span in enumerate(spans) if span.start < window.end and window.start < span.end]
    if not touched:
        return window
    first, last = max(0, touched[0] - NEIGHBOURS), min(len(spans) - 1, touched[-1] + NEIGHBOURS)
    start, end = min(spans[first].start, window.start), max(spans[last].end, window.end)
    return SourcePart(source_index=source, start=start, end=end)


def _fitting(windows: Sequence[Sequence[SourcePart]], room: int) -> set[SourcePart]:
    """As many windows as there is room for."""
    parts: set[SourcePart] = set()
    for window in _in_turn(windows):
        if window in parts:
            continue
        room -= window.end - window.start
        if room < 0 and parts:
            break
        parts.add(window)
    return parts


def _merged(parts: Iterable[SourcePart]) -> list[SourcePart]:
    merged: list[SourcePart] = []
    for part in sorted(parts, key=lambda part: (part.source_index, part.start)):
        if merged and merged[-1].source_index == part.source_index and part.start <= merged[-1].end:
            merged[-1] = merged[-1].model_copy(update={"end": max(merged[-1].end, part.end)})
        else:
            merged.append(part)
    return merged


# ---- the prompt -------------------------------------------------------------------------------------------------------

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


def render_judge(request: JobRequest, selection: Selection) -> Prompt:
    """Renders the messages for a judge that quotes; sources are references, as in every prompt, in tags they cannot close."""
    prompt = _rendered(load_inner(WRITTEN_TEMPLATE), request, selection)
    return prompt.model_copy(update={"reply_schema": REPLY_SCHEMA})


def render_decision(request: JobRequest, selection: Selection) -> Prompt:
    """Renders the messages for a judge that gives probabilities: passages as messages, and a question per claim.

    A claim has tags of its own that it cannot close, because a question is an instruction to such a model.
    """
    return _rendered(load_inner(DECIDED_TEMPLATE), request, selection)


def _rendered(template: PromptTemplate, request: JobRequest, selection: Selection) -> Prompt:
    slots = Slots()
    contents = [source.content for source in request.context]
    passages = [contents[passage.source_index][passage.start : passage.end] for passage in selection.passages]
    texts = [*passages, *selection.texts, *selection.before, *selection.unaccounted]
    variables = {
        "tag": unused_tag("passage", texts),
        "said": unused_tag("statement", texts),
        "passages": [
            {
                "number": number,
                "about": slots.add(source_attributes(request.context[passage.source_index])),
                "words": slots.add(passage),
            }
            for number, passage in enumerate(selection.passages, start=1)
        ],
        "claims": [
            {
                "number": number,
                "words": slots.add(text),
                "before": slots.add(before),
                "unaccounted": slots.add(f" {{{unaccounted}}}" if unaccounted else ""),
            }
            for number, (text, before, unaccounted) in enumerate(
                zip(selection.texts, selection.before, selection.unaccounted, strict=True), start=1
            )
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
