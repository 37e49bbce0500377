"""An answer whose judge returns probabilities, from the question to the record."""

import asyncio
from dataclasses import replace
from decimal import Decimal
from typing import Any

import orjson
import pytest

from schemas.failure import FailureKind
from schemas.grounding import JudgeVerdict, Verdict
from schemas.job import JobRequest
from schemas.model_call import FinishReason
from schemas.states import JobState, Outcome
from tasks.errors import ProviderError
from tasks.ports import JobView
from tests.judge_harness import (
    LEASE,
    PARAPHRASE,
    PLAIN,
    SOURCE,
    WRONG,
    JudgeHarness,
    claims_of,
    grounding_of,
    supplied_answer,
)
from tests.scripted_provider import Act, ScriptedProvider, answers, raises


def gives(*probabilities: float | str | None) -> Act:
    """A probability for each claim in turn; None: it is left out."""
    entries = [
        {"question": at, "probability": chance} for at, chance in enumerate(probabilities, 1) if chance is not None
    ]
    return answers(orjson.dumps({"answers": entries}).decode())


def judge_harness(*acts: Act) -> JudgeHarness:
    return JudgeHarness(ScriptedProvider(*acts, gives_probabilities=True))


def check_answer(request: JobRequest, *acts: Act) -> tuple[JudgeHarness, JobView]:
    harness = judge_harness(*acts)

    async def scenario() -> JobView:
        await harness.submit(request)
        return await harness.finish()

    return harness, asyncio.run(scenario())


def test_a_question_for_each_open_claim_and_a_record_of_each_reply() -> None:
    harness, view = check_answer(supplied_answer(PARAPHRASE, PLAIN), gives(0.9))

    paraphrase, plain = claims_of(view)
    assert (plain.checker, plain.judge) == ("lexical", None)
    assert (paraphrase.verdict, paraphrase.checker) == (Verdict.SUPPORTED, "judge")
    assert paraphrase.reason.startswith("the judge gives it a probability of 0.90 and quotes nothing")
    judge_record = paraphrase.judge
    assert judge_record is not None
    assert (judge_record.verdict, judge_record.probability) == (Verdict.SUPPORTED, 0.9)
    assert judge_record.before is not None
    assert judge_record.before < 0.5 < (paraphrase.score or 0)
    place = paraphrase.evidence[0]
    assert "lorries carry it" in SOURCE[place.start : place.end]
    assert grounding_of(view).checkers["judge"] == "scripted:scripted-1 by _decide@2"
    assert (view.outcome, view.cost_usd) == (Outcome.ANSWERED, Decimal("0.002"))
    (call,) = harness.judge.calls
    (question,) = call.prompt.snapshot.questions
    assert PARAPHRASE in question
    assert call.request.config.max_tokens == 1
    assert call.prompt.snapshot.proves([SOURCE])


def test_one_that_says_no_decides_and_shows_no_passage_of_its_own() -> None:
    _, view = check_answer(supplied_answer(WRONG), gives(0.02))

    (claim,) = claims_of(view)
    assert (claim.verdict, claim.checker) == (Verdict.UNSUPPORTED, "judge")
    assert view.outcome is Outcome.PARTIAL


@pytest.mark.parametrize(("probability", "score"), [(0.52, 0.52), (0.999, 0.95)])
def test_it_decides_from_one_half_on_and_is_never_certain(probability: float, score: float) -> None:
    _, view = check_answer(supplied_answer(PARAPHRASE), gives(probability))

    (claim,) = claims_of(view)
    assert (claim.verdict, claim.score) == (Verdict.SUPPORTED, score)


