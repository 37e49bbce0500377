"""Turns a completion into an answer: parses the canonical form, renders it and locates every citation in its source."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from schemas.answer import CanonicalAnswer, Citation, Segment
from schemas.generation import OutputFormat
from schemas.job import JobRequest
from schemas.model_call import Completion, FinishReason, Flag, LeftOutReason, Prompt, SourcePart
from tasks.answers.active_content import MAY_BE_ACTIVE, REMOVED, neutralise
from tasks.answers.citations import locate_citations
from tasks.answers.formats import format_problem, resolve_format
from tasks.answers.objects import complete_object, violations
from tasks.answers.parse import UNSTORABLE, ParsedAnswer, merge_repeated, parse_completion, parse_supplied
from tasks.answers.render import Extras, render
from tasks.answers.rendered import Rendered, label, name_of, strip_markers
from tasks.text.clauses import MAY_JOIN, MAY_LEAD_IN, clause_spans
from tasks.text.sentences import Span, sentence_spans, words
from tasks.text.statements import Statement


@dataclass(frozen=True, slots=True)
class Processed:
    """An answer ready to be checked.

    Attributes:
        response: the rendered text; for a check-only job the supplied text, unchanged.
        canonical: the canonical form of the response, without citations of sources that do not exist.
        structured: the object for ``output_schema``, or the response itself if its format is JSON.
        parsed: False if the completion did not follow its protocol or a part of it was lost.
        violations: violations of ``output_schema`` by the object, in words.
        abstained: the model itself says that the sources do not answer, and cites nothing.
        statements: the clauses of the response's sentences in order, with the citations of each.
        markers: every citation marker in the response, in order, including markers of sources that do not exist.
        shown_sources: the source index of each source number - 1 in the canonical answer.
        segments: the span of each canonical segment in the response.
        format_problem: the reason that the response is not valid in its format; None if it is valid, or supplied.
        rendered: the response with the positions of its parts.
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
    shown_sources: tuple[int, ...] = ()
    segments: tuple[Span, ...] = ()
    violations: tuple[str, ...] = ()
    format_problem: str | None = None
    rendered: Rendered | None = None

    @property
    def empty(self) -> bool:
        """True for an answer without text."""
        return _is_empty(self.canonical)


_WORD = re.compile(r"\w")


def _is_empty(answer: CanonicalAnswer) -> bool:
    return not any(_WORD.search(segment.text) for segment in answer.segments)


def postprocess(request: JobRequest, prompt: Prompt | None, completion: Completion | None) -> Processed:
    """Builds the answer from a completion, or from the supplied response of a check-only job.

    Args:
        request: the job's request.
        prompt: the prompt of the call; None for a check-only job (it counts all sources, in order).
        completion: None for a check-only job.
    """
    shown_sources = prompt.snapshot.shown if prompt else tuple(range(len(request.context)))
    if completion is None:
        read = parse_supplied(request.response or "", [name_of(request.context[index]) for index in shown_sources])
    else:
        read = parse_completion(
            completion, len(shown_sources), [request.context[index].content for index in shown_sources]
        )
        read = _cleaned(request, read)
    return _assemble(request, read, shown_sources, list(_notes(request, prompt, completion)))


def _cleaned(request: JobRequest, read: ParsedAnswer) -> ParsedAnswer:
    """The parsed answer without active content and repetitions."""
    answer, warnings = read.answer, read.warnings
    text = "".join(segment.text for segment in answer.segments)
    if not request.config.allow_html and MAY_BE_ACTIVE.search(text):
        answer, changed = neutralise(answer)
        warnings = (*warnings, REMOVED) if changed else warnings
    output_format = request.fixed_format or resolve_format(request)
    merged = merge_repeated(answer, steps=output_format is OutputFormat.STEPS)
    if repeated := len(answer.segments) - len(merged.segments):
        warnings = (*warnings, f"{repeated} repeated part(s) of the answer were merged")
    return replace(read, answer=merged, warnings=warnings)


# ---- assembly --------------------------------------------------------------------------------------------------


def rerender(request: JobRequest, answer: CanonicalAnswer, shown_sources: tuple[int, ...], extras: Extras) -> Processed:
    """Renders a stored answer again in the style and format of the request's config.

    Args:
        request: the job's request, possibly with another style or format.
        answer: the stored canonical answer.
        shown_sources: the source index of each source number - 1.
        extras: the parts after the answer.
    """
    return _assemble(request, ParsedAnswer(answer), shown_sources, (), extras)


