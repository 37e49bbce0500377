"""Renders the answer of a final job in another citation style or format, from its record and without a call."""

from schemas.generation import OutputFormat, Style
from schemas.grounding import Claim, Verdict
from schemas.job import JobRequest
from schemas.record import GenerationRecord, JobResult
from schemas.states import JobState
from tasks.answers.layouts import Extras
from tasks.answers.postprocess import Processed, rerender
from tasks.answers.rendered import Rendered
from tasks.answers.texts import in_format, without_answer
from tasks.policy.outcome import with_appendix
from tasks.ports import JobView
from tasks.results import result_of
from tasks.text.sentences import Span


def restyle(
    view: JobView,
    style: Style | None = None,
    output_format: OutputFormat | None = None,
    *,
    with_sources: bool = False,
    with_confidence: bool = False,
) -> JobResult:
    """The result of a job with its answer in another style or format; verdicts, evidence and quotes stay the same.

    A text without a rendering (an abstention, a failure, a job that is not final) stays unchanged. So do, with a
    warning, a supplied answer and a record without a canonical answer.

    Args:
        view: the job.
        style: None: the style of the request.
        output_format: None or ``auto``: the format of the record.
        with_sources: adds the list of cited sources, in styles without one.
        with_confidence: adds a line with the confidence, or with the answer quality if there is no confidence.
    """
    result, record = result_of(view), view.record
    if record is None or view.outcome is None or not view.outcome.has_answer:
        return _in_format(result, view, output_format)
    if view.request.check_only:
        return _with_warning(result, "a supplied answer stays unchanged and is not rendered in another style")
    if record.canonical is None or record.messages_snapshot is None:
        return _with_warning(result, "the record of this answer has no canonical form to render another style from")
    config, first = view.request.config, record.output_format
    if output_format in {None, OutputFormat.AUTO}:
        output_format = first
    restyled_request = _with(view.request, style or config.citation_style, output_format or first)
    extras = Extras(with_sources, _score(result) if with_confidence else None)
    shown_sources = record.messages_snapshot.shown
    after = rerender(restyled_request, record.canonical, shown_sources, extras)
    before = rerender(_with(view.request, config.citation_style, first), record.canonical, shown_sources, Extras())
    return _with_text(result, record, restyled_request, after, _map_claims(result.claims, before, after, record))


def _in_format(result: JobResult, view: JobView, output_format: OutputFormat | None) -> JobResult:
    """The result of a job without an answer: its text as JSON or as the text alone. A supplied answer stays."""
    supplied = view.request.check_only and result.response == view.request.response
    if output_format in {None, OutputFormat.AUTO} or supplied or not result.response:
        return result
    text = in_format(result.response, view.ending, output_format)
    return result.model_copy(update={"response": text, "output_format": output_format})


def _with_text(
    result: JobResult, record: GenerationRecord, request: JobRequest, after: Processed, claims: tuple[Claim, ...] | None
) -> JobResult:
    """The result with the new text of its answer; ``claims`` is None if their positions cannot be mapped."""
    response = after.response
    if claims and record.grounding is not None:
        response = with_appendix(request, after, record.grounding.model_copy(update={"claims": claims}))
    warnings = (
        () if claims is not None else ("the claims' places in the answer as it was first rendered cannot be mapped",)
    )
    return result.model_copy(
        update={
            "response": response if response.strip() else without_answer(request, JobState.COMPLETED),
            "output_format": after.output_format,
            "citations": after.citations,
            "claims": claims or (),
            "structured": after.structured if request.config.output_schema is None else record.output_structured,
            "warnings": (*result.warnings, *warnings, *((after.format_problem,) if after.format_problem else ())),
        }
    )


def _with_warning(result: JobResult, why: str) -> JobResult:
    return result.model_copy(update={"warnings": (*result.warnings, why)})


def _with(request: JobRequest, style: Style, output_format: OutputFormat) -> JobRequest:
    config = request.config.model_copy(update={"citation_style": style, "output_format": output_format})
    # The format is fixed: the rest of the request must not change it.
    return request.model_copy(update={"config": config, "aggregate": False, "intent": None})


def _score(result: JobResult) -> tuple[str, float] | None:
    """The calibrated confidence, else the answer quality under its own name; None without either."""
    if result.confidence is not None:
        return "Confidence", result.confidence
    return ("Answer quality", result.answer_quality) if result.answer_quality is not None else None


# ---- claims in the new text ------------------------------------------------------------------------------------


def _map_claims(
    claims: tuple[Claim, ...], before: Processed, after: Processed, record: GenerationRecord
) -> tuple[Claim, ...] | None:
    """The claims with their positions in the new text, mapped through the canonical answer of both texts.

    A claim without checkable text (the rule of a table) may have no position in another format; it is omitted. None
    if this version renders the answer differently from the record, so that no mapping exists.
    """
    if not record.answer.startswith(before.response) or before.rendered is None or after.rendered is None:
        return None
    moved = []
    for claim in claims:
        origin = before.rendered.origin_of(claim.start_pos, claim.end_pos)
        place = _whole(after, after.rendered, after.rendered.place_of(*origin), origin)
        if place.start == place.end and claim.verdict is Verdict.NOT_CHECKABLE:
            continue
        update = {"start_pos": place.start, "end_pos": place.end, "text": after.response[place.start : place.end]}
        moved.append(claim.model_copy(update=update))
    return tuple(moved)


def _whole(after: Processed, rendered: Rendered, place: Span, origin: Span) -> Span:
    """The span extended to whole sentences with their markers, if these cover the same part of the canonical answer."""
    statements = [
        statement for statement in after.statements if statement.start < place.end and place.start < statement.end
    ]
    if statements:
        extended = Span(statements[0].start, statements[-1].end)
        if rendered.origin_of(*extended) == origin:
            return extended
    return place
