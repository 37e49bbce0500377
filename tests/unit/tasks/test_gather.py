"""Gathering: items go on together, and a receiver that fails loses them without harm."""

import asyncio
from datetime import timedelta

import pytest

from tasks.errors import BrokerUnavailable
from tasks.gather import Gather


def test_items_go_on_when_there_are_enough_or_time_is_up() -> None:
    async def story() -> list[list[int]]:
        passed: list[list[int]] = []
        arrived = asyncio.Event()

        async def pass_on(items: list[int]) -> None:
            passed.append(items)
            if len(passed) == 2:
                arrived.set()

        gather = Gather("numbers", pass_on, most=3, wait=timedelta(milliseconds=5))
        for item in range(5):
            gather.add(item)
        await asyncio.wait_for(arrived.wait(), 5)
        return passed

    assert asyncio.run(story()) == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize("error", [BrokerUnavailable("away"), ZeroDivisionError("oops")])
def test_a_receiver_that_fails_is_told_of_and_the_next_items_still_arrive(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def story() -> list[int]:
        arrived: list[int] = []

        async def pass_on(items: list[int]) -> None:
            if 1 in items:
                raise error
            arrived.extend(items)

        gather = Gather("numbers", pass_on, most=2, wait=timedelta(seconds=60))
        for item in range(5):
            gather.add(item)
        await gather.close()
        return arrived

    assert asyncio.run(story()) == [2, 3, 4]
    assert "2 numbers" in caplog.text
