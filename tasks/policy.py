"""Decides what becomes of an answer by what the config asks for: asked again, gone back from, or which outcome. Pure.

The rules stand as tables in docs/outcomes.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.completion import Completion, FinishReason
from schemas.failure import Failure, FailureKind
from schemas.generation import AnswerProtocol, MissingCitations, OnUngrounded
from schemas.grounding import Claim, Grounding, Verdict
from schemas.prompt import Correction
from schemas.states import Outcome
from tasks.answers.reading import UNSTORABLE
from tasks.answers.render import strip_markers
from tasks.correcting import MAX_PREVIOUS_CHARACTERS
from tasks.ports import Leased
from tasks.postprocess import Processed

UNGROUNDED = frozenset({Verdict.UNSUPPORTED, Verdict.CONTRADICTED, Verdict.UNCHECKED})

MAX_ROUNDS = 2
"""Rounds of generation in all: the first answer and one more, whatever it is asked for."""
MAX_NAMED = 20
"""Claims that a model is told of."""
_LONGEST_NAMED = 500

NO_ANSWER = frozenset({FinishReason.REFUSAL, FinishReason.CONTENT_FILTER})
"""Stops that leave nothing to check."""


@dataclass(frozen=True, slots=True)
class Examined:
    """An answer as it was read and checked; without a completion it was given with a check-only job."""

    job: Leased
    completion: Completion | None
    processed: Processed
    grounding: Grounding | None


@dataclass(frozen=True, slots=True)
class Ruling:
    """What an answer comes to, and why it is not plainly answered; a ``failure`` takes the outcome's place."""

    outcome: Outcome
    reasons: tuple[str, ...]
    failure: Failure | None = None


def ungrounded(grounding: Grounding | None) -> list[Claim]:
    """The claims that nothing supports, those that could not be checked included."""
    return [claim for claim in grounding.claims if claim.verdict in UNGROUNDED] if grounding else []


def quoted(claim: Claim, processed: Processed) -> str:
    """A claim's words on one line, without its citation markers."""
    bare = strip_markers(processed.response, processed.markers)[claim.start_pos : claim.end_pos]
    words = " ".join(bare.split())
    for mark in ".,;:!?":
        words = words.replace(f" {mark}", mark)
    # Between two superscripts stands a comma.
    words = words.rstrip(" ,")
    return words if len(words) <= _LONGEST_NAMED else words[:_LONGEST_NAMED] + "…"


# ---- another round ---------------------------------------------------------------------------------------------


def another_round(answer: Examined) -> Correction | None:
    """Why the job is to be asked again; None when it is not, or was already."""
    job, processed = answer.job, answer.processed
    if answer.completion is None or job.round + 1 >= MAX_ROUNDS or job.correction is not None:
        return None
    if job.recheck is not None:
        # Whoever checks again pays for no generation.
        return None
    config = job.request.config
    faults = tuple(_form_faults(answer))
    named: tuple[str, ...] = ()
    if config.require_grounding and config.on_ungrounded is OnUngrounded.RETRY:
        # What could not be checked is no fault of the answer's.
        claims = [claim for claim in ungrounded(answer.grounding) if claim.verdict is not Verdict.UNCHECKED]
        named = tuple(f'"{quoted(claim, processed)}"' for claim in claims[:MAX_NAMED])
    if not faults and not named:
        return None
    grounding = answer.grounding
    return Correction(
        purpose="reask" if faults else "correct",
        problems=(*faults, *(f"the sources do not support: {claim}" for claim in named)) if faults else named,
        previous=UNSTORABLE.sub("\ufffd", answer.completion.text)[:MAX_PREVIOUS_CHARACTERS],
        parsed=processed.parsed,
        violations=len(processed.violations),
        supported=grounding.counts.get(Verdict.SUPPORTED, 0) if grounding else 0,
        ungrounded=len(ungrounded(grounding)),
    )


def _form_faults(answer: Examined) -> Iterator[str]:
    """What makes an answer unusable by its form, in words for the model."""
    config, processed, completion = answer.job.request.config, answer.processed, answer.completion
    if completion is None or (processed.abstained and processed.parsed):
        return
    if not processed.parsed and completion.finish_reason is FinishReason.LENGTH:
        yield f"it broke off at {config.max_tokens} tokens; write a shorter one"
    elif not processed.parsed:
        yield "it is not wholly in the form asked for, so that a part of it can't be read"
    elif not processed.response.strip():
        yield "it is empty"
    if completion.protocol is AnswerProtocol.SEGMENTS:
        yield from processed.violations
    if is_too_long(answer):
        limit = config.max_response_length
        yield f"with its citations it has {len(processed.response)} characters, at most {limit} are allowed"


