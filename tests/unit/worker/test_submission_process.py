"""The two ends of the process for large submissions, without a process: what one of them makes of the other's failure."""

import asyncio
import gc
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from worker.http import submission_child, submission_process
from worker.http.submission_child import READY, _Child, frame, receive
from worker.http.submission_process import NotStarted, SubmissionProcess
from worker.local import Endpoints
from worker.settings import Settings

WHERE = Endpoints("postgresql://x@127.0.0.1:1/x", "redis://127.0.0.1:1")
LARGE = submission_process.WAIT_BYTES


async def work(*_: object) -> None:
    """Be the order of a test: it is only named."""


def process(home: Path) -> SubmissionProcess:
    return SubmissionProcess(Settings(home=home), WHERE, probe_s=1)


def test_a_process_that_cannot_be_started_leaves_the_work_to_others_for_a_while_and_nothing_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> Any:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(submission_process, "start_child", fail)

    pair = socket.socketpair()

    async def main() -> None:
        monkeypatch.setattr(socket, "socketpair", lambda: pair)
        large = process(tmp_path)
        assert large.takes(LARGE)
        with pytest.raises(NotStarted):
            await large.run("desk", work)
        assert not large.takes(LARGE), "it is tried again at once"
        large._retry_at = 0
        assert large.takes(LARGE), "it is never tried again"
        await large.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    gc.collect()
    lines = [record.getMessage() for record in caplog.records]
    assert [message for message in lines if "Cannot allocate memory" in message and "memory or the number" in message]
    assert not [message for message in lines if "never retrieved" in message]
    assert {each.fileno() for each in pair} == {-1}, "a connection stays open"


async def answer_oddly(*_: object) -> object:
    """Return what can't be sent."""
    return lambda: None


def test_the_process_answers_where_its_result_cannot_be_sent_and_shows_that_it_lives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(submission_child, "configure_logging", lambda *_: None)
    monkeypatch.setattr(_Child, "_opened", work)

    async def main() -> list[Any]:
        own, other = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=own)
        connection = await asyncio.open_connection(sock=other)
        child = asyncio.create_task(_Child(*connection).run())
        writer.write(frame((Settings(home=tmp_path), WHERE, 1, 0.01)))
        writer.write(frame((5, answer_oddly, ())))
        messages = [await receive(reader)]
        while {each[0] for each in messages} != {READY, submission_child.ALIVE, 5}:
            messages.append(await receive(reader))
        writer.close()
        await child
        connection[1].close()
        return messages

    messages = asyncio.run(asyncio.wait_for(main(), 30))
    assert messages[0] == (READY, None, None)
    error = next(error for number, _, error in messages if number == 5)
    assert "pickle" in str(error).lower()
