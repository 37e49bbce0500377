"""The two ends of the process for large submissions, without a process: what one of them makes of the other's failure."""

import asyncio
import gc
import logging
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from worker.http import submission_child, submission_process
from worker.http.submission_child import READY, _Child, frame, receive
from worker.http.submission_process import NotStarted, ProcessEnded, SubmissionProcess
from worker.local import Endpoints
from worker.settings import Settings

WHERE = Endpoints("postgresql://x@127.0.0.1:1/x", "redis://127.0.0.1:1")
LARGE = submission_process.WAIT_BYTES

Conduct = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class Peer:
    """The other end of the connection, where a process would be; it conducts itself as a test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.starts = 0
        self.kills = 0
        self.connections: SimpleQueue[socket.socket] = SimpleQueue()
        self.writer: asyncio.StreamWriter | None = None
        monkeypatch.setattr(submission_process, "start_child", self.start)

    def start(self, _: object, connection: socket.socket) -> Any:
        self.starts += 1
        self.connections.put(connection.dup())
        return self

    def kill(self) -> None:
        self.kills += 1

    def wait(self, _: float | None = None) -> int:
        return 3

    async def conduct(self, *messages: bytes) -> asyncio.StreamReader:
        """Take the settings and answer."""
        reader, self.writer = await asyncio.open_connection(sock=await asyncio.to_thread(self.connections.get))
        await receive(reader)
        for message in messages:
            self.writer.write(message)
        return reader


async def work(*_: object) -> None:
    """Be the order of a test: it is only named."""


def process(home: Path) -> SubmissionProcess:
    return SubmissionProcess(Settings(home=home), WHERE, probe_s=1)


READY_MESSAGE = frame((READY, None, None))


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


@pytest.mark.parametrize("conduct", ["ends", "hangs"])
def test_a_process_that_ends_or_hangs_at_its_start_leaves_the_work_to_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, conduct: str, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer(monkeypatch)
    if conduct == "hangs":
        monkeypatch.setattr(submission_process, "START_S", 0.01)

    async def main() -> None:
        large = process(tmp_path)
        waiting = [asyncio.create_task(large.run("desk", work)) for _ in range(2)]
        await peer.conduct()
        assert peer.writer is not None
        if conduct == "ends":
            peer.writer.close()
        assert [type(each) for each in await asyncio.gather(*waiting, return_exceptions=True)] == [NotStarted] * 2
        peer.writer.close()
        await large.close()

    asyncio.run(asyncio.wait_for(main(), 30))
    assert (peer.starts, peer.kills) == (1, int(conduct == "hangs"))
    assert ("(3)" if conduct == "ends" else "no answer in 0 s") in caplog.text


@pytest.mark.parametrize("conduct", ["hangs", "answers what can't be read"])
def test_a_process_that_answers_no_more_is_killed_and_its_work_told_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, conduct: str, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer(monkeypatch)
    if conduct == "hangs":
        monkeypatch.setattr(submission_process, "SILENCE_S", 0.02)

    async def main() -> None:
        large = process(tmp_path)
        running = asyncio.create_task(large.run("desk", work))
        reader = await peer.conduct(READY_MESSAGE)
        if conduct != "hangs":
            number, function, _ = await receive(reader)
            assert (number, function) == (0, work)
            assert peer.writer is not None
            peer.writer.write((7).to_bytes(8, "big") + b"no sign")
        with pytest.raises(ProcessEnded):
            await running
        assert not large._is_open()
        assert peer.writer is not None
        peer.writer.close()
        await large.close()

    asyncio.run(asyncio.wait_for(main(), 30))
    assert peer.kills == 1
    assert ("no sign of life" if conduct == "hangs" else "can't be read") in caplog.text


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