def _assemble(
    request: JobRequest,
    read: ParsedAnswer,
    shown_sources: tuple[int, ...],
    notes: Sequence[str],
    extras: Extras | None = None,
) -> Processed:
    """Renders the parsed answer (a supplied answer stays unchanged) and locates its citations."""
    answer, config = read.answer, request.config
    output_format = request.fixed_format or resolve_format(request)
    rendered = read.rendered or _render(request, answer, output_format, shown_sources, extras)
    markers = sorted(
        {Span(mark.start, mark.end) for mark in rendered.marks}
        | {Span(marker.start, marker.end) for marker in read.unknown}
    )
    unknown = {m.start: [n for n in m.numbers if not 1 <= n <= len(shown_sources)] for m in read.unknown}
    sentences = _sentences(rendered, config.language)
    citations, missing = locate_citations(
        request, answer, rendered, shown_sources, sentences=sentences, markers=markers
    )
    broken = () if request.check_only or config.output_schema is None else violations(config, read.data)
    structured = _object_of(request, read, rendered.text, output_format, citations)
    abstained = not answer.sufficient and not citations
    cites = bool(markers) or not request.check_only
    shortfalls = (
        () if abstained else _shortfalls(request, rendered.text, citations, cites=cites, empty=_is_empty(answer))
    )
    if not answer.sufficient and citations:
        notes = (*notes, "the model says that the answer covers only a part of the question")
    return Processed(
        response=rendered.text,
        citations=tuple(citations),
        canonical=answer,
        structured=structured,
        parsed=read.parsed,
        abstained=abstained,
        warnings=tuple(dict.fromkeys((*read.warnings, *missing, *notes, *shortfalls, *broken))),
        output_format=output_format,
        statements=tuple(_statements(rendered.text, sentences, citations, markers, unknown)),
        markers=tuple(markers),
        shown_sources=shown_sources,
        segments=rendered.segments,
        violations=broken,
        format_problem=None if request.check_only else _format_problem(rendered, output_format),
        rendered=rendered,
    )


def _render(
    request: JobRequest,
    answer: CanonicalAnswer,
    output_format: OutputFormat,
    shown_sources: tuple[int, ...],
    extras: Extras | None,
) -> Rendered:
    labels = [label(request.context[index], number) for number, index in enumerate(shown_sources, start=1)]
    config = request.config
    return render(
        answer,
        config.citation_style,
        output_format,
        labels,
        show_markers=config.include_citations,
        extras=extras,
        allow_html=config.allow_html,
    )


_BREAKABLE = re.compile(r"\||```|~~~")
"""Tables and blocks of code; all other text is valid Markdown."""


def _format_problem(rendered: Rendered, output_format: OutputFormat) -> str | None:
    body = rendered.text[: rendered.body]
    if output_format is OutputFormat.MARKDOWN and not _BREAKABLE.search(body):
        return None
    if output_format is OutputFormat.PLAIN:
        # A title in a marker is no part of the answer's own text.
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
    text: str,
    sentences: Sequence[tuple[Span, int]],
    citations: Sequence[Citation],
    markers: Sequence[Span],
    unknown: Mapping[int, Sequence[int]],
) -> Iterator[Statement]:
    """The clauses of the sentences, each with its citations; ``unknown`` are the numbers without a source, by place."""
    bare = strip_markers(text, markers)
    position = 0
    for number, (span, reach) in enumerate(sentences):
        sentence = bare[span.start : span.end]
        whole = not MAY_LEAD_IN.search(sentence) and not MAY_JOIN(sentence)
        clauses = [Span(0, len(sentence))] if whole else clause_spans(sentence)
        spans = [_trimmed(text, span.start + start, span.start + end) for start, end in clauses[:-1]]
        spans.append(Span(span.start + clauses[-1].start, span.end))
        cited: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        for clause, end in zip(spans, [*(clause.start for clause in spans[1:]), reach], strict=True):
            positions = []
            while position < len(citations) and (
                citations[position].start_pos < end or citations[position].end_pos <= end
            ):
                positions.append(position)
                position += 1
            numbers = (n for place, listed in unknown.items() if clause.start <= place < end for n in listed)
            cited.append((tuple(positions), tuple(numbers)))
        for at, clause in enumerate(spans):
            # A clause without a citation shares that of the next one in its sentence, the last one that of the one before.
            near = next((pair for pair in [*cited[at:], *reversed(cited[:at])] if any(pair)), ((), ()))
            yield Statement(clause.start, clause.end, *near, sentence=number)


_AROUND_CLAUSE = " \t\r\n,;，；،؛–—"  # noqa: RUF001 - marks of other scripts


def _trimmed(text: str, start: int, end: int) -> Span:
    """A clause without the marks between it and the next one."""
    return Span(start, start + len(text[start:end].rstrip(_AROUND_CLAUSE)))


# ---- warnings --------------------------------------------------------------------------------------------------


def _shortfalls(
    request: JobRequest, text: str, citations: Sequence[Citation], *, cites: bool, empty: bool
) -> Iterator[str]:
    """Warnings about the length and the citations of the text; a supplied text without citations needs none."""
    config = request.config
    if empty:
        yield "the answer is empty"
    elif cites and config.include_citations and len(citations) < config.min_citations:
        yield f"{len(citations)} citation(s), at least {config.min_citations} required"
    if not request.check_only and config.max_response_length is not None and len(text) > config.max_response_length:
        yield f"the answer has {len(text)} characters, at most {config.max_response_length} allowed"