@pytest.mark.parametrize(
    "act",
    [gives(0.9, None), answers('{"answers": [{"question": 1, "probability": 0.9}, {"question": 2, "refused": true}]}')],
)
def test_a_claim_without_a_probability_is_unchecked(act: Act) -> None:  # fmt: skip
    _, view = check_answer(supplied_answer(PARAPHRASE, WRONG), act)

    first, second = claims_of(view)
    assert (first.verdict, second.verdict) == (Verdict.SUPPORTED, Verdict.UNCHECKED)
    assert (second.score, second.judge, second.checker) == (None, None, None)
    assert grounding_of(view).failed_checkers == {}
    assert grounding_of(view).decided == {"judge": 1}


@pytest.mark.parametrize(
    ("act", "message", "spent"),
    [
        (gives(90.0, 0.1), "probabilities from 0 to 1", 1),
        (gives("likely"), "probabilities from 0 to 1", 1),
        (gives(None, None), "could not be read", 1),
        (answers('{"answers": [{"ques'), "could not be read", 1),
        (answers("", finish_reason=FinishReason.REFUSAL, refusal="declined every question"), "declined every", 1),
        (raises(ProviderError(FailureKind.BAD_ANSWER, "is no JSON")), "is no JSON", 4),
    ],
)
def test_a_reply_off_the_scale_is_a_failed_judge_and_no_failed_job(act: Act, message: str, spent: int) -> None:
    harness, view = check_answer(supplied_answer(PARAPHRASE, WRONG), act)

    assert [claim.verdict for claim in claims_of(view)] == [Verdict.UNCHECKED] * 2
    assert message in grounding_of(view).failed_checkers["judge"]
    assert (view.state, view.outcome) == (JobState.COMPLETED, Outcome.PARTIAL)
    assert len(harness.judge.calls) == spent


@pytest.mark.parametrize(("cited", "miscited"), [(1, False), (2, True)])
def test_only_one_that_saw_no_cited_source_makes_a_wrong_citation(cited: int, miscited: bool) -> None:  # noqa: FBT001
    request = JobRequest(
        query="q",
        context=({"content": SOURCE}, {"content": "Mars has two moons."}),
        response=f"{PARAPHRASE[:-1]} [{cited}].",
        config={"checkers": ["lexical", "judge"], "judge": "scripted"},
    )
    _, view = check_answer(request, gives(0.95))

    (claim,) = claims_of(view)
    assert (claim.verdict, claim.miscited) == (Verdict.SUPPORTED, miscited)


class _Killed(BaseException):
    pass


async def _dies(_: object) -> set[Any]:
    raise _Killed


async def test_a_stored_reply_is_read_in_the_form_of_its_request_under_any_judge() -> None:
    harness = judge_harness(gives(0.9))
    await harness.submit(supplied_answer(PARAPHRASE))
    finish, harness.ledger.queue.finish = harness.ledger.queue.finish, _dies  # type: ignore[method-assign,assignment]
    with pytest.raises(_Killed):
        await harness.check(await harness.lease())
    harness.ledger.queue.finish = finish  # type: ignore[method-assign]
    harness.ledger.advance(LEASE * 2)
    await harness.ledger.duties.rescue(10, None)
    again = await harness.lease()
    assert again.judged is not None
    after = replace(harness, judge=ScriptedProvider(raises(AssertionError("asked again"))))
    await after.check(again)

    (claim,) = claims_of(await harness.view())
    assert claim.judge is not None
    assert claim.judge.probability == 0.9


def test_a_judge_that_writes_is_asked_in_words_and_its_word_is_on_record() -> None:
    harness = JudgeHarness(
        ScriptedProvider(answers('{"verdicts": [{"claim": 1, "verdict": "unsupported", "passage": 0, "quote": ""}]}'))
    )

    async def scenario() -> JobView:
        await harness.submit(supplied_answer(PARAPHRASE))
        return await harness.finish()

    (claim,) = claims_of(asyncio.run(scenario()))
    assert harness.judge.calls[0].prompt.snapshot.questions == ()
    assert claim.judge is not None
    assert claim.judge == JudgeVerdict(verdict=Verdict.UNSUPPORTED, before=claim.judge.before)
