"""Removes sentences from an answer and renders the rest again."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from schemas.answer import CanonicalAnswer, Segment
from schemas.job import JobRequest
from tasks.answers.citations import name_of
from tasks.answers.parse import parse_supplied
from tasks.answers.postprocess import Processed, assemble, render_again
from tasks.text.sentences import Span, sentence_spans, words


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
    return replace(assemble(request, read, processed.shown_sources, processed.warnings), abstained=processed.abstained)


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
    unwanted = {frozenset(words(processed.response[start:end])) for start, end in sentences.values()}
    is_within = cache(lambda sentence: any(sentence <= other for other in unwanted))
    remaining = [
        segment.text[span.start : span.end]
        for span in sentence_spans(segment.text)
        # One of the removed ones may contain a marker's number as an extra word.
        if not is_within(frozenset(words(segment.text[span.start : span.end])))
    ]
    before = segment.text[: len(segment.text) - len(segment.text.lstrip())]
    return Segment(text=before + " ".join(remaining), citations=segment.citations) if remaining else None
