"""A cancellation in the worst moment: with the answer, while it is written, and again while an attempt is opened."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from schemas.states import JobState, Step
from tasks.errors import Unstorable
from tasks.ports import Answered, Call, ClosedAttempt, NewAttempt, Opened
from tests.builders import make_request
from tests.scripted_provider import Registry, ScriptedProvider, answers
from tests.unit.tasks.test_generate import GenerateHarness

Move = Callable[[], object]


@pytest.mark.parametrize("answer_first", [True, False])
async def test_an_answer_that_comes_with_the_cancellation_is_kept(*, answer_first: bool) -> None:
    ready = asyncio.Event()

    async def waits(call: Call) -> Answered:
        await ready.wait()
        return await answers()(call)

    provider = ScriptedProvider(waits)
    harness = GenerateHarness(Registry(provider))
    job = await harness.lease(make_request())
    work = asyncio.create_task(harness.generate(job))
    await provider.called.wait()
    await asyncio.sleep(0)
    moves: list[Move] = [ready.set, work.cancel]
    for move in moves if answer_first else reversed(moves):
        move()

    assert (await work).step is Step.CHECK
    assert await harness.attempts(job) == [("ok", False)]
    assert [job.job_id for job in harness.checks] == [job.job_id]


async def test_a_cancellation_while_the_answer_is_written_waits_for_what_becomes_of_it() -> None:
    harness = GenerateHarness(Registry(ScriptedProvider(answers())))
    job = await harness.lease(make_request())
    writing, go_on = asyncio.Event(), asyncio.Event()
    close = harness.ledger.attempts.close_attempts

    async def refuses_the_answer(closed: Sequence[ClosedAttempt], on_lost: Any = None) -> set[Any]:
        if closed[0].answer is None:
            return await close(closed, on_lost)
        writing.set()
        await go_on.wait()
        raise Unstorable("too large")

    harness.ledger.attempts.close_attempts = refuses_the_answer  # type: ignore[method-assign]
    work = asyncio.create_task(harness.generate(job))
    await writing.wait()
    work.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await work

    assert await harness.attempts(job) == [("error:unstorable", True)]
    assert (await harness.view(job)).state is JobState.FAILED


async def test_a_second_cancellation_while_the_attempt_is_opened_leaves_nothing_open() -> None:
    provider = ScriptedProvider(answers())
    harness = GenerateHarness(Registry(provider))
    job = await harness.lease(make_request())
    opening, go_on = asyncio.Event(), asyncio.Event()
    opens = harness.ledger.attempts.open_attempts

    async def slowly(attempts: Sequence[NewAttempt]) -> list[Opened]:
        opening.set()
        await go_on.wait()
        return await opens(attempts)

    harness.ledger.attempts.open_attempts = slowly  # type: ignore[method-assign]
    work = asyncio.create_task(harness.generate(job))
    await opening.wait()
    for _ in range(2):
        work.cancel()
        await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await work

    assert provider.calls == []
    assert await harness.attempts(job) == [("error:cancelled", False)]
    assert (await harness.view(job)).state is JobState.AVAILABLE
