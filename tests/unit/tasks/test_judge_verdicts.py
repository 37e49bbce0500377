"""Verdicts of a judge on an answer, and unchecked claims when the judge misbehaves."""

from decimal import Decimal

import pytest

from schemas.failure import FailureKind
from schemas.grounding import Verdict
from schemas.model_call import FinishReason
from schemas.states import JobState, Outcome
from tasks.errors import ProviderError
from tests.judge_harness import (
    PARAPHRASE,
    QUOTE,
    SOURCE,
    check_answer,
    claims_of,
    grounding_of,
    supplied_answer,
    verdict,
    verdicts_reply,
)
from tests.scripted_provider import Act, answers, raises

# ---- what the judge decides ------------------------------------------------------------------------------------


def test_only_what_the_words_leave_open_is_asked_and_the_quote_is_the_evidence() -> None:
    harness, view = check_answer(supplied_answer(PARAPHRASE), verdicts_reply(verdict(1, "supported", QUOTE)))

    (claim,) = claims_of(view)
    assert (claim.verdict, claim.checker) == (Verdict.SUPPORTED, "judge")
    first = claim.evidence[0]
    assert SOURCE[first.start : first.end] == QUOTE
    assert claim.score is not None
    assert 0.5 <= claim.score <= 0.95
    assert grounding_of(view).checkers["judge"] == "scripted:scripted-1 by _judge@2"
    assert grounding_of(view).confidence == claim.score
    assert view.outcome is Outcome.ANSWERED
    (call,) = harness.judge.calls
    assert call.request.config.max_tokens == 500
    assert call.prompt.reply_schema is not None
    assert call.prompt.snapshot.proves([SOURCE])
    assert view.cost_usd == Decimal("0.002")
    # What is published right away counts the judge, too.
    assert [job.cost_usd for job in harness.finals] == [Decimal("0.002")]


# ---- a judge that misbehaves -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (verdicts_reply(verdict(1, "supported", "these words stand nowhere")), "stand in no passage"),
        (verdicts_reply(verdict(2, "unsupported")), "left it out"),
        (answers('{"verdicts": [{"claim": 1, "verd'), "could not be read"),
        (answers("no", finish_reason=FinishReason.REFUSAL, refusal="not me"), "not me"),
        (raises(ProviderError(FailureKind.AUTHENTICATION, "bad key")), "bad key"),
        (raises(ZeroDivisionError("a defect")), "a defect"),
    ],
)
def test_without_a_verdict_that_counts_a_claim_is_unchecked_and_the_job_completes(act: Act, message: str) -> None:
    _, view = check_answer(supplied_answer(PARAPHRASE), act)

    (claim,) = claims_of(view)
    assert (view.state, view.outcome) == (JobState.COMPLETED, Outcome.PARTIAL)
    assert (claim.verdict, claim.checker, claim.score) == (Verdict.UNCHECKED, None, None)
    assert message in claim.reason
    assert grounding_of(view).confidence is None


@pytest.mark.parametrize("judge", [None, "nobody", "nobody:m"])
def test_without_a_judge_the_record_says_so(judge: str | None) -> None:
    harness, view = check_answer(
        supplied_answer(PARAPHRASE, judge=judge), verdicts_reply(verdict(1, "supported", QUOTE))
    )

    assert harness.judge.calls == []
    reason = grounding_of(view).failed_checkers["judge"]
    assert reason.startswith("no provider 'nobody'" if judge else "no judge is configured")
    assert view.outcome is Outcome.PARTIAL
