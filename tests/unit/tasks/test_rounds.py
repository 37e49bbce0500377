"""Two rounds over a real ledger: what a model is told, which answer wins, and that nothing paid for is lost."""

from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
import pytest

from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol
from schemas.job import JobRequest
from schemas.model_call import FinishReason, Role
from schemas.record import GenerationRecord
from schemas.states import JobState, Outcome, Step
from tasks import check
from tasks.calls.retry import RetryPolicy
from tasks.check import Check
from tasks.errors import ProviderError, Unstorable
from tasks.generate import Generate
from tasks.ports import JobView, Leased
from tasks.results import result_of
from tests.builders import make_batch, make_jobs
from tests.fakes.inline import Inline
from tests.fakes.quiet import paid_calls
from tests.lent_ledger import LentLedger
from tests.scripted_provider import Act, Registry, ScriptedProvider, answers, raises
from worker.operations.audit import audit_of
from worker.process.journal import LedgerJournal

LEASE = timedelta(seconds=60)
SOURCE = "The night desk opens at nine in the evening. The morning edition is printed in Port Lune at four."
GOOD = "The night desk opens at nine in the evening [1]."
BAD = "The editor eats forty pancakes with syrup each Sunday [1]."
WORSE = "Mars has purple oceans of warm lemonade [1]."
SEGMENTS = AnswerProtocol.SEGMENTS


def requesting(**config: Any) -> JobRequest:
    config = {"strictness": "strict", **config}
    return JobRequest(query="When does the desk open?", context=({"content": SOURCE},), config=config)


def as_object(text: str, **extra: Any) -> Act:
    """An answer in segments."""
    segment = {"text": text, "citations": [{"source": 1, "quote": "opens at nine"}]}
    return answers(orjson.dumps({"sufficient": True, "segments": [segment], **extra}).decode(), protocol=SEGMENTS)


def failing(kind: FailureKind) -> Act:
    return raises(ProviderError(kind, "the provider said no"))


@dataclass
class RoundsHarness:
    """One job, taken from step to step until it is final."""

    provider: ScriptedProvider
    ledger: LentLedger = field(default_factory=LentLedger)
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    job_ids: tuple[UUID, ...] = ()
    checked_in: Step = Step.CHECK

    async def submit(self, request: JobRequest, **batch: Any) -> None:
        self.job_ids = (await self.ledger.submission.submit(make_batch(**batch), [make_jobs(request)])).job_ids

    async def lease(self, step: Step) -> Leased | None:
        await self.ledger.duties.promote(10)
        return next(iter(await self.ledger.queue.lease(step, "w", LEASE, 1)), None)

    def registry(self) -> Registry:
        return Registry(self.provider)

    async def generate(self, job: Leased) -> None:
        journal = LedgerJournal(self.ledger)
        registry = self.registry()
        step = Generate(
            self.ledger.queue, journal, paid_calls(journal, self.policy), registry, lambda _: None
        )  # fmt: skip
        try:
            await step.run(job)
        finally:
            await journal.close()

    async def check(self, job: Leased) -> None:
        journal = LedgerJournal(self.ledger)
        await Check(self.ledger.queue, journal, Inline()).run(job)
        await journal.close()

    async def finish(self) -> JobView:
        """Go on until the job ends or is held."""
        for _ in range(40):
            if job := await self.lease(Step.GENERATE):
                await self.generate(job)
            elif job := await self.lease(self.checked_in):
                await self.check(job)
            else:
                (view,) = await self.ledger.reading.views(self.job_ids)
                if view.finished_at or view.held_reason:
                    return view
                self.ledger.advance(timedelta(minutes=1))
        raise AssertionError("it never ends")

    async def answer(self, request: JobRequest, **batch: Any) -> JobView:
        await self.submit(request, **batch)
        return await self.finish()

    async def purposes(self, view: JobView) -> list[tuple[int, str, str | None]]:
        detail = await self.ledger.reading.job_detail(view.job_id)
        return [(attempt["round"], attempt["purpose"], attempt["outcome"]) for attempt in detail.attempts]


def record_of(view: JobView) -> GenerationRecord:
    assert view.record is not None
    return view.record


