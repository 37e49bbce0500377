"""Changes a checked answer as its policy wants: without unsupported sentences, cut to its length, with an appendix."""

from dataclasses import replace

from schemas.answer import CanonicalAnswer
from schemas.generation import OnUngrounded, OutputFormat
from schemas.grounding import Grounding, Verdict
from schemas.job import JobRequest
from tasks.checkers import ground
from tasks.policy import Examined, is_too_long, quoted, ungrounded
from tasks.postprocess import Processed, redact, rendered_anew
from tasks.texts import not_verified

MAX_WARNED = 50
"""Claims that get a warning of their own; all are in the data."""

_LISTED_IN = frozenset({OutputFormat.MARKDOWN, OutputFormat.PLAIN, OutputFormat.BULLETS, OutputFormat.STEPS})
_TOLD = {
    Verdict.UNSUPPORTED: "not supported by the sources",
    Verdict.CONTRADICTED: "contradicted by the sources",
    Verdict.UNCHECKED: "not checked",
}


def amended(answer: Examined) -> tuple[Examined, tuple[str, ...]]:
    """The answer as it may be returned, and what was taken out of it, in words.

    What was shortened is rendered and checked anew, so that citations, claims and offsets are those of what is left.
    """
    if answer.processed.abstained:
        return answer, ()
    config = answer.job.request.config
    told: list[str] = []
    gone = ungrounded(answer.grounding)
    if gone and config.require_grounding and config.on_ungrounded is OnUngrounded.REDACT:
        shorter = redact(answer.job.request, answer.processed, [(claim.start_pos, claim.end_pos) for claim in gone])
        removed = tuple(f"removed, without support: {claim.text}" for claim in gone)
        answer = _checked(answer, replace(shorter, warnings=(*shorter.warnings, *removed)))
        told.append("sentences without support were removed")
    if is_too_long(answer) and config.max_response_length is not None:
        answer, how = _cut(answer, config.max_response_length)
        told.append(how)
    return answer, tuple(told)


def with_warnings(processed: Processed, grounding: Grounding | None) -> Processed:
    """The answer with a warning for each claim that nothing supports."""
    claims = ungrounded(grounding)
    told = [f"{_TOLD[claim.verdict]}: {quoted(claim, processed)}" for claim in claims[:MAX_WARNED]]
    if len(claims) > MAX_WARNED:
        told.append(f"{len(claims) - MAX_WARNED} more claims are not supported or not checked")
    return replace(processed, warnings=(*processed.warnings, *told))


def with_appendix(request: JobRequest, processed: Processed, grounding: Grounding | None) -> str:
    """The response, and under it a list of the claims that nothing supports.

    All offsets stay: the list comes last. A given answer, JSON and tables stay as they are.
    """
    claims, config = ungrounded(grounding), request.config
    flags = config.require_grounding and config.on_ungrounded in {OnUngrounded.FLAG, OnUngrounded.RETRY}
    wanted = flags and config.ungrounded_appendix and processed.output_format in _LISTED_IN
    if not claims or not wanted or request.check_only:
        return processed.response
    items = "".join(f"\n- {quoted(claim, processed)}" for claim in claims)
    return f"{processed.response}\n\n---\n{not_verified(request)}{items}"


def _checked(answer: Examined, processed: Processed) -> Examined:
    return replace(answer, processed=processed, grounding=ground(answer.job.request, processed))


# ---- to its length ---------------------------------------------------------------------------------------------


def _cut(answer: Examined, limit: int) -> tuple[Examined, str]:
    """The longest beginning that fits, in whole sentences; of a first sentence that is too long, its first words."""
    request, whole = answer.job.request, answer.processed
    spans = [(statement.start, statement.end) for statement in whole.statements]
    # What begins beyond the limit can't be within it: the marks before it stay as long as they are.
    few, many = 0, sum(start < limit for start, _ in spans)
    fitting: Processed | None = None
    while few < many:
        count = (few + many + 1) // 2
        shorter = redact(request, whole, spans[count:])
        if len(shorter.response) <= limit:
            few, fitting = count, shorter
        else:
            many = count - 1
    how = f"the answer was cut at a sentence end from {len(whole.response)} to at most {limit} characters"
    if fitting is None or not fitting.statements:
        fitting = _first_words(request, whole, limit)
        how = f"the answer was cut within its first sentence: max_response_length is {limit}"
    if fitting is None:
        return answer, f"the answer could not be cut to {limit} characters"
    # What the whole fell short of by its length is no longer so.
    kept = [warning for warning in fitting.warnings if f"at most {limit} wanted" not in warning]
    return _checked(answer, replace(fitting, warnings=(*kept, how))), how


def _first_words(request: JobRequest, whole: Processed, limit: int) -> Processed | None:
    """The first words of the first segment that fit, with an ellipsis; None when not even one does."""
    segment = next((segment for segment in whole.canonical.segments if segment.text.strip()), None)
    if segment is None:
        return None
    words = segment.text.split()
    few, many = 0, len(words)
    fitting = None
    while few < many:
        count = (few + many + 1) // 2
        cut = segment.model_copy(update={"text": " ".join(words[:count]) + "…"})
        shorter = rendered_anew(request, whole, CanonicalAnswer(segments=(cut,), sufficient=whole.canonical.sufficient))
        if len(shorter.response) <= limit:
            few, fitting = count, shorter
        else:
            many = count - 1
    return fitting


def without_what_is_hidden(processed: Processed) -> Processed:
    """What goes with a text that is shown instead of the answer: nothing that points into the answer."""
    return replace(processed, citations=(), structured=None)
