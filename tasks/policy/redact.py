"""Amends a checked answer by its policy: removes unsupported sentences, shortens it, adds warnings and an appendix."""

from collections.abc import Callable
from dataclasses import replace

from schemas.answer import CanonicalAnswer
from schemas.generation import OnUngrounded, OutputFormat
from schemas.grounding import Grounding, Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import Processed, redact, render_again
from tasks.answers.texts import not_verified
from tasks.grounding import ground
from tasks.policy.outcome import CheckedAnswer, claim_text, is_too_long, ungrounded_claims

MAX_WARNED = 50
"""Most claims with a warning each; the result has all claims."""

_LISTED_IN = frozenset({OutputFormat.MARKDOWN, OutputFormat.PLAIN, OutputFormat.BULLETS, OutputFormat.STEPS})
_LABELS = {
    Verdict.UNSUPPORTED: "not supported by the sources",
    Verdict.CONTRADICTED: "contradicted by the sources",
    Verdict.UNCHECKED: "not checked",
}


def amend(answer: CheckedAnswer) -> tuple[CheckedAnswer, tuple[str, ...]]:
    """The answer to return, and its amendments in words.

    A shorter answer is rendered and checked again, so that its citations, claims and offsets fit its text.
    """
    if answer.processed.abstained:
        return answer, ()
    config = answer.job.request.config
    amendments: list[str] = []
    claims = ungrounded_claims(answer.grounding)
    if claims and config.require_grounding and config.on_ungrounded is OnUngrounded.REDACT:
        shorter = redact(answer.job.request, answer.processed, [(claim.start_pos, claim.end_pos) for claim in claims])
        removed = tuple(f"removed, without support: {claim.text}" for claim in claims)
        answer = _check(answer, replace(shorter, warnings=(*shorter.warnings, *removed)))
        amendments.append("sentences without support were removed")
    if is_too_long(answer) and config.max_response_length is not None:
        answer, amendment = _shorten(answer, config.max_response_length)
        amendments.append(amendment)
    return answer, tuple(amendments)


def with_warnings(processed: Processed, grounding: Grounding | None) -> Processed:
    """The answer with a warning for each unsupported claim."""
    claims = ungrounded_claims(grounding)
    warnings = [f"{_LABELS[claim.verdict]}: {claim_text(claim, processed)}" for claim in claims[:MAX_WARNED]]
    if len(claims) > MAX_WARNED:
        warnings.append(f"{len(claims) - MAX_WARNED} more claims are not supported or not checked")
    return replace(processed, warnings=(*processed.warnings, *warnings))


def with_appendix(request: JobRequest, processed: Processed, grounding: Grounding | None) -> str:
    """The response with a list of the unsupported claims below it.

    All offsets stay, because the list comes last. A supplied answer, JSON and tables get no list.
    """
    claims, config = ungrounded_claims(grounding), request.config
    flags = config.require_grounding and config.on_ungrounded in {OnUngrounded.FLAG, OnUngrounded.RETRY}
    appends = flags and config.ungrounded_appendix and processed.output_format in _LISTED_IN
    if not claims or not appends or request.check_only:
        return processed.response
    items = "".join(f"\n- {claim_text(claim, processed)}" for claim in claims)
    return f"{processed.response}\n\n---\n{not_verified(request)}{items}"


def _check(answer: CheckedAnswer, processed: Processed) -> CheckedAnswer:
    return replace(answer, processed=processed, grounding=ground(answer.job.request, processed))


# ---- length ----------------------------------------------------------------------------------------------------


def _shorten(answer: CheckedAnswer, limit: int) -> tuple[CheckedAnswer, str]:
    """The longest beginning in whole sentences that fits; the first words if the first sentence is too long."""
    request, whole = answer.job.request, answer.processed
    spans = [(statement.start, statement.end) for statement in whole.statements]
    # A sentence that begins beyond the limit cannot fit, because the markers before it keep their length.
    most = sum(start < limit for start, _ in spans)
    fitting = _longest(most, limit, lambda count: redact(request, whole, spans[count:]))
    amendment = f"the answer was cut at a sentence end from {len(whole.response)} to at most {limit} characters"
    if fitting is None or not fitting.statements:
        fitting = _first_words(request, whole, limit)
        amendment = f"the answer was cut within its first sentence: max_response_length is {limit}"
    if fitting is None:
        return answer, f"the answer could not be cut to {limit} characters"
    # The warning about the length no longer applies.
    warnings = [warning for warning in fitting.warnings if f"at most {limit} allowed" not in warning]
    return _check(answer, replace(fitting, warnings=(*warnings, amendment))), amendment


def _first_words(request: JobRequest, whole: Processed, limit: int) -> Processed | None:
    """As many first words of the first segment as fit, with an ellipsis; None if not even one word fits."""
    segment = next((segment for segment in whole.canonical.segments if segment.text.strip()), None)
    if segment is None:
        return None
    words = segment.text.split()

    def beginning(count: int) -> Processed:
        segments = (segment.model_copy(update={"text": " ".join(words[:count]) + "…"}),)
        return render_again(request, whole, CanonicalAnswer(segments=segments, sufficient=whole.canonical.sufficient))

    return _longest(len(words), limit, beginning)


def _longest(most: int, limit: int, shorten: Callable[[int], Processed]) -> Processed | None:
    """The answer with the greatest count, up to ``most``, that fits; None if not even a count of 1 fits."""
    fitting = None
    few, many = 0, most
    while few < many:
        count = (few + many + 1) // 2
        shorter = shorten(count)
        if len(shorter.response) <= limit:
            few, fitting = count, shorter
        else:
            many = count - 1
    return fitting


def without_details(processed: Processed) -> Processed:
    """The answer without citations and object, for a fallback text in place of the answer."""
    return replace(processed, citations=(), structured=None)
