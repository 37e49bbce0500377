"""Turn a completion into an answer: read its canonical form, render it, and locate every citation in its source."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from schemas.answer import CanonicalAnswer, Citation, Segment
from schemas.completion import Completion, FinishReason
from schemas.generation import OutputFormat
from schemas.job import JobRequest
from schemas.prompt import Flag, LeftOutReason, Prompt, SourcePart
from tasks.answers.citing import locate_citations
from tasks.answers.markers import Marker
from tasks.answers.objects import completed, violations
from tasks.answers.reading import UNSTORABLE, Read, read_completion, read_given
from tasks.answers.render import Extras, Rendered, render, resolve_format, strip_markers
from tasks.answers.styles import label, name_of
from tasks.answers.validity import format_problem
from tasks.text.sentences import Span, sentence_spans, words
from tasks.text.statements import Statement


@dataclass(frozen=True, slots=True)
class Processed:
    """An answer ready to be checked.

    Attributes:
        response: the rendered text; for a check-only job the given one, unchanged.
        canonical: what it was rendered from; citations of sources that do not exist are left out.
        structured: the object asked for by ``output_schema``, or the response itself when its format is JSON.
        parsed: False when the completion was not of its protocol or a part of it was lost.
        violations: where the object breaks ``output_schema``, in words.
        abstained: the model itself says that the sources do not answer, and cites nothing.
        statements: the response's sentences in order, with the citations of each.
        markers: every citation marker in the response, in order, those that name no source included.
        shown: the source index of each source number - 1, as the canonical answer counts.
        segments: where each canonical segment stands in the response.
        format_problem: why the response is not valid as text of its format; None if it is, or was given.
        rendered: the response with the places of everything in it.
    """

    response: str
    citations: tuple[Citation, ...]
    canonical: CanonicalAnswer
    structured: dict[str, Any] | None
    parsed: bool
    abstained: bool
    warnings: tuple[str, ...]
    output_format: OutputFormat
    statements: tuple[Statement, ...]
    markers: tuple[Span, ...]
    shown: tuple[int, ...] = ()
    segments: tuple[Span, ...] = ()
    violations: tuple[str, ...] = ()
    format_problem: str | None = None
    rendered: Rendered | None = None


def postprocess(request: JobRequest, prompt: Prompt | None, completion: Completion | None) -> Processed:
    """Make the answer of a completion, or of the response given with a check-only job.

    Args:
        request: the job's request.
        prompt: what the model was shown; None for a check-only job (all sources count as shown, in order).
        completion: None for a check-only job.
    """
    shown = prompt.snapshot.shown if prompt else tuple(range(len(request.context)))
    if completion is None:
        read = read_given(request.response or "", [name_of(request.context[index]) for index in shown])
    else:
        read = read_completion(completion, len(shown), [request.context[index].content for index in shown])
    return _assemble(request, read, shown, list(_notes(request, prompt, completion)))


# ---- putting it together ---------------------------------------------------------------------------------------


def rerender(request: JobRequest, answer: CanonicalAnswer, shown: tuple[int, ...], extras: Extras) -> Processed:
    """Render an answer anew, in the style and format that the request's config names now.

    Args:
        request: the job's request.
        answer: as it was stored; with its request, all that the first rendering knew.
        shown: the source index of each source number - 1.
        extras: what is written after the answer.
    """
    return _assemble(request, Read(answer), shown, (), extras)


def _assemble(
    request: JobRequest, read: Read, shown: tuple[int, ...], notes: Sequence[str], extras: Extras | None = None
) -> Processed:
    """Render what was read (a given answer is kept as it stands) and resolve its citations."""
    answer, output_format = read.answer, resolve_format(request)
    rendered = read.rendered or render(
        answer,
        request.config.citation_style,
        output_format,
        [label(request.context[index], number) for number, index in enumerate(shown, start=1)],
        show_markers=request.config.include_citations,
        extras=extras,
    )
    unknown = {Span(marker.start, marker.end) for marker in read.unknown}
    markers = sorted({Span(mark.start, mark.end) for mark in rendered.marks} | unknown)
    sentences = _sentences(rendered, request.config.language)
    citations, missing = locate_citations(request, answer, rendered, shown, sentences=sentences, markers=markers)
    broken = () if request.check_only else violations(request.config, read.data)
    structured = _structured(request, read, rendered.text, output_format, citations)
    abstained = not answer.sufficient and not citations
    cites = bool(markers) or not request.check_only
    measured = () if abstained else _measured(request, rendered.text, citations, cites=cites)
    if not answer.sufficient and citations:
        notes = (*notes, "by its own word the answer covers only a part of the question")
    return Processed(
        response=rendered.text,
        citations=tuple(citations),
        canonical=answer,
        structured=structured,
        parsed=read.parsed,
        abstained=abstained,
        warnings=tuple(dict.fromkeys((*read.warnings, *missing, *notes, *measured, *broken))),
        output_format=output_format,
        statements=tuple(_statements(sentences, citations, read.unknown, len(shown))),
        markers=tuple(markers),
        shown=shown,
        segments=rendered.segments,
        violations=broken,
        format_problem=None if request.check_only else _format_problem(rendered, output_format),
        rendered=rendered,
    )


def _format_problem(rendered: Rendered, output_format: OutputFormat) -> str | None:
    body = rendered.text[: rendered.body]
    if output_format is OutputFormat.PLAIN:
        # A title in a marker is not the answer's own text.
        body = strip_markers(body, [Span(mark.start, mark.end) for mark in rendered.marks])
    return format_problem(body, output_format)


def _sentences(rendered: Rendered, language: str | None) -> list[tuple[Span, int]]:
    """The response's sentences, each with the position up to which markers belong to it."""
    code = language.lower()[:2] if language and (len(language) == 2 or language[2:3] in "-_") else "en"  # noqa: PLR2004
    sentences: list[tuple[Span, int]] = []
    for piece in rendered.pieces:
        spans = [
            Span(a + piece.start, b + piece.start)
            for a, b in sentence_spans(rendered.text[piece.start : piece.end], code)
        ]
        reaches = [span.start for span in spans[1:]] + [piece.reach]
        sentences.extend(zip(spans, reaches, strict=True) if spans else ())
    return sentences


