"""Decides by the config an answer's second round, its amendments and its outcome.

The decisions are pure; an amended answer is rendered and checked again. The rules are tables in docs/outcomes.md.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from schemas.answer import CanonicalAnswer
from schemas.failure import Failure, FailureKind
from schemas.generation import AnswerProtocol, MissingCitations, OnUngrounded, OutputFormat, Strictness
from schemas.grounding import Claim, Grounding, Value, Verdict
from schemas.job import JobRequest
from schemas.model_call import Completion, Correction, FinishReason, Usage
from schemas.states import Outcome
from tasks.answers.parse import UNSTORABLE
from tasks.answers.postprocess import Processed, own_words, render_again
from tasks.answers.redaction import redact
from tasks.answers.rendered import strip_markers
from tasks.answers.texts import not_verified
from tasks.grounding import ground
from tasks.ports import ROUNDS_PER_LEVEL, Leased
from tasks.prompting.messages import MAX_PREVIOUS_CHARACTERS
from tasks.text.sentences import Span

UNGROUNDED = frozenset({Verdict.UNSUPPORTED, Verdict.CONTRADICTED, Verdict.UNCHECKED})
"""Verdicts of claims without support, whatever the strictness."""

MAX_NAMED = 20
"""Most claims in a correction."""
_LONGEST_NAMED = 500

NO_ANSWER = frozenset({FinishReason.REFUSAL, FinishReason.CONTENT_FILTER})
"""Finish reasons without an answer to check."""


@dataclass(slots=True)
class _Defaults:
    strictness: Strictness = Strictness.BALANCED


_DEFAULTS = _Defaults()


def use_strictness(strictness: Strictness) -> None:
    """Makes this process rule on jobs that name no strictness with this one. Called once, when a process is wired."""
    _DEFAULTS.strictness = strictness


def strictness_of(request: JobRequest) -> Strictness:
    """The weight of a job's undecided claims."""
    return request.config.strictness or _DEFAULTS.strictness


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """A parsed and checked answer; ``completion`` is None for the supplied answer of a check-only job."""

    job: Leased
    completion: Completion | None
    processed: Processed
    grounding: Grounding | None


@dataclass(frozen=True, slots=True)
class Ruling:
    """The outcome of an answer with its reasons; a ``failure`` replaces the outcome."""

    outcome: Outcome
    reasons: tuple[str, ...]
    failure: Failure | None = None


def ungrounded_claims(grounding: Grounding | None, request: JobRequest) -> list[Claim]:
    """The claims without support, including the unchecked ones and, of a strict job, the undecided ones."""
    if grounding is None:
        return []
    strict = strictness_of(request) is Strictness.STRICT
    verdicts = UNGROUNDED | {Verdict.UNDECIDED} if strict else UNGROUNDED
    return [claim for claim in grounding.claims if claim.verdict in verdicts]


def undecided_claims(grounding: Grounding | None, request: JobRequest) -> list[Claim]:
    """The claims that leave an answer unverified: the undecided ones, of a job that is neither strict nor lenient."""
    if grounding is None or strictness_of(request) is not Strictness.BALANCED:
        return []
    return [claim for claim in grounding.claims if claim.verdict is Verdict.UNDECIDED]


def ungrounded_values(grounding: Grounding | None) -> list[Value]:
    """The values of the object without support, including the unchecked ones."""
    return [value for value in grounding.values if value.verdict in UNGROUNDED] if grounding else []


def value_text(value: Value) -> str:
    """A value with its path and the reason, on one line."""
    text = " ".join(str(value.value).split())
    text = text if len(text) <= _LONGEST_NAMED else text[:_LONGEST_NAMED] + "…"
    return f"{value.path}: {text} ({value.reason})" if value.reason else f"{value.path}: {text}"


def claim_text(claim: Claim, processed: Processed) -> str:
    """The text of a claim on one line, without citation markers."""
    start, markers = claim.start_pos, processed.markers
    near = markers[max(0, bisect_left(markers, (start,)) - 1) : bisect_left(markers, (claim.end_pos,))]
    inside = [Span(max(0, mark.start - start), max(0, mark.end - start)) for mark in near]
    bare = strip_markers(processed.response[start : claim.end_pos], inside)[: claim.end_pos - start]
    words = " ".join(own_words(processed, bare).split())
    for mark in ".,;:!?":
        words = words.replace(f" {mark}", mark)
    # A comma separates two superscripts.
    words = words.rstrip(" ,")
    return words if len(words) <= _LONGEST_NAMED else words[:_LONGEST_NAMED] + "…"


# ---- another round ---------------------------------------------------------------------------------------------


