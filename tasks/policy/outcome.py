"""Decides by the config whether an answer gets a second round, is dropped for the first one, and has which outcome.

All functions are pure. The rules are tables in docs/outcomes.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.completion import Completion, FinishReason
from schemas.failure import Failure, FailureKind
from schemas.generation import AnswerProtocol, MissingCitations, OnUngrounded
from schemas.grounding import Claim, Grounding, Verdict
from schemas.prompt import Correction
from schemas.states import Outcome
from tasks.answers.parse import UNSTORABLE
from tasks.answers.postprocess import Processed
from tasks.answers.rendered import strip_markers
from tasks.ports import Leased
from tasks.prompting.messages import MAX_PREVIOUS_CHARACTERS

UNGROUNDED = frozenset({Verdict.UNSUPPORTED, Verdict.CONTRADICTED, Verdict.UNCHECKED})

MAX_ROUNDS = 2
"""Most rounds of generation: the first answer and one correction."""
MAX_NAMED = 20
"""Most claims in a correction."""
_LONGEST_NAMED = 500

NO_ANSWER = frozenset({FinishReason.REFUSAL, FinishReason.CONTENT_FILTER})
"""Finish reasons without an answer to check."""


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """A parsed and checked answer; ``completion`` is None for the supplied answer of a check-only job."""

    job: Leased
    completion: Completion | None
    processed: Processed
    grounding: Grounding | None


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of an answer with its reasons; a ``failure`` replaces the outcome."""

    outcome: Outcome
    reasons: tuple[str, ...]
    failure: Failure | None = None


def ungrounded_claims(grounding: Grounding | None) -> list[Claim]:
    """The claims without support, including the unchecked ones."""
    return [claim for claim in grounding.claims if claim.verdict in UNGROUNDED] if grounding else []


def claim_text(claim: Claim, processed: Processed) -> str:
    """The text of a claim on one line, without citation markers."""
    bare = strip_markers(processed.response, processed.markers)[claim.start_pos : claim.end_pos]
    words = " ".join(bare.split())
    for mark in ".,;:!?":
        words = words.replace(f" {mark}", mark)
    # A comma separates two superscripts.
    words = words.rstrip(" ,")
    return words if len(words) <= _LONGEST_NAMED else words[:_LONGEST_NAMED] + "…"


# ---- another round ---------------------------------------------------------------------------------------------


def another_round(answer: CheckedAnswer) -> Correction | None:
    """The correction for a second round; None if the answer needs none or the job had one."""
    job, processed = answer.job, answer.processed
    if answer.completion is None or job.round + 1 >= MAX_ROUNDS or job.correction is not None:
        return None
    if job.recheck is not None:
        # A recheck pays for no generation.
        return None
    config = job.request.config
    faults = tuple(_form_faults(answer))
    named: tuple[str, ...] = ()
    if config.require_grounding and config.on_ungrounded is OnUngrounded.RETRY:
        # An unchecked claim is no fault of the answer.
        claims = [claim for claim in ungrounded_claims(answer.grounding) if claim.verdict is not Verdict.UNCHECKED]
        named = tuple(f'"{claim_text(claim, processed)}"' for claim in claims[:MAX_NAMED])
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
        ungrounded=len(ungrounded_claims(grounding)),
    )


def _form_faults(answer: CheckedAnswer) -> Iterator[str]:
    """Defects of the form that make an answer unusable, in words for the model."""
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


def is_too_long(answer: CheckedAnswer) -> bool:
    """Tells whether a model's answer exceeds ``max_response_length``."""
    limit = answer.job.request.config.max_response_length
    return answer.completion is not None and limit is not None and len(answer.processed.response) > limit


def regression_reason(answer: CheckedAnswer) -> str | None:
    """The reason to keep the first answer instead of the second one; None to take the second one."""
    before, processed, completion = answer.job.correction, answer.processed, answer.completion
    if before is None or completion is None or answer.job.round == 0:
        return None
    if processed.abstained:
        return "the model then gave no answer" if before.supported else None
    if processed.parsed and not before.parsed and processed.response.strip():
        return None
    count = len(ungrounded_claims(answer.grounding))
    worse = {
        "the second answer was empty": not processed.response.strip(),
        "the second answer was not in the required form": before.parsed and not processed.parsed,
        "the second answer broke off": before.parsed and completion.finish_reason is not FinishReason.STOP,
        f"the second answer had {count} claims without support, the first {before.ungrounded}": count
        > before.ungrounded,
        "the object of the second answer did not satisfy output_schema": before.violations < len(processed.violations),
    }
    return next((why for why, holds in worse.items() if holds), None)


def first_answer_reason(job: Leased) -> str | None:
    """The reason that the first answer is final in spite of a second round; None unless that round was given up."""
    correction = job.correction
    if correction is None or correction.given_up is None:
        return None
    return f"the model was asked again, but {correction.given_up}; this is its first answer"


def refusal_message(completion: Completion) -> str:
    """The message of a refusal or a content filter."""
    return completion.refusal or f"the provider gave no answer: {completion.finish_reason.value}"


# ---- the outcome -----------------------------------------------------------------------------------------------


def decide_outcome(answer: CheckedAnswer, remaining: Processed, amendments: tuple[str, ...] = ()) -> Decision:
    """The outcome of an answer.

    Args:
        answer: the answer before amendments.
        remaining: the answer after amendments.
        amendments: the amendments, in words.
    """
    if answer.processed.abstained:
        speaker = "the model" if answer.completion is not None else "the supplied answer"
        return Decision(Outcome.ABSTAINED, (f"{speaker} says that the sources do not answer",))
    reasons = [*_of_the_form(answer), *_of_the_check(answer)]
    config = answer.job.request.config
    if config.require_grounding and config.on_ungrounded is OnUngrounded.REJECT and ungrounded_claims(answer.grounding):
        return Decision(Outcome.REJECTED, tuple(reasons))
    reasons.extend(amendments)
    if not remaining.statements and amendments:
        return Decision(Outcome.ABSTAINED, tuple(reasons))
    # A supplied answer without citations needs none.
    must_cite = config.include_citations and (answer.completion is not None or bool(remaining.markers))
    if must_cite and len(remaining.citations) < config.min_citations:
        shortfall = f"{len(remaining.citations)} citations, at least {config.min_citations} are required"
        reasons.append(shortfall)
        if config.missing_citations is MissingCitations.FAILED:
            failure = Failure(kind=FailureKind.MISSING_CITATIONS, message=f"the answer has {shortfall}")
            return Decision(Outcome.PARTIAL, tuple(reasons), failure)
    return Decision(Outcome.PARTIAL if reasons else Outcome.ANSWERED, tuple(reasons))


def _of_the_form(answer: CheckedAnswer) -> Iterator[str]:
    completion, processed = answer.completion, answer.processed
    if why := first_answer_reason(answer.job):
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
    if answer.job.request.config.require_grounding and (count := len(ungrounded_claims(grounding))):
        checkable = sum(claim.verdict is not Verdict.NOT_CHECKABLE for claim in grounding.claims)
        yield f"{count} of {checkable} claims are not supported"
