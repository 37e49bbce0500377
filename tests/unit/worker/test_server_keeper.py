"""The keeper starts the servers of a home again, and says so."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from celery import signals

from worker import local
from worker.local import Endpoints, StartError
from worker.process import server_keeper
from worker.process.server_keeper import keep_servers
from worker.settings import Settings

WHERE = Endpoints("postgresql://127.0.0.1:20001/nightdesk", "redis://127.0.0.1:20002/0")
ENDED = frozenset({"postgres"})


@dataclass
class Servers:
    """The servers of a home at each look of a keeper, and the end of each of its starts."""

    looks: Iterator[frozenset[str]]
    starts: list[Endpoints | StartError]
    over: threading.Event = field(default_factory=threading.Event)

    def ended(self, _: Path) -> frozenset[str]:
        if (ended := next(self.looks, None)) is None:
            self.over.set()
            return frozenset()
        return ended

    def start(self, _: Path) -> Endpoints:
        end = self.starts.pop(0)
        if isinstance(end, StartError):
            raise end
        return end


def keep(
    monkeypatch: pytest.MonkeyPatch, home: Path, looks: list[frozenset[str]], *starts: Endpoints | StartError
) -> None:
    """Let a keeper look so often; each start is to be made."""
    servers = Servers(iter(looks), [*starts])
    monkeypatch.setattr(local, "ended", servers.ended)
    monkeypatch.setattr(local, "start", servers.start)
    monkeypatch.setattr(server_keeper, "LOOK_EVERY_S", 0)
    monkeypatch.setattr(server_keeper, "AFTER_START_S", 0)
    with keep_servers(Settings(home=home), WHERE):
        assert servers.over.wait(30)
    assert servers.starts == []


def test_a_server_that_a_command_is_about_to_start_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keep(monkeypatch, tmp_path, [ENDED, frozenset(), ENDED, frozenset()])


def test_a_refused_start_is_tried_again_and_another_port_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full = StartError("postgres ended while starting, because the disk of /home is full: make room there")
    moved = Endpoints("postgresql://127.0.0.1:20003/nightdesk", WHERE.redis_url, ENDED)
    keep(monkeypatch, tmp_path, [ENDED] * 4, full, moved)

    refused, started, port = (record.message for record in caplog.records)
    assert str(full) in refused
    assert started == "PostgreSQL of this home had ended, and is started again"
    assert "'nightdesk down', then 'nightdesk up'" in port


def keeper_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "server keeper"]


def test_the_signal_to_stop_ends_the_keeper_while_calls_are_in_flight(tmp_path: Path) -> None:
    with keep_servers(Settings(home=tmp_path), WHERE):
        (thread,) = keeper_threads()
        signals.worker_shutting_down.send(sender="test")
        thread.join(10)
        assert not thread.is_alive()
