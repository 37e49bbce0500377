"""A job that wants the local model, on its way over a real ledger: each of its checks is where the model is."""

from collections.abc import Iterator

import pytest

from schemas.states import JobState, Outcome, Step
from tasks.grounding import use_local_model
from tests.scorers import NamedScorer
from tests.scripted_provider import ScriptedProvider, answers
from tests.unit.tasks.test_rounds import BAD, GOOD, RoundsHarness, record_of, requesting

READ = ["structure", "lexical", "local"]


@pytest.fixture(autouse=True)
def model() -> Iterator[None]:
    use_local_model(NamedScorer())
    yield
    use_local_model(None)


async def test_both_rounds_and_the_way_back_are_checked_by_the_model() -> None:
    harness = RoundsHarness(ScriptedProvider(answers(f"{GOOD} {BAD}"), answers(" ")), checked_in=Step.LOCAL)
    view = await harness.answer(requesting(on_ungrounded="retry", checkers=READ))

    assert (view.state, view.step, view.outcome) == (JobState.COMPLETED, Step.LOCAL, Outcome.PARTIAL)
    assert [purpose for _, purpose, _ in await harness.purposes(view)] == ["generate", "correct"]
    grounding = record_of(view).grounding
    assert grounding is not None
    assert grounding.checkers["local"] == "says-who-3"
