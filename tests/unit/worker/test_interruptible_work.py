"""A command's work, whenever a signal comes: it ends early, and the command says so."""

import asyncio
import os
import signal
import threading

import pytest

from worker.cli.exits import run_interruptible


def test_a_signal_is_not_lost_between_the_end_of_the_work_and_that_of_its_loop() -> None:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    over = threading.Event()

    def send_late() -> None:
        over.wait()
        os.kill(os.getpid(), signal.SIGTERM)

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(lambda _: over.set())
        asyncio.get_running_loop().run_in_executor(None, send_late)

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(work())
    assert signal.signal(signal.SIGTERM, before) is signal.default_int_handler
