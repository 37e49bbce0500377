"""Renders the answer of a final job in another citation style or format, from its record alone; calls nobody."""

from schemas.generation import CitationStyle, OutputFormat
from schemas.grounding import Claim, Verdict
from schemas.job import JobRequest
from schemas.record import GenerationRecord, JobResult
from schemas.states import Outcome
from tasks.amend import with_appendix
from tasks.answers.render import Extras, Rendered
from tasks.finish import result_of
from tasks.ports import JobView
from tasks.postprocess import Processed, rerender
from tasks.text.sentences import Span

RENDERED = frozenset({Outcome.ANSWERED, Outcome.PARTIAL})
"""Outcomes whose answer was rendered from the canonical one; those of the others are fixed texts."""


def restyled(
    view: JobView,
    style: CitationStyle | None = None,
    output_format: OutputFormat | None = None,
    *,
    with_sources: bool = False,
    with_confidence: bool = False,
) -> JobResult:
    """The result of a job with its answer rendered anew; verdicts, evidence and quotes stay what they are.

    A text that was never rendered (an abstention, a failure, a job that is not final) comes back as it is. So do, with
    a warning, a given answer and a record of a version that kept no canonical answer.

    Args:
        view: the job.
        style: None leaves it as it was asked for.
        output_format: None leaves it as it was; ``auto`` means the same.
        with_sources: whether the list of cited sources follows, in styles that have none of their own.
        with_confidence: whether a line with the confidence follows, or the answer quality where there is no confidence.
    """
    result, record = result_of(view), view.record
    if record is None or view.outcome not in RENDERED:
        return result
    if view.request.check_only:
        return _unchanged(result, "an answer that was given is kept as it stands, not rendered in another style")
    if record.canonical is None or record.messages_snapshot is None:
        return _unchanged(result, "the record of this answer has no canonical form to render another style from")
    config, first = view.request.config, record.output_format
    if output_format in {None, OutputFormat.AUTO}:
        output_format = first
    wanted = _with(view.request, style or config.citation_style, output_format or first)
    extras = Extras(with_sources, _score(result) if with_confidence else None)
    shown = record.messages_snapshot.shown
    after = rerender(wanted, record.canonical, shown, extras)
    before = rerender(_with(view.request, config.citation_style, first), record.canonical, shown, Extras())
    return _told(result, record, wanted, after, _moved(result.claims, before, after, record))


def _told(
    result: JobResult, record: GenerationRecord, wanted: JobRequest, after: Processed, claims: tuple[Claim, ...] | None
) -> JobResult:
    """The result with another text of its answer; ``claims`` is None where their places in it are not known."""
    response = after.response
    if claims and record.grounding is not None:
        response = with_appendix(wanted, after, record.grounding.model_copy(update={"claims": claims}))
    told = () if claims is not None else ("the claims' places in the answer as it was first rendered cannot be mapped",)
    return result.model_copy(
        update={
            "response": response,
            "output_format": after.output_format,
            "citations": after.citations,
            "claims": claims or (),
            "structured": after.structured if wanted.config.output_schema is None else record.output_structured,
            "warnings": (*result.warnings, *told, *((after.format_problem,) if after.format_problem else ())),
        }
    )


def _unchanged(result: JobResult, why: str) -> JobResult:
    return result.model_copy(update={"warnings": (*result.warnings, why)})


def _with(request: JobRequest, style: CitationStyle, output_format: OutputFormat) -> JobRequest:
    config = request.config.model_copy(update={"citation_style": style, "output_format": output_format})
    # The format is decided: nothing else of the request has a say in it any more.
    return request.model_copy(update={"config": config, "aggregate": False, "intent": None})


def _score(result: JobResult) -> tuple[str, float] | None:
    """The calibrated confidence, else the documented heuristic under its own name; None without either."""
    if result.confidence is not None:
        return "Confidence", result.confidence
    return ("Answer quality", result.answer_quality) if result.answer_quality is not None else None


# ---- claims in the new text ------------------------------------------------------------------------------------


def _moved(
    claims: tuple[Claim, ...], before: Processed, after: Processed, record: GenerationRecord
) -> tuple[Claim, ...] | None:
    """The claims with their places in the new text, by way of the canonical answer that both texts are made of.

    A claim with nothing to check (the rule under a table's heads) may have no place in another format; it is left out.
    None when this version no longer renders the answer as the record has it: there is no way to map then.
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
    """The place grown to the sentences it covers, markers included, when these say the same and no more."""
    mine = [one for one in after.statements if one.start < place.end and place.start < one.end]
    if mine:
        grown = Span(mine[0].start, mine[-1].end)
        if rendered.origin_of(*grown) == origin:
            return grown
    return place