def _statements(
    sentences: Sequence[tuple[Span, int]], citations: Sequence[Citation], unknown: Sequence[Marker], known: int
) -> Iterator[Statement]:
    position = 0
    for span, reach in sentences:
        mine = []
        while position < len(citations) and (
            citations[position].start_pos < reach or citations[position].end_pos <= reach
        ):
            mine.append(position)
            position += 1
        numbers = tuple(n for m in unknown if span.start <= m.start < reach for n in m.numbers if not 1 <= n <= known)
        yield Statement(span.start, span.end, tuple(mine), numbers)


# ---- what a person should know ---------------------------------------------------------------------------------


def _measured(request: JobRequest, text: str, citations: Sequence[Citation], *, cites: bool) -> Iterator[str]:
    """What the finished text falls short of; a given one that cites nothing was not asked to."""
    config = request.config
    if not text.strip():
        yield "the answer is empty"
    elif cites and config.include_citations and len(citations) < config.min_citations:
        yield f"{len(citations)} citation(s), at least {config.min_citations} wanted"
    if not request.check_only and config.max_response_length is not None and len(text) > config.max_response_length:
        yield f"the answer has {len(text)} characters, at most {config.max_response_length} wanted"


def _notes(request: JobRequest, prompt: Prompt | None, completion: Completion | None) -> Iterator[str]:
    """What happened on the way to the answer."""
    if prompt is not None:
        yield from _left_out(request, prompt)
    if completion is not None:
        if before := completion.snapshot.fallback_from:
            yield f"answered by the fallback {completion.snapshot.provider} after {', '.join(before)}"
        if completion.finish_reason is FinishReason.LENGTH:
            yield "the answer was cut off at max_tokens"
        if completion.sanitised or UNSTORABLE.search(completion.text):
            yield "characters that cannot be stored were replaced"