def _notes(request: JobRequest, prompt: Prompt | None, completion: Completion | None) -> Iterator[str]:
    """Warnings from the call: omitted sources, a fallback, a truncated answer, replaced characters."""
    if prompt is not None:
        yield from _omissions(request, prompt)
    if completion is not None:
        if before := completion.snapshot.fallback_from:
            yield f"answered by the fallback {completion.snapshot.provider} after {', '.join(before)}"
        if completion.finish_reason is FinishReason.LENGTH:
            yield "the answer was cut off at max_tokens"
        if completion.sanitised or UNSTORABLE.search(completion.text):
            yield "characters that cannot be stored were replaced"


def _omissions(request: JobRequest, prompt: Prompt) -> Iterator[str]:
    snapshot = prompt.snapshot
    total, shown_count = len(request.context), len(snapshot.shown)
    repeated = [omission for omission in snapshot.left_out if omission.reason is not LeftOutReason.BUDGET]
    if shown_count + len(repeated) < total:
        missing = total - shown_count - len(repeated)
        yield f"{missing} of {total} sources were left out: max_context_tokens is {request.config.max_context_tokens}"
    if repeated:
        listing = ", ".join(
            f"context[{omission.source_index}] (repeats context[{omission.of}])" for omission in repeated
        )
        yield f"left out, because another source says the same: {listing}"
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
    for index, flag_kinds in kinds.items():
        yield f"context[{index}] holds text that may be meant to steer the model: {', '.join(flag_kinds)}"


def _object_of(
    request: JobRequest, read: ParsedAnswer, text: str, output_format: OutputFormat, citations: Sequence[Citation]
) -> dict[str, Any] | None:
    """The object beside the answer; an object that violates its schema is paid for and returned as well."""
    if request.check_only:
        return None
    if request.config.output_schema is not None:
        return complete_object(request.config, read.data, text, citations)
    if output_format is OutputFormat.JSON:
        parsed: dict[str, Any] = orjson.loads(text)
        return parsed
    return None


# ---- redaction -------------------------------------------------------------------------------------------------


def redact(request: JobRequest, processed: Processed, spans: Sequence[tuple[int, int]]) -> Processed:
    """Removes sentences from an answer and renders the rest again, so that ranks, numbering and offsets fit.

    Args:
        request: the job's request.
        processed: its answer.
        spans: ``[start, end)`` of statements; their whole sentences are removed.
    """
    removed = set(spans)
    sentences = {s.sentence for s in processed.statements if (s.start, s.end) in removed}
    out = [statement.sentence in sentences for statement in processed.statements]
    if request.check_only:
        read = parse_supplied(_without_statements(processed, out), [name_of(source) for source in request.context])
    else:
        segments = [
            reduced
            for segment, place in zip(processed.canonical.segments, processed.segments, strict=True)
            if (reduced := _without_removed(segment, place, processed, out)) is not None
        ]
        answer = CanonicalAnswer(segments=tuple(segments), sufficient=processed.canonical.sufficient)
        return render_again(request, processed, answer)
    return replace(_assemble(request, read, processed.shown_sources, processed.warnings), abstained=processed.abstained)


def render_again(request: JobRequest, processed: Processed, answer: CanonicalAnswer) -> Processed:
    """Renders a model's answer with another canonical form; its object and warnings stay."""
    data = processed.structured if request.config.output_schema is not None else None
    shorter = _assemble(
        request, ParsedAnswer(answer, processed.parsed, data), processed.shown_sources, processed.warnings
    )
    return replace(shorter, abstained=processed.abstained)


def _without_statements(processed: Processed, out: Sequence[bool]) -> str:
    """The response without some of its statements and the text between each of them and the next one."""
    parts = []
    position = 0
    starts = [statement.start for statement in processed.statements[1:]]
    for statement, following, is_out in zip(processed.statements, [*starts, len(processed.response)], out, strict=True):
        if is_out:
            parts.append(processed.response[position : statement.start])
            position = following
    return "".join([*parts, processed.response[position:]]).rstrip()


def _without_removed(segment: Segment, place: Span, processed: Processed, out: Sequence[bool]) -> Segment | None:
    """A segment without the removed sentences; None if all are removed."""
    statements = [
        (statement, is_out)
        for statement, is_out in zip(processed.statements, out, strict=True)
        if statement.start < place.end and place.start < statement.end
    ]
    if not any(is_out for _, is_out in statements):
        return segment
    if all(is_out for _, is_out in statements):
        return None
    sentences: dict[int, Span] = {}
    for statement, is_out in statements:
        if is_out:
            start = sentences.get(statement.sentence, Span(statement.start, 0)).start
            sentences[statement.sentence] = Span(start, statement.end)
    unwanted = [words(processed.response[start:end]) for start, end in sentences.values()]
    remaining = [
        segment.text[span.start : span.end]
        for span in sentence_spans(segment.text)
        if not _is_within(words(segment.text[span.start : span.end]), unwanted)
    ]
    before = segment.text[: len(segment.text) - len(segment.text.lstrip())]
    return Segment(text=before + " ".join(remaining), citations=segment.citations) if remaining else None


def _is_within(sentence: list[str], unwanted: Sequence[list[str]]) -> bool:
    """Tells whether a sentence is among the removed ones, which may contain a marker's number as an extra word."""
    return any(set(sentence) <= set(other) for other in unwanted)
