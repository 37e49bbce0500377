"""An answer whose judge returns probabilities, from the question to the record."""

import asyncio
from dataclasses import replace

import orjson
import pytest

from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.ports import JobView
from tests.judge_harness import (
    PARAPHRASE,
    SOURCE,
    JudgeHarness,
    claims_of,
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


@pytest.mark.parametrize(("probability", "score"), [(0.52, 0.52), (0.999, 0.95)])
def test_it_decides_from_one_half_on_and_is_never_certain(probability: float, score: float) -> None:
    _, view = check_answer(supplied_answer(PARAPHRASE), gives(probability))

    (claim,) = claims_of(view)
    assert (claim.verdict, claim.score) == (Verdict.SUPPORTED, score)


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


async def test_a_stored_reply_is_read_in_the_form_of_its_request_under_any_judge() -> None:
    harness = judge_harness(gives(0.9))
    await harness.submit(supplied_answer(PARAPHRASE))
    await harness.killed_before("finish")
    again = await harness.lease()
    assert again.judged is not None
    after = replace(harness, judge=ScriptedProvider(raises(AssertionError("asked again"))))
    await after.check(again)

    (claim,) = claims_of(await harness.view())
    assert claim.judge is not None
    assert claim.judge.probability == 0.9