def _left_out(request: JobRequest, prompt: Prompt) -> Iterator[str]:
    snapshot = prompt.snapshot
    given, shown = len(request.context), len(snapshot.shown)
    repeated = [one for one in snapshot.left_out if one.reason is not LeftOutReason.BUDGET]
    if shown + len(repeated) < given:
        missing = given - shown - len(repeated)
        yield f"{missing} of {given} sources were left out: max_context_tokens is {request.config.max_context_tokens}"
    if repeated:
        told = ", ".join(f"context[{one.source_index}] (repeats context[{one.of}])" for one in repeated)
        yield f"left out, because another source says the same: {told}"
    ends: dict[int, int] = {}
    for message in snapshot.messages:
        ends.update((part.source_index, part.end) for part in message.parts if isinstance(part, SourcePart))
    for index, end in ends.items():
        if end < len(request.context[index].content):
            yield f"context[{index}] was shown only in part: max_context_tokens"
    kinds: dict[int, list[str]] = {}
    for flag in snapshot.flags:
        if flag.kind is not Flag.MARKER:
            kinds.setdefault(flag.source_index, []).append(flag.kind.value)
    for index, found in kinds.items():
        yield f"context[{index}] holds text that may be meant to steer the model: {', '.join(found)}"


def _structured(
    request: JobRequest, read: Read, text: str, output_format: OutputFormat, citations: Sequence[Citation]
) -> dict[str, Any] | None:
    """The object that goes with the answer; one that breaks its schema was paid for, too."""
    if request.check_only:
        return None
    if request.config.output_schema is not None:
        return completed(request.config, read.data, text, citations)
    if output_format is OutputFormat.JSON:
        parsed: dict[str, Any] = orjson.loads(text)
        return parsed
    return None


# ---- taking statements out -------------------------------------------------------------------------------------


def redact(request: JobRequest, processed: Processed, spans: Sequence[tuple[int, int]]) -> Processed:
    """Take sentences out of an answer; what is left is rendered anew, so that ranks, numbering and offsets fit again.

    Args:
        request: the job's request.
        processed: its answer.
        spans: the sentences to take out, as ``[start, end)`` of its statements.
    """
    gone = set(spans)
    out = [(statement.start, statement.end) in gone for statement in processed.statements]
    if request.check_only:
        read = read_given(_cut_out(processed, out), [name_of(source) for source in request.context])
    else:
        segments = [
            kept
            for segment, place in zip(processed.canonical.segments, processed.segments, strict=True)
            if (kept := _reduced(segment, place, processed, out)) is not None
        ]
        answer = CanonicalAnswer(segments=tuple(segments), sufficient=processed.canonical.sufficient)
        return rendered_anew(request, processed, answer)
    return replace(_assemble(request, read, processed.shown, processed.warnings), abstained=processed.abstained)


def rendered_anew(request: JobRequest, processed: Processed, answer: CanonicalAnswer) -> Processed:
    """A model's answer with another canonical form; its object and what was said of it stay."""
    data = processed.structured if request.config.output_schema is not None else None
    shorter = _assemble(request, Read(answer, processed.parsed, data), processed.shown, processed.warnings)
    return replace(shorter, abstained=processed.abstained)


def _cut_out(processed: Processed, out: Sequence[bool]) -> str:
    """The response without some of its statements, each with what stands between it and the next."""
    kept = []
    position = 0
    starts = [statement.start for statement in processed.statements[1:]]
    for statement, following, is_out in zip(processed.statements, [*starts, len(processed.response)], out, strict=True):
        if is_out:
            kept.append(processed.response[position : statement.start])
            position = following
    return "".join([*kept, processed.response[position:]]).rstrip()


def _reduced(segment: Segment, place: Span, processed: Processed, out: Sequence[bool]) -> Segment | None:
    """A segment without the sentences taken out; None when none is left."""
    mine = [
        (statement, is_out)
        for statement, is_out in zip(processed.statements, out, strict=True)
        if statement.start < place.end and place.start < statement.end
    ]
    if not any(is_out for _, is_out in mine):
        return segment
    if all(is_out for _, is_out in mine):
        return None
    unwanted = [words(processed.response[statement.start : statement.end]) for statement, is_out in mine if is_out]
    kept = [
        segment.text[span.start : span.end]
        for span in sentence_spans(segment.text)
        if not _is_within(words(segment.text[span.start : span.end]), unwanted)
    ]
    before = segment.text[: len(segment.text) - len(segment.text.lstrip())]
    return Segment(text=before + " ".join(kept), citations=segment.citations) if kept else None


def _is_within(said: list[str], unwanted: Sequence[list[str]]) -> bool:
    """Whether a sentence is one of those taken out; in the response a marker's number may stand among its words."""
    return any(set(said) <= set(other) for other in unwanted)