def another_round(answer: CheckedAnswer) -> Correction | None:
    """The correction to ask of the same model; None if the answer needs none, or is one."""
    job, processed = answer.job, answer.processed
    if answer.completion is None or job.round % ROUNDS_PER_LEVEL or job.given_up is not None:
        return None
    if job.recheck is not None:
        # A recheck pays for no generation.
        return None
    config = job.request.config
    faults = tuple(_form_faults(answer))
    named: tuple[str, ...] = ()
    if config.require_grounding and config.on_ungrounded is OnUngrounded.RETRY:
        # An unchecked claim is no fault of the answer.
        claims = ungrounded_claims(answer.grounding, job.request)
        claims = [claim for claim in claims if claim.verdict is not Verdict.UNCHECKED]
        values = [value for value in ungrounded_values(answer.grounding) if value.verdict is not Verdict.UNCHECKED]
        named = (
            *(f'"{claim_text(claim, processed)}"' for claim in claims[:MAX_NAMED]),
            *(f"the value at {value_text(value)}" for value in values[:MAX_NAMED]),
        )
    if not faults and not named:
        return None
    return Correction(
        purpose="reask" if faults else "correct",
        problems=(*faults, *(f"the sources do not support: {claim}" for claim in named)) if faults else named,
        previous=UNSTORABLE.sub("\ufffd", answer.completion.text)[:MAX_PREVIOUS_CHARACTERS],
    )


def _form_faults(answer: CheckedAnswer) -> Iterator[str]:
    """Defects of the form that make an answer unusable, in words for the model."""
    config, processed, completion = answer.job.request.config, answer.processed, answer.completion
    if completion is None or (processed.abstained and processed.parsed) or cut_while_thinking(completion):
        return
    if not processed.parsed and completion.finish_reason is FinishReason.LENGTH:
        yield f"it broke off at {config.max_tokens} tokens; write a shorter one"
    elif not processed.parsed:
        yield "it is not wholly in the form asked for, so that a part of it can't be read"
    elif processed.empty:
        yield "it is empty"
    if completion.protocol is AnswerProtocol.SEGMENTS:
        yield from processed.violations
    if is_too_long(answer):
        limit = config.max_response_length
        yield f"with its citations it has {len(processed.response)} characters, at most {limit} are allowed"


def is_too_long(answer: CheckedAnswer) -> bool:
    """Tells whether a model's answer exceeds ``max_response_length``."""
    limit = answer.job.request.config.max_response_length
    return answer.completion is not None and limit is not None and len(answer.processed.response) > limit


def earlier_answer_reason(job: Leased) -> str | None:
    """The reason that an earlier answer is final in spite of further rounds; None unless they were given up."""
    if job.correction is None or job.given_up is None:
        return None
    models = {ask.level for ask in job.correction.asks}
    if len(models) <= 1:
        return f"the model was asked again, but {job.given_up}; this is its first answer"
    winner = next((ask for ask in job.correction.asks if ask.won), None)
    name = (winner and (winner.model or winner.provider)) or "the first model"
    return f"{len(models)} models were asked, but {job.given_up}; this is the answer of {name}"


def refusal_message(completion: Completion) -> str:
    """The message of a refusal or a content filter."""
    return completion.refusal or f"the provider gave no answer: {completion.finish_reason.value}"


# ---- the outcome -----------------------------------------------------------------------------------------------


def decide_outcome(answer: CheckedAnswer, remaining: Processed, amendments: tuple[str, ...] = ()) -> Ruling:
    """The outcome of an answer.

    ``postprocess`` tells that an answer abstains, the check takes that back where a source says what it denies
    (``run_checkers``), and a job whose sources are too few or too far off abstains without a call (``tasks/generate.py``).

    Args:
        answer: the answer before amendments.
        remaining: the answer after amendments.
        amendments: the amendments, in words.
    """
    if answer.processed.abstained:
        speaker = "the model" if answer.completion is not None else "the supplied answer"
        return Ruling(Outcome.ABSTAINED, (f"{speaker} says that the sources do not answer",))
    reasons = [*_of_the_form(answer), *_of_the_check(answer)]
    config = answer.job.request.config
    ungrounded = ungrounded_claims(answer.grounding, answer.job.request) or ungrounded_values(answer.grounding)
    if config.require_grounding and config.on_ungrounded is OnUngrounded.REJECT and ungrounded:
        return Ruling(Outcome.REJECTED, tuple(reasons))
    reasons.extend(amendments)
    if not remaining.statements and amendments:
        return Ruling(Outcome.ABSTAINED, tuple(reasons))
    if answer.completion is not None and answer.processed.empty and not has_object(answer):
        failure = Failure(
            kind=FailureKind.BAD_ANSWER, message=f"the model's answer holds no text: {_ending(answer.completion)}"
        )
        return Ruling(Outcome.PARTIAL, tuple(reasons), failure)
    if (shortfall := _missing_citations(answer, remaining)) is not None:
        reasons.append(shortfall)
        if config.missing_citations is MissingCitations.FAILED:
            failure = Failure(kind=FailureKind.MISSING_CITATIONS, message=f"the answer has {shortfall}")
            return Ruling(Outcome.PARTIAL, tuple(reasons), failure)
    return Ruling(Outcome.PARTIAL, tuple(reasons)) if reasons else _without_faults(answer)


