"""Decides after each round whether a model is asked again, which model that is, and which of the answers wins.

A round is one answer of one model. A model has up to two, its first answer and a correction; then the next model of
``escalate`` is asked. The rules are in docs/cascade.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Literal

from schemas.grounding import Verdict
from schemas.model_call import Ask, Completion, Correction, FinishReason
from schemas.states import JobState, Outcome, Step
from tasks.policy.outcome import (
    CheckedAnswer,
    citation_faults,
    decide_outcome,
    has_object,
    ungrounded_claims,
    ungrounded_values,
)
from tasks.policy.sufficiency import sources_suffice
from tasks.ports import ROUNDS_PER_LEVEL, Advance, Leased

CHECK_WITHIN = timedelta(seconds=30)
"""Time that is kept for the check of an answer before a deadline."""


@dataclass(frozen=True, slots=True)
class AnotherRound:
    """The policy asks for another round of generation."""

    round: int
    correction: Correction


@dataclass(frozen=True, slots=True)
class EarlierAnswer:
    """An earlier round has the best answer, and no further round is begun: that one is to be finished, with this reason."""

    why: str
    asks: tuple[Ask, ...] | None = None
    """All rounds; None: those before this one, whose answer is lost."""


# ---- the next round --------------------------------------------------------------------------------------------------


def next_round(answer: CheckedAnswer, correction: Correction | None) -> AnotherRound | EarlierAnswer | None:
    """The round after a checked answer; None to finish this answer.

    Args:
        answer: the answer, checked, without amendments.
        correction: the correction that the policy asks of the same model; None for none.
    """
    job = answer.job
    if job.recheck is not None or job.given_up is not None or answer.completion is None:
        return None
    asks = _add(job, ask_of(answer))
    if correction is not None:
        again = correction.model_copy(update={"asks": asks, "cost_usd": job.cost_usd})
        return AnotherRound(job.round + 1, again)
    return _escalation(job, asks) or _earlier(asks)


def after_refusal(job: Leased, completion: Completion, why: str) -> AnotherRound | EarlierAnswer | None:
    """The round after an answer that its model or a filter refused; None to finish with it."""
    if job.recheck is not None or job.given_up is not None:
        return None
    asks = _add(job, _refused(job, completion, why))
    return _escalation(job, asks) or _earlier(asks)


def after_failure(job: Leased, why: str) -> Advance:
    """The next state of a job whose call of a later round failed for good: the next model, or the best answer."""
    asks = _add(job, _ask(job, None).model_copy(update={"shortfall": why}))
    following = _escalation(job, asks)
    return settle(job, why, asks) if following is None else advance(job, following, job.age_ms)


def settle(job: Leased, why: str, asks: Sequence[Ask] | None = None) -> Advance:
    """Returns the job to the check of the best answer so far, which is paid for, with the reason to ask no further."""
    before = job.correction or Correction(purpose="reask")
    if asks is None:
        asks = _add(job, _ask(job, None).model_copy(update={"shortfall": why}))
    best = best_of(asks)
    correction = before.model_copy(
        update={"given_up": why, "previous": "", "problems": (), "asks": mark_winner(asks, best.round)}
    )
    # Without earlier rounds in the ledger the first answer is the one to go back to.
    number = best.round if best.outcome is not None else 0
    return Advance(JobState.SCHEDULED, job.request.config.check_step, number, event="given_up", correction=correction)


def advance(job: Leased, following: AnotherRound | EarlierAnswer, age_ms: float) -> Advance:
    """The next state of a job by the decision about its next round; ``age_ms`` is its age now."""
    if isinstance(following, EarlierAnswer):
        return settle(job, following.why, following.asks)
    correction = following.correction.model_copy(update={"age_ms": round(age_ms, 3)})
    event = correction.purpose
    return Advance(JobState.SCHEDULED, Step.GENERATE, following.round, event=event, correction=correction)


def _escalation(job: Leased, asks: tuple[Ask, ...]) -> AnotherRound | None:
    """The first round of the next model; None if the best answer needs none, or no model or time is left."""
    level = job.level + 1
    if best_of(asks).shortfall is None or level > len(job.request.config.escalate) or not has_time(job):
        return None
    if job.replay is not None:
        # Asked again to compare models and prompts: the answer of another model would be beside the question.
        return None
    correction = Correction(purpose="escalate", asks=asks, cost_usd=job.cost_usd)
    return AnotherRound(level * ROUNDS_PER_LEVEL, correction)


def has_time(job: Leased) -> bool:
    """Tells whether a call may take as long as it is allowed to, and its check can still end before the deadline."""
    needed = timedelta(seconds=job.request.config.timeout_s) + CHECK_WITHIN
    return job.time_left is None or job.time_left > max(needed, job.window_gap)


def _earlier(asks: tuple[Ask, ...]) -> EarlierAnswer | None:
    best, last = best_of(asks), asks[-1]
    return None if best is last else EarlierAnswer(_why_worse(last, best), asks)


# ---- the best answer -------------------------------------------------------------------------------------------------


def best_of(asks: Sequence[Ask]) -> Ask:
    """The best answer by its verdicts, then grounding, then confidence; the later one of equals."""
    return max(asks, key=_rank)


_READABLE = 4
_ABSTAINED = 3
_WITHOUT_SUPPORT = 2
_UNUSABLE = 1
_REFUSED = 0
_NONE = -1


def _rank(ask: Ask) -> tuple[float, ...]:
    return (
        _tier(ask),
        ask.parsed,
        ask.complete,
        ask.contradicted == 0,
        -ask.ungrounded,
        -ask.violations,
        ask.grounding_score or 0.0,
        ask.confidence or 0.0,
        ask.round,
    )


def _tier(ask: Ask) -> int:
    """A part that is supported is worth more than no answer, and no answer more than one without any support."""
    if ask.outcome is None:
        return _NONE
    if ask.outcome is Outcome.REFUSED:
        return _REFUSED
    if ask.empty or ask.fails:
        return _UNUSABLE
    if ask.outcome is Outcome.ABSTAINED:
        return _ABSTAINED
    if ask.outcome is Outcome.REJECTED or not ask.parsed or (ask.ungrounded and not ask.supported):
        return _WITHOUT_SUPPORT
    return _READABLE


def mark_winner(asks: Sequence[Ask], number: int) -> tuple[Ask, ...]:
    """The rounds, with the one of this number as the winner."""
    return tuple(ask.model_copy(update={"won": ask.round == number}) for ask in asks)


def _why_worse(last: Ask, best: Ask) -> str:
    """The reason to take an earlier answer instead of the last one."""
    name = "the second answer" if last.round == 1 else f"the answer of {_name(last)}"
    other = "the first" if best.round == 0 else f"that of {_name(best)}"
    reasons = {
        last.shortfall or "": last.outcome is Outcome.REFUSED,
        f"with {name} the job would fail: {last.shortfall}": last.fails and not last.empty,
        "the model then gave no answer": last.outcome is Outcome.ABSTAINED,
        f"{name} was empty": last.empty,
        f"{name} was not in the required form": best.parsed and not last.parsed,
        f"{name} broke off": best.complete and not last.complete,
        f"{name} had {last.contradicted} claims that a source contradicts, {other} none": last.contradicted
        and not best.contradicted,
        f"{name} had {last.ungrounded} claims without support, {other} {best.ungrounded}": last.ungrounded
        > best.ungrounded,
        f"{name} had no claim with support": last.ungrounded and not last.supported,
        f"the object of {name} did not satisfy output_schema": last.violations > best.violations,
    }
    return next((why for why, holds in reasons.items() if holds), f"{name} was less certain than {other}")


def _name(ask: Ask) -> str:
    return f"{ask.provider}:{ask.model}" if ask.model else ask.provider or f"model {ask.level + 1}"


# ---- a round in figures ----------------------------------------------------------------------------------------------


def asks_of(answer: CheckedAnswer) -> tuple[Ask, ...] | None:
    """All rounds of a job that ends with this answer, for its record; None for a single round."""
    return _with_last(answer.job, lambda: ask_of(answer))


def asks_of_refusal(job: Leased, completion: Completion, why: str) -> tuple[Ask, ...] | None:
    """All rounds of a job that ends with a refusal; None for a single round."""
    return _with_last(job, lambda: _refused(job, completion, why))


def _with_last(job: Leased, last: Callable[[], Ask]) -> tuple[Ask, ...] | None:
    if job.correction is None or not job.correction.asks:
        return None
    return job.correction.asks if job.given_up is not None else mark_winner(_add(job, last()), job.round)


def _refused(job: Leased, completion: Completion, why: str) -> Ask:
    update = {"outcome": Outcome.REFUSED, "shortfall": f"the call was refused: {why}"}
    return _ask(job, completion).model_copy(update=update)


def ask_of(answer: CheckedAnswer) -> Ask:
    """A checked answer in figures."""
    grounding, processed = answer.grounding, answer.processed
    assert answer.completion is not None
    decision = decide_outcome(answer, processed)
    claims, values = ungrounded_claims(grounding, answer.job.request), ungrounded_values(grounding)
    return _ask(answer.job, answer.completion).model_copy(
        update={
            "outcome": decision.outcome,
            "parsed": processed.parsed,
            "complete": answer.completion.finish_reason is FinishReason.STOP,
            "empty": processed.empty and not has_object(answer),
            "fails": decision.failure is not None,
            "violations": len(processed.violations),
            "supported": grounding.counts.get(Verdict.SUPPORTED, 0) if grounding else 0,
            "ungrounded": len(claims) + len(values),
            "contradicted": [item.verdict for item in claims].count(Verdict.CONTRADICTED)
            + [item.verdict for item in values].count(Verdict.CONTRADICTED),
            "grounding_score": grounding.grounding_score if grounding else None,
            "confidence": grounding.confidence if grounding else None,
            "shortfall": decision.failure.message if decision.failure else _shortfall(answer),
        }
    )


def _ask(job: Leased, completion: Completion | None) -> Ask:
    """The round of a job; ``completion`` is None where its call failed."""
    correction = job.active_correction
    purpose: Literal["generate", "reask", "correct", "escalate"] = correction.purpose if correction else "generate"
    snapshot = completion.snapshot if completion else None
    return Ask(
        round=job.round,
        level=job.level,
        purpose=purpose,
        provider=snapshot.provider if snapshot else None,
        model=(snapshot.model_returned or snapshot.model_asked) if snapshot else None,
        cost_usd=_cost(job, completion),
        better=False,
    )


def _cost(job: Leased, completion: Completion | None) -> Decimal | None:
    """The cost of a round. A job counts all its runs, so that of a later run's first round is that of its answer."""
    if job.correction is not None:
        before = job.correction.cost_usd
        return None if before is None or job.cost_usd is None else job.cost_usd - before
    if job.run == 1:
        return job.cost_usd
    return completion.cost_usd if completion else None


def _add(job: Leased, ask: Ask) -> tuple[Ask, ...]:
    """The rounds of a job with this one."""
    before = job.correction.asks if job.correction else ()
    asks = (*before, ask)
    return (*before, ask.model_copy(update={"better": ask.outcome is not None and best_of(asks) is ask}))


def _shortfall(answer: CheckedAnswer) -> str | None:
    """The reason that an answer is not good enough for a job that names further models; None if it is."""
    processed, grounding, config = answer.processed, answer.grounding, answer.job.request.config
    if processed.abstained:
        return "it abstains although the sources suffice" if sources_suffice(answer.job.request) else None
    if not processed.parsed or processed.violations or (processed.empty and not has_object(answer)):
        return "it is not in the form asked for"
    verdicts = [claim.verdict for claim in ungrounded_claims(grounding, answer.job.request)]
    verdicts += [value.verdict for value in ungrounded_values(grounding)]
    # An unchecked claim is no fault of the answer.
    faults = len(verdicts) - verdicts.count(Verdict.UNCHECKED)
    if config.require_grounding and faults:
        return f"{faults} of its claims are not supported"
    return citation_faults(answer)
