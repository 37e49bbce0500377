"""Turns a completion into an answer: parses the canonical form, renders it and locates every citation in its source."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

import orjson

from schemas.answer import CanonicalAnswer, Citation
from schemas.generation import OutputFormat, Style
from schemas.job import JobRequest
from schemas.model_call import Completion, FinishReason, Flag, LeftOutReason, Prompt, SourcePart
from tasks.answers.active_content import REMOVED, may_be_active, neutralise
from tasks.answers.citations import Label, label, locate_citations, marker, name_of
from tasks.answers.formats import format_problem, resolve_format
from tasks.answers.layouts import Extras, table_heads, write_items, write_json, write_plain, write_sources, write_table
from tasks.answers.objects import complete_object, violations
from tasks.answers.parse import ParsedAnswer, is_storable, merge_repeated, parse_completion, parse_supplied
from tasks.answers.rendered import Rendered, Writer, flow_of, strip_markers, write_markdown
from tasks.answers.styles import manner_of
from tasks.text.clauses import clause_spans
from tasks.text.sentences import Span, cached_sentences
from tasks.text.statements import Statement


@dataclass(frozen=True, slots=True)
class Processed:
    """An answer ready to be checked.

    Attributes:
        response: the rendered text; for a check-only job the supplied text, unchanged.
        bare: the response with spaces in place of its markers.
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
    bare: str
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
        sources = [request.context[index] for index in shown_sources]
        contents, ids = [source.content for source in sources], [source.chunk_id for source in sources]
        read = parse_completion(completion, len(sources), contents, ids)
        read = _cleaned(request, read)
    return assemble(request, read, shown_sources, list(_notes(request, prompt, completion)))


def _cleaned(request: JobRequest, read: ParsedAnswer) -> ParsedAnswer:
    """The parsed answer without active content and repetitions."""
    answer, warnings = read.answer, read.warnings
    text = "".join([segment.text for segment in answer.segments])
    if not request.config.allow_html and may_be_active(text):
        answer, changed = neutralise(answer)
        warnings = (*warnings, REMOVED) if changed else warnings
    output_format = request.fixed_format or resolve_format(request)
    merged = merge_repeated(answer, steps=output_format is OutputFormat.STEPS)
    if repeated := len(answer.segments) - len(merged.segments):
        warnings = (*warnings, f"{repeated} repeated part(s) of the answer were merged")
    if merged is read.answer and warnings is read.warnings:
        return read
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
    return assemble(request, ParsedAnswer(answer), shown_sources, (), extras)


def assemble(
    request: JobRequest,
    read: ParsedAnswer,
    shown_sources: tuple[int, ...],
    notes: Sequence[str],
    extras: Extras | None = None,
) -> Processed:
    """Renders the parsed answer (a supplied answer stays unchanged) and locates its citations."""
    answer, config = read.answer, request.config
    output_format = request.fixed_format or resolve_format(request)
    rendered = read.rendered or _render_by_config(request, answer, output_format, shown_sources, extras)
    markers = sorted(
        {Span(mark.start, mark.end) for mark in rendered.marks}
        | {Span(marker.start, marker.end) for marker in read.unknown}
    )
    unknown = {m.start: [n for n in m.numbers if not 1 <= n <= len(shown_sources)] for m in read.unknown}
    sentences = _sentences(rendered, config.language)
    bare = strip_markers(rendered.text, markers)
    citations, missing = locate_citations(request, answer, rendered, shown_sources, sentences=sentences, bare=bare)
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
        bare=bare,
        citations=tuple(citations),
        canonical=answer,
        structured=structured,
        parsed=read.parsed,
        abstained=abstained,
        warnings=tuple(dict.fromkeys((*read.warnings, *missing, *notes, *shortfalls, *broken))),
        output_format=output_format,
        statements=tuple(_statements(rendered.text, bare, sentences, citations, unknown)),
        markers=tuple(markers),
        shown_sources=shown_sources,
        segments=rendered.segments,
        violations=broken,
        format_problem=None if request.check_only else _format_problem(rendered, output_format),
        rendered=rendered,
    )


def _render_by_config(
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


def _format_problem(rendered: Rendered, output_format: OutputFormat) -> str | None:
    body = rendered.text[: rendered.body]
    if output_format is OutputFormat.MARKDOWN and not ("|" in body or "```" in body or "~~~" in body):
        # But for tables and blocks of code, all text is valid Markdown.
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
            for a, b in cached_sentences(rendered.text[piece.start : piece.end], code)
        ]
        reaches = [span.start for span in spans[1:]] + [piece.reach]
        sentences.extend(zip(spans, reaches, strict=True) if spans else ())
    return sentences