def _without_faults(answer: CheckedAnswer) -> Ruling:
    """Answered, or unverified by a claim that words can't decide."""
    request = answer.job.request
    count = len(undecided_claims(answer.grounding, request)) if request.config.require_grounding else 0
    if not count:
        return Ruling(Outcome.ANSWERED, ())
    return Ruling(Outcome.UNVERIFIED, (f"words can't decide {count} of {_checkable(answer.grounding)} claims",))


def _checkable(grounding: Grounding | None) -> int:
    """The number of claims that can be checked."""
    claims = grounding.claims if grounding is not None else ()
    return sum(claim.verdict is not Verdict.NOT_CHECKABLE for claim in claims)


def _missing_citations(answer: CheckedAnswer, remaining: Processed) -> str | None:
    """The number of citations, if they are too few."""
    config = answer.job.request.config
    # A supplied answer without citations needs none.
    must_cite = config.include_citations and (answer.completion is not None or bool(remaining.markers))
    if not must_cite or len(remaining.citations) >= config.min_citations:
        return None
    return f"{len(remaining.citations)} citations, at least {config.min_citations} are required"


def citation_faults(answer: CheckedAnswer) -> str | None:
    """The fault of an answer's citations: too few, or none that leads to a source; None without one."""
    if (shortfall := _missing_citations(answer, answer.processed)) is not None:
        return f"it has {shortfall}"
    if answer.grounding is not None and _broken_citations(answer.processed, answer.grounding):
        return "none of its citations leads to a place in a source"
    return None


def cut_while_thinking(completion: Completion) -> bool:
    """Tells that the limit was reached before the first word: asked again, the model would think as long."""
    return completion.finish_reason is FinishReason.LENGTH and not completion.text.strip()


def has_object(answer: CheckedAnswer) -> bool:
    """Tells whether an answer without text has the object that the caller asked for."""
    return answer.job.request.config.output_schema is not None and answer.processed.structured is not None


def _ending(completion: Completion) -> str:
    usage = completion.usage or Usage()
    # Of an empty text all tokens are thoughts, also where a server does not count them apart.
    thoughts = usage.reasoning_tokens or usage.output_tokens
    if completion.finish_reason is FinishReason.TOOL_CALL:
        return "it called a tool in the place of an answer"
    if cut_while_thinking(completion):
        thinking = f"it thought for {thoughts} tokens and" if thoughts else "it"
        return f"{thinking} reached max_tokens before its first word: raise max_tokens, or lower reasoning_effort"
    if not completion.text.strip():
        return f"it thought for {thoughts} tokens and wrote nothing" if thoughts > 1 else "it is empty"
    if completion.finish_reason is FinishReason.LENGTH:
        return "it broke off at max_tokens before its first sentence"
    return "its reply is no answer in any form that can be read"


def _of_the_form(answer: CheckedAnswer) -> Iterator[str]:
    completion, processed = answer.completion, answer.processed
    if why := earlier_answer_reason(answer.job):
        yield why
    if completion is not None and completion.finish_reason is FinishReason.LENGTH:
        yield f"the answer was cut off at {answer.job.request.config.max_tokens} tokens"
    elif completion is not None and completion.finish_reason is not FinishReason.STOP:
        yield f"the model stopped early: {completion.finish_reason.value}"
    if not processed.parsed:
        yield "the answer was not in the required form"
    if processed.format_problem:
        yield processed.format_problem
    yield from processed.violations