async def test_the_second_prompt_lists_the_unsupported_claims_and_its_answer_wins() -> None:
    harness = RoundsHarness(ScriptedProvider(answers(f"{GOOD} {BAD}"), answers(GOOD)))
    view = await harness.answer(requesting(on_ungrounded="retry"))

    assert (view.state, view.outcome, view.round) == (JobState.COMPLETED, Outcome.ANSWERED, 1)
    assert await harness.purposes(view) == [(0, "generate", "ok"), (1, "correct", "ok")]
    record = record_of(view)
    assert record.answer == GOOD
    assert record.messages_snapshot is not None
    assert record.messages_snapshot.proves([SOURCE])
    *before, previous, correction = record.messages_snapshot.texts([SOURCE])
    assert [role for role, _ in before] == [Role.SYSTEM, Role.USER]
    assert previous == (Role.ASSISTANT, f"{GOOD} {BAD}")
    assert '- "The editor eats forty pancakes with syrup each Sunday."' in correction[1]
    assert "nine in the evening" not in correction[1]
    # Both calls were paid for; the tokens are the winning call's.
    assert view.cost_usd == Decimal("0.004")
    assert record.usage is not None
    assert record.usage.output_tokens == 10


async def test_an_audit_proves_the_messages_of_both_rounds_and_sees_when_they_were_changed() -> None:
    harness = RoundsHarness(ScriptedProvider(answers(f"{GOOD} {BAD}"), answers(GOOD)))
    view = await harness.answer(requesting(on_ungrounded="retry"))
    detail = await harness.ledger.reading.job_detail(view.job_id)
    audit = audit_of(detail, result_of(view))
    assert [(proof.call, proof.proven) for proof in audit.proofs] == [("1.0 generate", True), ("1.1 correct", True)]
    assert audit.messages is not None
    assert audit.messages.sha256 == audit.proofs[1].sha256 != audit.proofs[0].sha256

    first = detail.completions[0]["prompt"]
    first["snapshot"]["messages"][1]["parts"][0]["text"] += " forged"
    assert [proof.proven for proof in audit_of(detail, result_of(view)).proofs] == [False, True]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (answers(f"{BAD} {WORSE}"), "2 claims without support, the first 1"),
        (answers("", finish_reason=FinishReason.REFUSAL, refusal="I can't."), "refused: I can't."),
        (answers("[none] The sources do not say."), "gave no answer"),
        (answers(GOOD, protocol=SEGMENTS), "not in the required form"),
        (failing(FailureKind.INVALID_REQUEST), "the call failed: the provider said no"),
        (raises(ZeroDivisionError("oops")), "ZeroDivisionError: oops"),
    ],
)
async def test_the_first_answer_is_kept_when_the_second_is_no_better(second: Act, why: str) -> None:
    harness = RoundsHarness(ScriptedProvider(answers(f"{GOOD} {BAD}"), second))
    view = await harness.answer(requesting(on_ungrounded="retry", max_attempts=2))

    assert (view.state, view.outcome, view.round) == (JobState.COMPLETED, Outcome.PARTIAL, 0)
    record = record_of(view)
    assert record.answer.startswith(f"{GOOD} {BAD}")
    assert why in record.quality.reasoning
    assert any(why in warning for warning in record.quality.warnings)
    assert record.messages_snapshot is not None
    assert len(record.messages_snapshot.messages) == 2
    assert [purpose for _, purpose, _ in await harness.purposes(view)][:2] == ["generate", "correct"]


async def test_a_second_answer_that_would_fail_the_job_gives_way_to_the_first() -> None:
    harness = RoundsHarness(
        ScriptedProvider(answers(f"{GOOD} {BAD}"), answers("The night desk opens at nine in the evening."))
    )
    view = await harness.answer(requesting(on_ungrounded="retry", missing_citations="failed"))

    assert (view.state, view.outcome, view.round) == (JobState.COMPLETED, Outcome.PARTIAL, 0)
    assert "would fail: the answer has 0 citations" in record_of(view).quality.reasoning


async def test_the_first_answer_wins_if_the_check_of_the_second_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    real = check.postprocess

    def breaks(request: JobRequest, prompt: Any, completion: Any) -> Any:
        if completion.text == GOOD:
            raise ZeroDivisionError("oops")
        return real(request, prompt, completion)

    monkeypatch.setattr(check, "postprocess", breaks)

    harness = RoundsHarness(ScriptedProvider(answers(f"{GOOD} {BAD}"), answers(GOOD)))
    view = await harness.answer(requesting(on_ungrounded="retry"))

    assert (view.state, view.outcome, view.round) == (JobState.COMPLETED, Outcome.PARTIAL, 0)
    assert "ZeroDivisionError: oops" in record_of(view).quality.reasoning


