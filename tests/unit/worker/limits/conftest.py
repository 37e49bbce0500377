"""Limits in virtual time: minutes of waiting cost none, and no machine is too slow for them."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.virtual_time import VirtualTimeLoop, replace_clock
from worker.limits import bucket, lanes, permit_queue, presence, rate_limiter, redis_bucket
from worker.limits.permit_queue import QueueEntry


@pytest.fixture(autouse=True)
def runner(monkeypatch: pytest.MonkeyPatch) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        now = runner.get_loop().time
        replace_clock(monkeypatch, now, bucket, lanes, permit_queue, presence, rate_limiter, redis_bucket)
        begin = QueueEntry.__init__

        def begin_now(entry: QueueEntry, *arguments: Any) -> None:
            begin(entry, *arguments, since=now())

        monkeypatch.setattr(QueueEntry, "__init__", begin_now)
        yield runner
