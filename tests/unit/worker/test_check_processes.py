"""Processes of checks: each piece of work is done once or ended, alone, and none holds up those of another tenant."""

import asyncio
import gc
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, NoReturn

import psutil
import pytest

from tasks.errors import CheckEnded
from worker.process.check_processes import CheckProcesses, ForkServer

CEILING_S = 30
UNLIMITED_S = 3_600
"""A limit for what ends: a process that the machine does not let run for a short one would be ended for its piece."""


def nothing() -> None:
    """Prepare nothing."""


def square(number: int) -> int:
    return number * number


def own_pid() -> int:
    return os.getpid()


def hang() -> NoReturn:
    while True:
        signal.pause()


def spin() -> NoReturn:
    while True:
        pass


def die() -> NoReturn:
    os._exit(3)


def refuse() -> NoReturn:
    raise ValueError("no")


@asynccontextmanager
async def processes(
    count: int = 2, limit_s: float = UNLIMITED_S, begin: Callable[[], None] = nothing
) -> AsyncIterator[CheckProcesses]:
    server = ForkServer(nothing, begin, count)
    forked: list[psutil.Process] = []
    checks = CheckProcesses(server, limit_s, "it took too long", dead=lambda: None)
    try:
        await checks.start()
        forked = psutil.Process(server.pid).children()
        yield checks
    finally:
        await checks.close()
    assert psutil.wait_procs(forked, timeout=CEILING_S)[1] == []


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(CEILING_S):
            await scenario

    asyncio.run(bounded())


def test_a_start_that_is_cancelled_leaves_no_socket(recwarn: pytest.WarningsRecorder) -> None:
    async def scenario() -> None:
        server = ForkServer(nothing, nothing, 1)
        checks = CheckProcesses(server, UNLIMITED_S, "it took too long", dead=lambda: None)
        start = asyncio.create_task(checks.start())
        await asyncio.sleep(0)
        start.cancel()
        await asyncio.wait([start])
        await checks.close()

    run(scenario())
    gc.collect()
    assert [str(warning.message) for warning in recwarn if warning.category is ResourceWarning] == []


async def test_each_piece_has_its_own_result_or_error() -> None:
    async with processes() as checks:
        numbers = range(50)
        work = [checks.do(partial(square, number), tenant=f"t{number % 3}") for number in numbers]
        with pytest.raises(ValueError, match="no"):
            await checks.do(refuse, tenant="t1")
        assert await asyncio.gather(*work) == [number * number for number in numbers]
        assert await checks.do(own_pid, tenant="t1", urgent=True) != os.getpid()


@pytest.mark.parametrize("count", [1, 2])
async def test_what_ends_its_process_is_ended_alone(count: int) -> None:
    async with processes(count) as checks:
        ended = [asyncio.create_task(checks.do(die, tenant="t")) for _ in range(2)]
        results = await asyncio.gather(*(checks.do(partial(square, number), tenant="t") for number in range(20)))
        assert results == [number * number for number in range(20)]
        for each in ended:
            with pytest.raises(CheckEnded, match="died"):
                await each


@pytest.mark.parametrize("count", [1, 2])
async def test_what_does_not_end_is_ended_at_its_limit(count: int) -> None:
    async with processes(count, limit_s=0.2) as checks:
        for _ in range(2):
            with pytest.raises(CheckEnded, match="too long"):
                await checks.do(hang, tenant="t")


async def test_endless_pieces_of_a_tenant_leave_a_process_to_the_others() -> None:
    async with processes() as checks:
        endless = [asyncio.create_task(checks.do(spin, tenant="attacker")) for _ in range(3)]
        for number in range(3):
            assert await checks.do(partial(square, number), tenant="other") == number * number
        for each in endless:
            each.cancel()
        assert all(
            isinstance(each, asyncio.CancelledError) for each in await asyncio.gather(*endless, return_exceptions=True)
        )
        # The process of the one that was under way is ended, and another one takes its place.
        pids = {await checks.do(own_pid, tenant="other") for _ in range(3)}
        assert pids


async def test_an_idle_process_that_is_killed_costs_no_piece_a_try() -> None:
    async with processes() as checks:
        for _ in range(3):
            for process in psutil.Process(checks._server.pid).children():
                with suppress(psutil.NoSuchProcess):  # the one killed before, which its parent has buried since
                    process.kill()
            assert await checks.do(partial(square, 3), tenant="t") == 9
        with pytest.raises(CheckEnded, match="died"):
            await checks.do(die, tenant="t")


async def test_a_process_that_can_not_begin_is_named_at_the_start() -> None:
    with pytest.raises(ValueError, match="no"):
        async with processes(begin=refuse):
            pass


def test_a_close_amid_an_order_ends_all_processes() -> None:
    server = ForkServer(nothing, nothing, 2)
    first, other = socket.socketpair()
    second, ordered = socket.socketpair()
    with first, second, ordered:
        server.fork(0, other)
        (process,) = psutil.Process(server.pid).children()
        # It finds the order and the end of the connection together: its answer reaches nobody.
        os.kill(server.pid, signal.SIGSTOP)
        socket.send_fds(server._control, [b"1"], [ordered.fileno()])
        server._control.shutdown(socket.SHUT_RDWR)
        os.kill(server.pid, signal.SIGCONT)
        server.close()

        assert psutil.wait_procs([process], timeout=CEILING_S)[1] == []
