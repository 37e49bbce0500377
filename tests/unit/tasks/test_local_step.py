"""A job that wants the local model, on its way over a real ledger: each of its checks is where the model is."""

from collections.abc import Iterator

import pytest

from schemas.failure import FailureKind
from schemas.generation import CheckerName
from schemas.job import GenerationConfig, Recheck
from schemas.states import JobState, Outcome, Step
from tasks.errors import ProviderError
from tasks.grounding import use_local_model
from tests.judge_harness import (
    PARAPHRASE,
    QUOTE,
    WRONG,
    JudgeHarness,
    grounding_of,
    supplied_answer,
    verdict,
    verdicts_reply,
)
from tests.scorers import NamedScorer
from tests.scripted_provider import ScriptedProvider, answers, raises
from tests.unit.tasks.test_rounds import BAD, GOOD, RoundsHarness, record_of, requesting

READ = ["structure", "lexical", "local"]


@pytest.fixture(autouse=True)
def model() -> Iterator[None]:
    use_local_model(NamedScorer())
    yield
    use_local_model(None)


def test_the_layers_say_where_a_job_is_checked() -> None:
    assert GenerationConfig().check_step is Step.CHECK
    assert GenerationConfig(checkers=READ).check_step is Step.LOCAL
    words = Recheck(checkers=(CheckerName.LEXICAL,))
    assert words.apply(GenerationConfig(checkers=READ)).check_step is Step.CHECK


async def test_both_rounds_and_the_way_back_are_checked_by_the_model() -> None:
    harness = RoundsHarness(ScriptedProvider(answers(f"{GOOD} {BAD}"), answers(" ")), checked_in=Step.LOCAL)
    view = await harness.answer(requesting(on_ungrounded="retry", checkers=READ))

    assert (view.state, view.step, view.outcome) == (JobState.COMPLETED, Step.LOCAL, Outcome.PARTIAL)
    assert [purpose for _, purpose, _ in await harness.purposes(view)] == ["generate", "correct"]
    grounding = record_of(view).grounding
    assert grounding is not None
    assert grounding.checkers["local"] == "says-who-3"


async def test_a_job_that_waits_for_its_judge_comes_back_to_the_model() -> None:
    config = {"checkers": [*READ, "judge"]}
    acts = (raises(ProviderError(FailureKind.OVERLOADED, "busy")), verdicts_reply(verdict(1, "supported", QUOTE)))

    harness = JudgeHarness(ScriptedProvider(*acts), step=Step.LOCAL)
    await harness.submit(supplied_answer(PARAPHRASE, WRONG, **config))
    await harness.check(await harness.lease())
    view = await harness.view()
    assert (view.state, view.step) == (JobState.SCHEDULED, Step.LOCAL)
    grounding = grounding_of(await harness.finish())
    assert sorted(grounding.checkers) == sorted([*READ, "judge"])
    assert grounding.failed_checkers == {}


async def test_the_step_changes_nothing_about_the_verdicts() -> None:
    """A worker with the model gives a job of ``check`` and the same job of ``local`` the same record."""

    async def checked(step: Step) -> str:
        reply = verdicts_reply(verdict(1, "supported", QUOTE), verdict(2, "unsupported"))
        harness = JudgeHarness(ScriptedProvider(reply), step=step)
        await harness.submit(supplied_answer(PARAPHRASE, WRONG, checkers=[*READ, "judge"]))
        if step is Step.CHECK:
            assert len(await harness.ledger.duties.reassign(Step.LOCAL, Step.CHECK, 9)) == 1
        view = await harness.finish()
        assert view.record is not None
        return view.record.model_dump_json(exclude={"job_id", "message_id", "timing_ms", "created_at"})

    assert await checked(Step.CHECK) == await checked(Step.LOCAL)
