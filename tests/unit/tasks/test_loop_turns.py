"""The line of bulk steps: many a turn, a few while something urgent is in hand, and each once and in order."""

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import accumulate, count

import pytest

from tasks.scheduling import loop_turns
from tasks.scheduling.loop_turns import MOST, LoopTurns
from tasks.scheduling.urgency import Urgency


def steady_clock(turn_s: float) -> Callable[[], float]:
    """A clock by which each turn takes so long."""
    times = count()
    return lambda: next(times) * turn_s


async def steps_a_turn(turns: LoopTurns, steps: int) -> list[int]:
    """Numbers of steps that begin in the turns of the loop, in order, without the empty turns."""
    order: list[int] = []
    began = []
    for step in range(steps):
        turns.add(partial(order.append, step))
    while len(order) < steps:
        began.append(len(order))
        await asyncio.sleep(0)
    assert order == list(range(steps))
    began.append(steps)
    return [after - before for before, after in zip([0, *began], began, strict=False) if after > before]


def test_many_steps_begin_in_a_turn() -> None:
    assert asyncio.run(steps_a_turn(LoopTurns(), 2 * MOST + 10)) == [MOST, MOST, 10]


def test_one_step_begins_in_a_turn_while_an_urgent_job_is_in_hand_and_turns_are_long() -> None:
    turns = LoopTurns(Urgency(1), steady_clock(2 * loop_turns.URGENT_TURN_S))
    assert asyncio.run(steps_a_turn(turns, 5)) == [1] * 5


def test_more_steps_begin_while_turns_are_short() -> None:
    turns = LoopTurns(Urgency(1), steady_clock(loop_turns.URGENT_TURN_S / 10))
    began = asyncio.run(steps_a_turn(turns, 2_000))
    assert began[0] <= 2
    assert began[:-1] == list(accumulate(began[:-1], max))
    assert max(began) == MOST


def test_steps_that_waited_begin_together_when_nothing_is_urgent_any_more() -> None:
    async def scenario() -> list[int]:
        urgency = Urgency(1)
        turns = LoopTurns(urgency, steady_clock(1.0))
        order: list[int] = []
        for step in range(20):
            turns.add(partial(order.append, step))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        urgency.count = 0
        assert len(order) == 2
        turns.add(partial(order.append, 20))
        await asyncio.sleep(0)
        return order

    assert asyncio.run(scenario()) == list(range(21))


def test_a_step_that_breaks_keeps_no_other_from_its_turn() -> None:
    async def scenario() -> None:
        turns, done, errors = LoopTurns(Urgency(1), steady_clock(1.0)), asyncio.Event(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
        turns.add(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
        turns.add(done.set)
        await asyncio.wait_for(done.wait(), 5)
        assert [type(error) for error in errors] == [ZeroDivisionError]

    asyncio.run(scenario())


@pytest.mark.parametrize("urgent", [0, 1])
def test_a_task_that_is_cancelled_in_the_line_is_passed_over(urgent: int) -> None:
    async def scenario() -> None:
        turns = LoopTurns(Urgency(urgent), steady_clock(1.0))
        tasks = [asyncio.create_task(turns.wait()) for _ in range(MOST + 3)]
        await asyncio.sleep(0)
        tasks[MOST + 1].cancel()
        done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert [isinstance(end, asyncio.CancelledError) for end in done] == [
            number == MOST + 1 for number in range(MOST + 3)
        ]

    asyncio.run(scenario())