def _of_the_check(answer: CheckedAnswer) -> Iterator[str]:
    grounding = answer.grounding
    if grounding is None:
        return
    for name, why in grounding.failed_checkers.items():
        yield f"the check '{name}' gave no verdict: {why}"
    if answer.job.request.config.require_grounding:
        checkable = _checkable(grounding)
        if ungrounded_claims(grounding, answer.job.request):
            yield f"{_doubtful_counts(grounding)} of {checkable} claims"
        if not checkable and not grounding.values:
            yield "it states nothing that can be checked"
    values = ungrounded_values(grounding)
    if answer.job.request.config.require_grounding and values:
        paths = ", ".join(value.path for value in values[:MAX_NAMED])
        more = f" and {len(values) - MAX_NAMED} more" if len(values) > MAX_NAMED else ""
        yield f"{len(values)} of {len(grounding.values)} values of the object are not in the quoted evidence: {paths}{more}"
    if count := _broken_citations(answer.processed, grounding):
        yield f"none of its citations ({count}) leads to a place in a source"


def _doubtful_counts(grounding: Grounding) -> str:
    """The numbers of claims without support, by verdict."""
    counts = [(verdict, grounding.counts.get(verdict, 0)) for verdict in sorted(Verdict, key=lambda each: each.rank)]
    return ", ".join(f"{count} {verdict.value}" for verdict, count in counts if count and verdict.is_doubtful)


def _broken_citations(processed: Processed, grounding: Grounding) -> int:
    """The number of citations if all are broken: of no source, with a quote of its own, or of a source that does not help."""
    quoted = any(citation.quote.strip() for segment in processed.canonical.segments for citation in segment.citations)
    broken: set[tuple[int, int]] = set()
    for claim, statement in zip(grounding.claims, processed.statements, strict=True):
        # A marker without a quote may cite what other words than its own say.
        supported = claim.verdict in {Verdict.SUPPORTED, Verdict.UNDECIDED} and not claim.miscited and not quoted
        cited = [processed.citations[position] for position in statement.citations]
        if any(citation.verified or supported for citation in cited):
            return 0
        broken.update((citation.start_pos, citation.source_index) for citation in cited)
        broken.update((statement.sentence, -number) for number in statement.unknown)
    return len(broken)


# ---- amendments ------------------------------------------------------------------------------------------------------

MAX_WARNED = 50
"""Most claims with a warning each; the result has all claims."""

_LISTED_IN = frozenset({OutputFormat.MARKDOWN, OutputFormat.PLAIN, OutputFormat.BULLETS, OutputFormat.STEPS})
_LABELS = {
    Verdict.UNSUPPORTED: "not supported by the sources",
    Verdict.CONTRADICTED: "contradicted by the sources",
    Verdict.UNDECIDED: "words can't tell whether the sources support it",
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
    claims = ungrounded_claims(answer.grounding, answer.job.request)
    if claims and config.require_grounding and config.on_ungrounded is OnUngrounded.REDACT:
        shorter = redact(answer.job.request, answer.processed, [(claim.start_pos, claim.end_pos) for claim in claims])
        removed = tuple(f"removed, without support: {claim.text}" for claim in claims)
        answer = _check(answer, replace(shorter, warnings=(*shorter.warnings, *removed)))
        amendments.append("sentences without support were removed")
    if is_too_long(answer) and config.max_response_length is not None:
        answer, amendment = _shorten(answer, config.max_response_length)
        amendments.append(amendment)
    return answer, tuple(amendments)


def with_warnings(request: JobRequest, processed: Processed, grounding: Grounding | None) -> Processed:
    """The answer with a warning for each unsupported or undecided claim and each unsupported value."""
    claims = [*ungrounded_claims(grounding, request), *undecided_claims(grounding, request)]
    values = ungrounded_values(grounding)
    disputed = [claim for claim in grounding.claims if claim.is_disputed] if grounding is not None else []
    if not claims and not values and not disputed:
        return processed
    warnings = [f"{_LABELS[claim.verdict]}: {claim_text(claim, processed)}" for claim in claims[:MAX_WARNED]]
    warnings += [
        f"the sources differ: {claim_text(claim, processed)} ({claim.reason})" for claim in disputed[:MAX_WARNED]
    ]
    warnings += [f"not in the quoted evidence: {value_text(value)}" for value in values[:MAX_WARNED]]
    if len(values) > MAX_WARNED:
        warnings.append(f"{len(values) - MAX_WARNED} more values of the object are not in the quoted evidence")
    if len(claims) > MAX_WARNED:
        warnings.append(f"{len(claims) - MAX_WARNED} more claims are not supported, not decided or not checked")
    return replace(processed, warnings=(*processed.warnings, *warnings))


def with_appendix(request: JobRequest, processed: Processed, grounding: Grounding | None) -> str:
    """The response with a list of the unsupported claims below it.

    All offsets stay, because the list comes last. A supplied answer, JSON and tables get no list.
    """
    claims, config = ungrounded_claims(grounding, request), request.config
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