async def test_a_second_answer_that_can_not_be_stored_gives_way_to_the_first() -> None:
    harness = RoundsHarness(ScriptedProvider(answers(f"{GOOD} {BAD}"), answers(GOOD)))
    finish = harness.ledger.queue.finish

    async def keeps_the_first_only(finals: Any) -> Any:
        if any(final.record.answer == GOOD for final in finals):
            raise Unstorable("too large")
        return await finish(finals)

    harness.ledger.queue.finish = keeps_the_first_only  # type: ignore[method-assign]
    view = await harness.answer(requesting(on_ungrounded="retry"))

    assert (view.state, view.outcome, view.round) == (JobState.COMPLETED, Outcome.PARTIAL, 0)
    assert "can't be stored: too large" in record_of(view).quality.reasoning


async def test_a_second_round_is_given_up_when_the_budget_is_used_up() -> None:
    harness = RoundsHarness(ScriptedProvider(answers(f"{GOOD} {BAD}")))
    view = await harness.answer(requesting(on_ungrounded="retry"), max_cost_usd=Decimal("0.011"))

    assert (view.state, view.held_reason, view.outcome) == (JobState.COMPLETED, None, Outcome.PARTIAL)
    assert "budget was used up" in record_of(view).quality.reasoning
    assert await harness.purposes(view) == [(0, "generate", "ok")]


async def test_a_call_of_the_second_round_that_ends_unknown_is_not_held_for_a_person() -> None:
    policy = RetryPolicy(hold_unknown=True)
    harness = RoundsHarness(
        ScriptedProvider(answers(f"{GOOD} {BAD}"), failing(FailureKind.UNKNOWN_OUTCOME)), policy=policy
    )
    view = await harness.answer(requesting(on_ungrounded="retry"))

    assert (view.state, view.outcome) == (JobState.COMPLETED, Outcome.PARTIAL)
    assert await harness.purposes(view) == [(0, "generate", "ok"), (1, "correct", "unknown")]


async def test_an_answer_that_is_no_json_is_requested_once_more() -> None:
    harness = RoundsHarness(
        ScriptedProvider(answers(GOOD, protocol=SEGMENTS), as_object("The night desk opens at nine in the evening."))
    )
    view = await harness.answer(requesting())

    assert view.outcome is Outcome.ANSWERED
    assert await harness.purposes(view) == [(0, "generate", "ok"), (1, "reask", "ok")]
    assert "not wholly in the form" in harness.provider.calls[1].prompt.snapshot.texts([SOURCE])[-1][1]


SCHEMA = {"type": "object", "required": ["hour"], "properties": {"hour": {"type": "integer"}}}


async def test_an_object_that_breaks_its_schema_is_asked_for_again_by_the_path_of_its_fault() -> None:
    text = "The night desk opens at nine in the evening."
    harness = RoundsHarness(ScriptedProvider(as_object(text, data={"hour": "nine"}), as_object(text, data={"hour": 9})))
    view = await harness.answer(requesting(output_schema=SCHEMA))

    assert (view.outcome, record_of(view).output_structured) == (Outcome.ANSWERED, {"hour": 9})
    assert "at $.hour" in harness.provider.calls[1].prompt.snapshot.texts([SOURCE])[-1][1]


async def test_an_answer_that_is_too_long_is_asked_for_once_more_and_then_cut() -> None:
    second = "The morning edition is printed in Port Lune at four [1]."
    harness = RoundsHarness(ScriptedProvider(answers(f"{GOOD} {second}")))
    view = await harness.answer(requesting(max_response_length=60))

    assert [purpose for _, purpose, _ in await harness.purposes(view)] == ["generate", "reask"]
    assert "at most 60 are allowed" in harness.provider.calls[1].prompt.snapshot.texts([SOURCE])[-1][1]
    record = record_of(view)
    assert (view.outcome, record.answer) == (Outcome.PARTIAL, GOOD)
    assert any("cut at a sentence end" in warning for warning in record.quality.warnings)
    (citation,) = record.citations
    assert record.answer[citation.start_pos : citation.end_pos] == "[1]"
