"""A cascade over a real ledger: the models asked, the answer that wins, its record, and the ends of it."""

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

import pytest

from schemas.failure import FailureKind
from schemas.job import GenerationConfig
from schemas.model_call import FinishReason
from schemas.states import JobState, Outcome
from tasks.ports import JobView
from tests.scripted_provider import Act, Registry, ScriptedProvider, answers
from tests.unit.tasks.test_rounds import BAD, GOOD, WORSE, RoundsHarness, failing, record_of, requesting

NONE = answers("[none] The sources do not say.")
EMPTY = answers("", finish_reason=FinishReason.REFUSAL, refusal="I can't.")


@dataclass
class CascadeHarness(RoundsHarness):
    """One job with further models."""

    stronger: tuple[ScriptedProvider, ...] = ()

    def registry(self) -> Registry:
        return Registry(self.provider, *self.stronger)

    async def levels(self, view: JobView) -> list[tuple[int, str, str, bool]]:
        return [
            (ask.level, ask.purpose, ask.outcome.value if ask.outcome else "-", ask.won)
            for ask in record_of(view).asks or ()
        ]


def harness(*first: Act, strong: tuple[Act, ...] = (), best: tuple[Act, ...] = ()) -> CascadeHarness:
    models = [
        ScriptedProvider(*acts, name=name, model=f"{name}-1", reserve_usd=Decimal("0.05"))
        for name, acts in (("strong", strong), ("best", best))
        if acts
    ]
    return CascadeHarness(ScriptedProvider(*first), stronger=tuple(models))


async def test_an_answer_without_support_is_asked_of_the_next_model_with_the_plain_prompt() -> None:
    cascade = harness(answers(f"{GOOD} {BAD}"), strong=(answers(GOOD, cost_usd=Decimal("0.03")),))
    view = await cascade.answer(requesting(escalate=["strong"]))

    assert (view.state, view.outcome, view.round) == (JobState.COMPLETED, Outcome.ANSWERED, 2)
    assert await cascade.purposes(view) == [(0, "generate", "ok"), (2, "escalate", "ok")]
    record = record_of(view)
    assert (record.answer, record.model_provider) == (GOOD, "strong")
    # The strong model sees neither the first answer nor its faults.
    assert cascade.stronger[0].calls[0].prompt.snapshot.sha256 == cascade.provider.calls[0].prompt.snapshot.sha256
    weak, strong = record.asks or ()
    assert (weak.supported, weak.ungrounded, weak.cost_usd, weak.won) == (1, 1, Decimal("0.002"), False)
    assert weak.shortfall == "1 of its claims are not supported"
    assert (strong.model, strong.ungrounded, strong.cost_usd) == ("strong-1", 0, Decimal("0.03"))
    assert (strong.better, strong.won, strong.shortfall) == (True, True, None)
    assert view.cost_usd == Decimal("0.032")


async def test_an_answer_without_its_citations_is_asked_of_the_next_model() -> None:
    cascade = harness(answers(GOOD.replace(" [1]", "")), strong=(answers(GOOD),))
    view = await cascade.answer(requesting(escalate=["strong"]))

    assert (view.outcome, view.round) == (Outcome.ANSWERED, 2)
    shortfalls = [ask.shortfall for ask in record_of(view).asks or ()]
    assert shortfalls == ["it has 0 citations, at least 1 are required", None]


@pytest.mark.parametrize(
    ("query", "goes_on"), [("When does the night desk open?", True), ("How tall is the Eiffel Tower in metres?", False)]
)
async def test_an_abstention_goes_on_only_where_the_sources_suffice(query: str, goes_on: bool) -> None:  # noqa: FBT001
    cascade = harness(NONE, strong=(answers(GOOD),))
    request = requesting(escalate=["strong"]).model_copy(update={"query": query})
    view = await cascade.answer(request)

    assert bool(cascade.stronger[0].calls) is goes_on
    assert view.outcome is (Outcome.ANSWERED if goes_on else Outcome.ABSTAINED)


@pytest.mark.parametrize(
    ("strong", "best", "winner", "why"),
    [
        (answers(f"{GOOD} {BAD} {WORSE}"), NONE, 0, "the model then gave no answer"),
        (answers(f"{BAD} {WORSE}"), answers(BAD), 0, "no claim with support"),
        (EMPTY, failing(FailureKind.INVALID_REQUEST), 0, "the call failed: the provider said no"),
        (failing(FailureKind.QUOTA), EMPTY, 0, "refused: I can't."),
    ],
)
async def test_the_best_answer_wins_by_its_verdicts_and_not_by_its_place(
    strong: Act, best: Act, winner: int, why: str
) -> None:
    cascade = harness(answers(f"{GOOD} {BAD}"), strong=(strong,), best=(best,))
    view = await cascade.answer(requesting(escalate=["strong", "best"], max_attempts=1))

    assert (view.state, view.outcome, view.round) == (JobState.COMPLETED, Outcome.PARTIAL, 2 * winner)
    record = record_of(view)
    assert record.answer.startswith(f"{GOOD} {BAD}")
    assert why in record.quality.reasoning
    assert [ask.won for ask in record.asks or ()] == [at == winner for at in range(3)]
    assert [len(model.calls) for model in (cascade.provider, *cascade.stronger)] == [1, 1, 1]


async def test_a_refusal_goes_on_and_the_last_refusal_ends_the_job() -> None:
    for strong, outcome in ((answers(GOOD), Outcome.ANSWERED), (EMPTY, Outcome.REFUSED)):
        cascade = harness(EMPTY, strong=(strong,))
        view = await cascade.answer(requesting(escalate=["strong"]))
        assert (view.state, view.outcome) == (JobState.COMPLETED, outcome)
        assert [ask.outcome for ask in record_of(view).asks or ()] == [Outcome.REFUSED, outcome]


async def test_each_model_gets_its_correction_before_the_next_one_is_asked() -> None:
    cascade = harness(
        answers(f"{GOOD} {BAD}"), answers(f"{GOOD} {BAD}"), strong=(answers(f"{GOOD} {WORSE}"), answers(GOOD))
    )
    view = await cascade.answer(requesting(escalate=["strong"], on_ungrounded="retry"))

    assert (view.outcome, view.round) == (Outcome.ANSWERED, 3)
    assert await cascade.purposes(view) == [
        (0, "generate", "ok"), (1, "correct", "ok"), (2, "escalate", "ok"), (3, "correct", "ok")
    ]  # fmt: skip
    assert cascade.stronger[0].calls[1].prompt.snapshot.messages[-2].text([]) == f"{GOOD} {WORSE}"


async def test_no_model_is_asked_whose_answer_may_come_after_the_deadline() -> None:
    for seconds, rounds in ((80.0, [0]), (120.0, [0, 2])):
        cascade = harness(answers(f"{GOOD} {BAD}"), strong=(answers(GOOD),))
        deadline = cascade.ledger.row("SELECT nightdesk_now()")[0] + timedelta(seconds=seconds)
        view = await cascade.answer(requesting(escalate=["strong"]), deadline=deadline)

        assert view.state is JobState.COMPLETED
        assert [number for number, _, _ in await cascade.purposes(view)] == rounds


def test_a_model_is_named_once() -> None:
    with pytest.raises(ValueError, match="names 'openai:gpt' twice"):
        GenerationConfig(escalate=("openai:gpt", "openai:gpt"))
