"""The generate step with streamed answers: who follows hears each attempt, and what a broken one brought is kept."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any
from uuid import UUID

import pytest

from schemas.failure import FailureKind
from schemas.model_call import FinishReason
from schemas.states import JobState, Step
from tasks.errors import ProviderError, Unstorable
from tasks.ports import Answered, Call, ClosedAttempt, FinalFacts, Leased, NewAttempt
from tests.builders import make_completion, make_request
from tests.lent_ledger import LentLedger
from tests.scripted_provider import Act, Registry, ScriptedProvider, answers, hangs, raises
from tests.unit.tasks.test_generate import GenerateHarness
from worker.ledger.attempts import PostgresAttempts

LONG = timedelta(hours=1)
STREAMED = make_request(config={"stream": True})


@dataclass
class RecordingSink:
    """Remembers what readers would hear."""

    pieces: list[str] = field(default_factory=list)

    def start(self, job: Leased, attempt: NewAttempt) -> None:
        self.pieces.append(f"start {attempt.number}")

    def text(self, attempt_id: UUID, piece: str) -> None:
        self.pieces.append(piece)

    def end(self, attempt_id: UUID, *, whole: bool) -> None:
        self.pieces.append("end" if whole else "broken")

    def final(self, job: FinalFacts) -> None:
        self.pieces.append(job.state.value)


class Streamed(ScriptedProvider):
    """Tells its listener some words before each act."""

    async def call(self, call: Call, listener: Any = None) -> Answered:
        assert (listener is not None) is call.stream
        if listener is not None:
            part = make_completion("The desk ", finish_reason=FinishReason.INTERRUPTED, cost_usd=None, usage=None)
            listener.so_far = lambda: Answered(b"data: The desk ", part)
            for piece in ("The ", "desk "):
                listener.on_text(piece)
        return await super().call(call, listener)


def hangs_at(reached: asyncio.Event) -> Act:
    """Never answer, and say so."""

    async def act(call: Call) -> Answered:
        reached.set()
        return await hangs(call)

    return act


async def incomplete_answers(harness: GenerateHarness, job: Leased) -> list[tuple[bool, str, str]]:
    rows = (await harness.ledger.reading.job_detail(job.job_id)).completions
    return [(row["won"], row["finish_reason"], row["raw"]) for row in rows]


PART = (False, "interrupted", "data: The desk ")


@pytest.mark.parametrize("kind", [FailureKind.UNKNOWN_OUTCOME, FailureKind.BAD_ANSWER])
async def test_a_broken_stream_is_an_attempt_with_partial_text_and_the_next_starts_again(kind: FailureKind) -> None:
    sink = RecordingSink()
    harness = GenerateHarness(Registry(Streamed(raises(ProviderError(kind, "broke off")), answers())), tokens=sink)
    job = await harness.lease(STREAMED)
    view = await harness.generate(job)
    assert view.state is JobState.SCHEDULED
    assert await incomplete_answers(harness, job) == [PART]

    harness.ledger.advance(LONG)
    await harness.ledger.duties.promote(1)
    view = await harness.generate(await harness.lease_again())
    assert (view.state, view.step) == (JobState.AVAILABLE, Step.CHECK)
    assert [won for won, *_ in await incomplete_answers(harness, job)] == [False, True]
    assert sink.pieces == ["start 1", "The ", "desk ", "broken", "start 2", "The ", "desk ", "end"]


async def test_the_part_of_a_call_that_is_cut_off_is_kept() -> None:
    sink, hanging = RecordingSink(), asyncio.Event()
    provider = Streamed(hangs_at(hanging))
    harness = GenerateHarness(Registry(provider), tokens=sink)
    job = await harness.lease(STREAMED)
    generating = asyncio.create_task(harness.generate(job))
    await asyncio.wait_for(hanging.wait(), 5)
    generating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await generating
    assert await harness.attempts(job) == [("unknown", False)]
    assert await incomplete_answers(harness, job) == [PART]
    assert sink.pieces == ["start 1", "The ", "desk ", "broken"]


class Narrow(PostgresAttempts):
    """Can't keep answers that did not win."""

    async def close_attempts(self, closed: Any, on_lost: Any = None) -> set[UUID]:
        if any(self._too_much(attempt) for attempt in closed):
            raise Unstorable("too large")
        return await super().close_attempts(closed)

    def _too_much(self, closed: ClosedAttempt) -> bool:
        return closed.answer is not None and closed.outcome != "ok"


class NarrowLedger(LentLedger):
    """A ledger with such attempts."""

    @cached_property
    def attempts(self) -> Narrow:
        return Narrow(self._database, self._lease_for)


async def test_a_part_that_can_not_be_kept_fails_nothing() -> None:
    failing = Streamed(raises(ProviderError(FailureKind.UNKNOWN_OUTCOME, "broke off")))
    harness = GenerateHarness(Registry(failing), ledger=NarrowLedger())
    job = await harness.lease(STREAMED)
    view = await harness.generate(job)
    assert view.state is JobState.SCHEDULED
    assert await incomplete_answers(harness, job) == []
    assert [outcome for outcome, _ in await harness.attempts(job)] == ["unknown"]