def _statements(
    text: str,
    bare: str,
    sentences: Sequence[tuple[Span, int]],
    citations: Sequence[Citation],
    unknown: Mapping[int, Sequence[int]],
) -> Iterator[Statement]:
    """The clauses of the sentences, each with its citations; ``unknown`` are the numbers without a source, by place."""
    places = sorted(unknown)
    position = 0
    for number, (span, reach) in enumerate(sentences):
        *before, last = clause_spans(bare[span.start : span.end])
        spans = [_trimmed(text, span.start + start, span.start + end) for start, end in before]
        spans.append(Span(span.start + last.start, span.end))
        ends = [*[clause.start for clause in spans[1:]], reach] if before else [reach]
        cited: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        for clause, end in zip(spans, ends, strict=True):
            first = position
            while position < len(citations) and (
                citations[position].start_pos < end or citations[position].end_pos <= end
            ):
                position += 1
            here = places[bisect_left(places, clause.start) : bisect_left(places, end)]
            numbers = [number for place in here for number in unknown[place]]
            cited.append((tuple(range(first, position)), tuple(numbers)))
        if not before:
            yield Statement(spans[0].start, spans[0].end, *cited[0], sentence=number)
            continue
        for at, clause in enumerate(spans):
            # A clause without a citation shares that of the next one in its sentence, the last one that of the one before.
            near = next((pair for pair in [*cited[at:], *reversed(cited[:at])] if any(pair)), ((), ()))
            yield Statement(clause.start, clause.end, *near, sentence=number)


_AROUND_CLAUSE = " \t\r\n,;，；،؛–—"  # noqa: RUF001 - marks of other scripts


def _trimmed(text: str, start: int, end: int) -> Span:
    """A clause without the marks between it and the next one."""
    return Span(start, start + len(text[start:end].rstrip(_AROUND_CLAUSE)))


_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|[\"\\/bfnrt])")


def own_words(processed: Processed, text: str) -> str:
    """A part of the response as its readers see it: in JSON without the escapes of the syntax.

    A supplied response, which has no segments of ours, is as its caller wrote it.
    """
    if processed.output_format is not OutputFormat.JSON or "\\" not in text or not processed.segments:
        return text
    return _ESCAPE.sub(lambda match: str(orjson.loads(f'"{match.group()}"')), text)


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
        if completion.sanitised or not is_storable(completion.text):
            yield "characters that cannot be stored were replaced"


def _omissions(request: JobRequest, prompt: Prompt) -> Iterator[str]:
    snapshot = prompt.snapshot
    total, shown_count = len(request.context), len(snapshot.shown)
    repeated = [omission for omission in snapshot.left_out if omission.of is not None]
    blank = [omission for omission in snapshot.left_out if omission.reason is LeftOutReason.BLANK]
    if missing := total - shown_count - len(repeated) - len(blank):
        yield f"{missing} of {total} sources were left out: max_context_tokens is {request.config.max_context_tokens}"
    if repeated:
        listing = ", ".join(
            f"context[{omission.source_index}] (repeats context[{omission.of}])" for omission in repeated
        )
        yield f"left out, because another source says the same: {listing}"
    if blank:
        yield f"left out, because no word is in there: {', '.join(f'context[{each.source_index}]' for each in blank)}"
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


def render_again(request: JobRequest, processed: Processed, answer: CanonicalAnswer) -> Processed:
    """Renders a model's answer with another canonical form; its object and warnings stay."""
    data = processed.structured if request.config.output_schema is not None else None
    shorter = assemble(
        request, ParsedAnswer(answer, processed.parsed, data), processed.shown_sources, processed.warnings
    )
    return replace(shorter, abstained=processed.abstained)


# ---- rendering -------------------------------------------------------------------------------------------------------


def render(
    answer: CanonicalAnswer,
    style: Style,
    output_format: OutputFormat,
    labels: Sequence[Label],
    *,
    show_markers: bool = True,
    extras: Extras | None = None,
    allow_html: bool = False,
) -> Rendered:
    """Renders an answer.

    Segments are joined unchanged, with their own white space. Without ``show_markers`` every mark is empty
    (``start == end``) at the position of the marker.

    Args:
        answer: its citations name sources from 1 to ``len(labels)``.
        style: the style of the markers.
        output_format: not ``auto`` (see ``formats.resolve_format``).
        labels: the label of each source, by number - 1.
        show_markers: if False, no marker is written.
        allow_html: HTML in code stays as it is in plain text, too.
        extras: the parts after the answer; JSON always has the sources, and the score is a field.
    """
    extras = extras or Extras()
    flow = flow_of(answer, style)
    markdown = output_format not in {OutputFormat.PLAIN, OutputFormat.JSON}

    def marker_of(rank: int, source: int) -> str:
        return marker(style, rank, labels[source - 1], markdown=markdown)

    writer = Writer(flow, style, marker_of, show_markers=show_markers, markdown=markdown)
    if output_format is OutputFormat.JSON:
        write_json(writer, extras, labels)
        return writer.finish(writer.position)
    _write_body(writer, output_format, allow_html=allow_html)
    body = writer.position
    if extras.sources or (show_markers and manner_of(style).listed):
        write_sources(writer, labels)
    if extras.score:
        name, score = extras.score
        line = f"{name}: {score:.1%}"
        writer.write(f"\n\n*{line}*" if markdown else f"\n\n{line}")
    return writer.finish(body)


def _write_body(writer: Writer, output_format: OutputFormat, *, allow_html: bool) -> None:
    match output_format:
        case OutputFormat.TABLE:
            write_table(writer)
        case OutputFormat.BULLETS | OutputFormat.STEPS:
            write_items(writer, numbered=output_format is OutputFormat.STEPS)
        case OutputFormat.PLAIN:
            write_plain(writer, neutral=not allow_html)
        case OutputFormat.MARKDOWN:
            write_markdown(writer, table_heads(writer.flow.text) if "|" in writer.flow.text else ())
        case OutputFormat.JSON | OutputFormat.AUTO:
            raise ValueError(f"{output_format.value} is no layout of text")
        case _:
            assert_never(output_format)
