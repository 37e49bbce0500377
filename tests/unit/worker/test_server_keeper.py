"""The keeper starts the servers of a home again, at growing pauses, and says each thing once."""

import logging
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from celery import signals

from worker import local
from worker.local import Endpoints, StartError
from worker.process import server_keeper
from worker.process.server_keeper import LOOK_EVERY_S, LOOKS, ServerKeeper, keep_servers
from worker.settings import Settings

WHERE = Endpoints("postgresql://127.0.0.1:20001/nightdesk", "redis://127.0.0.1:20002/0")
FULL = "postgres ended while starting, because the disk of /home is full: make room there"


@dataclass
class Servers:
    """Servers of a home whose state and refusal a test sets."""

    ended: frozenset[str] = frozenset()
    refusal: str = ""
    where: Endpoints = WHERE
    starts: list[frozenset[str]] = field(default_factory=list)
    now: float = 1000.0

    def start(self, _: Path) -> Endpoints:
        self.starts.append(self.ended)
        if self.refusal:
            raise StartError(self.refusal)
        started, self.ended = self.ended, frozenset()
        return Endpoints(self.where.database_url, self.where.redis_url, started)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Servers:
    servers = Servers()
    monkeypatch.setattr(local, "ended", lambda _: servers.ended)
    monkeypatch.setattr(local, "start", servers.start)
    monkeypatch.setattr(server_keeper, "monotonic", lambda: servers.now)
    return servers


@pytest.fixture
def keeper(servers: Servers, tmp_path: Path) -> ServerKeeper:
    return ServerKeeper(tmp_path, servers.where)


def looks(keeper: ServerKeeper, servers: Servers, count: int) -> list[float]:
    """The pauses after so many looks, each of which the clock passes."""
    pauses = []
    for _ in range(count):
        pauses.append(keeper.look())
        servers.now += pauses[-1]
    return pauses


def test_servers_that_run_are_only_looked_at(keeper: ServerKeeper, servers: Servers) -> None:
    assert looks(keeper, servers, 3) == [LOOK_EVERY_S] * 3
    assert servers.starts == []


def test_a_server_that_a_command_is_about_to_start_is_left_to_it(keeper: ServerKeeper, servers: Servers) -> None:
    servers.ended = frozenset({"postgres"})
    looks(keeper, servers, LOOKS - 1)
    servers.ended = frozenset()
    looks(keeper, servers, 1)
    servers.ended = frozenset({"postgres"})
    looks(keeper, servers, LOOKS - 1)
    assert servers.starts == []


def test_a_server_that_has_ended_is_started_and_named(
    keeper: ServerKeeper, servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    servers.ended = frozenset({"postgres", "valkey"})
    looks(keeper, servers, LOOKS)
    assert len(servers.starts) == 1
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.WARNING, "PostgreSQL and Valkey of this home had ended; they are started again")
    ]


def test_a_refused_start_is_tried_again_at_growing_pauses_and_told_once_per_cause(
    keeper: ServerKeeper, servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    servers.ended, servers.refusal = frozenset({"postgres"}), f"{FULL}\nlog of 03:07"
    looks(keeper, servers, LOOKS - 1)
    assert looks(keeper, servers, 7) == [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    servers.refusal = f"{FULL}\nlog of 03:08"
    looks(keeper, servers, 1)
    assert [FULL in record.message for record in caplog.records] == [True]
    servers.refusal = "postgres lost 3 ports in a row"
    looks(keeper, servers, 2)
    assert len(caplog.records) == 2

    servers.refusal = ""
    looks(keeper, servers, 1)
    assert "it is started again" in caplog.records[-1].message


def test_a_server_that_ends_again_and_again_is_started_ever_less_often_until_it_stays(
    keeper: ServerKeeper, servers: Servers
) -> None:
    pauses = []
    for _ in range(3):
        servers.ended = frozenset({"valkey"})
        pauses.append(looks(keeper, servers, LOOKS)[-1])
    assert pauses == [2.0, 4.0, 8.0]
    servers.now += 61
    looks(keeper, servers, 1)
    servers.ended = frozenset({"valkey"})
    assert looks(keeper, servers, LOOKS)[-1] == 2.0


def test_another_port_is_told(keeper: ServerKeeper, servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    servers.ended = frozenset({"valkey"})
    servers.where = Endpoints(WHERE.database_url, "redis://127.0.0.1:20003/0")
    looks(keeper, servers, LOOKS)
    assert "'nightdesk down', then 'nightdesk up'" in caplog.text


def keeper_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "server keeper"]


def test_the_signal_to_stop_ends_the_keeper_while_calls_are_in_flight(servers: Servers, tmp_path: Path) -> None:
    servers.ended = frozenset({"postgres"})
    with keep_servers(Settings(home=tmp_path), WHERE):
        (thread,) = keeper_threads()
        signals.worker_shutting_down.send(sender="test")
        thread.join(10)
        assert not thread.is_alive()
    assert servers.starts == []


def test_servers_named_by_url_are_not_kept(servers: Servers, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url=WHERE.database_url, redis_url=WHERE.redis_url)
    with keep_servers(settings, WHERE):
        assert keeper_threads() == []
