"""Turns at what tenants share: bounded in all and for each, one tenant after another, none lost by a cancellation."""

import asyncio

from worker.http.turns import Turns


def test_tenants_that_wait_are_served_one_after_another() -> None:
    async def run() -> list[str]:
        turns, served, go_on = Turns(1, 1), list[str](), asyncio.Event()

        async def work(tenant: str) -> None:
            async with turns.take(tenant):
                served.append(tenant)
                await go_on.wait()

        async with asyncio.TaskGroup() as group:
            for tenant in ("a", "a", "a", "a", "b", "c", "b"):
                group.create_task(work(tenant))
            await asyncio.sleep(0)
            go_on.set()
        return served

    assert asyncio.run(run()) == ["a", "a", "b", "c", "a", "b", "a"]


def test_one_tenant_leaves_room_for_others() -> None:
    async def run() -> tuple[int, list[str]]:
        turns, served, go_on = Turns(3, 2), list[str](), asyncio.Event()

        async def work(tenant: str) -> None:
            async with turns.take(tenant):
                served.append(tenant)
                await go_on.wait()

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work("a")) for _ in range(5)]
            for _ in range(3):
                await asyncio.sleep(0)
            alone = len(served)
            # One of those that wait, and one that has its turn: neither may be lost or given twice.
            tasks[4].cancel()
            tasks[0].cancel()
            group.create_task(work("b"))
            for _ in range(5):
                await asyncio.sleep(0)
            present = served[:]
            go_on.set()
        return alone, present

    assert asyncio.run(run()) == (2, ["a", "a", "b", "a"])
