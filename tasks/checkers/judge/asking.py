"""Choose the passages a judge is shown, and put its question together."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.generation import AnswerProtocol
from schemas.job import JobRequest
from schemas.prompt import Message, MessagesSnapshot, Prompt, Role, SourcePart, TextPart, hash_messages
from tasks.checkers.answer import CheckedClaim
from tasks.context.hostile import attribute, unused_tag
from tasks.templates import Slots, fill, load_inner
from tasks.text.sentences import Span, sentence_spans

TEMPLATE = "_judge"

NEIGHBOURS = 1
"""Sentences shown on either side of a window: the subject often stands just before it."""

MOST_PASSAGE_CHARACTERS = 24_000
"""All passages of one question together, some 6,000 tokens; what comes first counts first."""

MOST_ASKED = 60
"""Claims in one question; those beyond stay without a word of the judge."""

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
"""What a judge replies; strict enough for a provider that enforces schemas."""

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
class Passage:
    """A stretch ``[start, end)`` of a source, by the number the judge sees."""

    number: int
    source_index: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Asked:
    """One question to a judge.

    ``claims`` maps the number it sees (position + 1) to the claim's position among the checkable ones; ``whole`` says
    of each whether all of its windows are shown.
    """

    claims: tuple[int, ...]
    texts: tuple[str, ...]
    before: tuple[str, ...]
    passages: tuple[Passage, ...]
    whole: tuple[bool, ...] = ()


def ask(claims: Sequence[CheckedClaim], undecided: Sequence[int], windows: Sequence[Sequence[SourcePart]]) -> Asked:
    """Put the undecided claims and the best windows of the sources together.

    Windows that touch become one passage, so that no text is sent twice. The same claims and windows always give the
    same question.

    Args:
        claims: the checkable claims of the answer.
        undecided: positions of those to ask about.
        windows: for each position of ``undecided``, where the sources speak of it, best first, with their neighbours.
    """
    chosen = list(undecided)[:MOST_ASKED]
    shown = _fitting(windows[: len(chosen)])
    return Asked(
        claims=tuple(chosen),
        texts=tuple(text_of(claims[position]) for position in chosen),
        before=tuple(text_before(claims, position) for position in chosen),
        passages=tuple(
            Passage(number, source_index, span.start, span.end)
            for number, (source_index, span) in enumerate(_merged(list(shown)), start=1)
        ),
        whole=tuple(all(_place(window) in shown for window in of_claim) for of_claim in windows[: len(chosen)]),
    )


def text_of(claim: CheckedClaim) -> str:
    """A claim's words as a judge reads them."""
    return " ".join(claim.text.split())


def text_before(claims: Sequence[CheckedClaim], position: int) -> str:
    """The words of the claim before, where one can't be understood without."""
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


def _fitting(windows: Sequence[Sequence[SourcePart]]) -> dict[tuple[int, Span], None]:
    """As many windows as there is room for, each once."""
    shown: dict[tuple[int, Span], None] = {}
    room = MOST_PASSAGE_CHARACTERS
    for window in _in_turn(windows):
        place = _place(window)
        if place in shown:
            continue
        room -= window.end - window.start
        if room < 0 and shown:
            break
        shown[place] = None
    return shown


def _place(window: SourcePart) -> tuple[int, Span]:
    return window.source_index, Span(window.start, window.end)


def _merged(spans: Sequence[tuple[int, Span]]) -> list[tuple[int, Span]]:
    merged: list[tuple[int, Span]] = []
    for source_index, span in sorted(spans):
        if merged and merged[-1][0] == source_index and span.start <= merged[-1][1].end:
            last = merged[-1][1]
            merged[-1] = (source_index, Span(last.start, max(last.end, span.end)))
        else:
            merged.append((source_index, span))
    return merged


# ---- the prompt ------------------------------------------------------------------------------------------------


def render_judge(request: JobRequest, asked: Asked, version: str | None = None) -> Prompt:
    """The messages of a question; sources are referred to, as in every prompt, and stand in tags they cannot close."""
    template = load_inner(TEMPLATE, version)
    slots = Slots()
    contents = [source.content for source in request.context]
    shown = [contents[passage.source_index][passage.start : passage.end] for passage in asked.passages]
    variables = {
        "tag": unused_tag("passage", [*shown, *asked.texts, *asked.before]),
        "passages": [
            {
                "number": passage.number,
                "about": slots.put(title_of(request, passage.source_index)),
                "words": slots.put(SourcePart(source_index=passage.source_index, start=passage.start, end=passage.end)),
            }
            for passage in asked.passages
        ],
        "claims": [
            {"number": number, "words": slots.put(text), "before": slots.put(before)}
            for number, (text, before) in enumerate(zip(asked.texts, asked.before, strict=True), start=1)
        ],
    }
    messages = tuple(
        Message(role=Role(role), parts=tuple(_parts(pieces))) for role, pieces in fill(template, slots, variables)
    )
    snapshot = MessagesSnapshot(
        messages=messages,
        shown=tuple(passage.source_index for passage in asked.passages),
        protocol=AnswerProtocol.SEGMENTS,
        sha256=hash_messages([(message.role, message.text(contents)) for message in messages]),
    )
    return Prompt(
        name=template.name,
        version=template.version,
        template_sha256=template.sha256,
        snapshot=snapshot,
        reply_schema=REPLY_SCHEMA,
    )


def _parts(pieces: Sequence[str | SourcePart]) -> Iterable[TextPart | SourcePart]:
    text = ""
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
            continue
        if text:
            yield TextPart(text=text)
            text = ""
        yield piece
    if text:
        yield TextPart(text=text)


def title_of(request: JobRequest, source_index: int) -> str:
    """What a judge is told of where a passage comes from."""
    title = request.context[source_index].metadata.get("title")
    if not isinstance(title, str) or not title.strip():
        return ""
    return f' of="{attribute(title)}"'