def is_too_long(answer: Examined) -> bool:
    """Whether a model's answer is over ``max_response_length``."""
    limit = answer.job.request.config.max_response_length
    return answer.completion is not None and limit is not None and len(answer.processed.response) > limit


def why_not_better(answer: Examined) -> str | None:
    """Why the answer before is to be kept instead of this one of a second round; None: this one is taken."""
    before, processed, completion = answer.job.correction, answer.processed, answer.completion
    if before is None or completion is None or answer.job.round == 0:
        return None
    if processed.abstained:
        return "the model then gave no answer" if before.supported else None
    if processed.parsed and not before.parsed and processed.response.strip():
        return None
    count = len(ungrounded(answer.grounding))
    worse = {
        "the second answer was empty": not processed.response.strip(),
        "the second answer was not in the form asked for": before.parsed and not processed.parsed,
        "the second answer broke off": before.parsed and completion.finish_reason is not FinishReason.STOP,
        f"the second answer had {count} claims without support, the first {before.ungrounded}": count
        > before.ungrounded,
        "the object of the second answer did not satisfy output_schema": before.violations < len(processed.violations),
    }
    return next((why for why, holds in worse.items() if holds), None)


def why_first_answer(job: Leased) -> str | None:
    """Why the first answer is the last although the model was asked again; None when it was not given up."""
    correction = job.correction
    if correction is None or correction.given_up is None:
        return None
    return f"the model was asked again, but {correction.given_up}; this is its first answer"


def why_no_answer(completion: Completion) -> str:
    """What a refusal or a content filter said."""
    return completion.refusal or f"the provider gave no answer: {completion.finish_reason.value}"


# ---- the outcome -----------------------------------------------------------------------------------------------


def rule(answer: Examined, kept: Processed, amendments: tuple[str, ...] = ()) -> Ruling:
    """The outcome of an answer.

    Args:
        answer: as it was read and checked.
        kept: what is left of it after sentences were taken out.
        amendments: what was taken out, in words.
    """
    if answer.processed.abstained:
        who = "the model" if answer.completion is not None else "the answer given"
        return Ruling(Outcome.ABSTAINED, (f"{who} says that the sources do not answer",))
    reasons = [*_of_the_form(answer), *_of_the_check(answer)]
    config = answer.job.request.config
    if config.require_grounding and config.on_ungrounded is OnUngrounded.REJECT and ungrounded(answer.grounding):
        return Ruling(Outcome.REJECTED, tuple(reasons))
    reasons.extend(amendments)
    if not kept.statements and amendments:
        return Ruling(Outcome.ABSTAINED, tuple(reasons))
    # A given answer that cites nothing was not asked to.
    asked = config.include_citations and (answer.completion is not None or bool(kept.markers))
    if asked and len(kept.citations) < config.min_citations:
        told = f"{len(kept.citations)} citations, at least {config.min_citations} are asked for"
        reasons.append(told)
        if config.missing_citations is MissingCitations.FAILED:
            failure = Failure(kind=FailureKind.MISSING_CITATIONS, message=f"the answer has {told}")
            return Ruling(Outcome.PARTIAL, tuple(reasons), failure)
    return Ruling(Outcome.PARTIAL if reasons else Outcome.ANSWERED, tuple(reasons))


def _of_the_form(answer: Examined) -> Iterator[str]:
    completion, processed = answer.completion, answer.processed
    if why := why_first_answer(answer.job):
        yield why
    if completion is not None and completion.finish_reason is FinishReason.LENGTH:
        yield f"the answer was cut off at {answer.job.request.config.max_tokens} tokens"
    elif completion is not None and completion.finish_reason is not FinishReason.STOP:
        yield f"the model stopped early: {completion.finish_reason.value}"
    if not processed.parsed:
        yield "the answer was not in the form asked for"
    if processed.format_problem:
        yield processed.format_problem
    yield from processed.violations


def _of_the_check(answer: Examined) -> Iterator[str]:
    grounding = answer.grounding
    if grounding is None:
        return
    for name, why in grounding.failed_checkers.items():
        yield f"the check '{name}' gave no verdict: {why}"
    if answer.job.request.config.require_grounding and (count := len(ungrounded(grounding))):
        checkable = sum(claim.verdict is not Verdict.NOT_CHECKABLE for claim in grounding.claims)
        yield f"{count} of {checkable} claims are not supported"
