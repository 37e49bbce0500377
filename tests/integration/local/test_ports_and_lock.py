import json
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from tests.integration.local.actions import store, stored
from worker.local import LocalOptions, start, status, stop
from worker.local import home as home_module


@contextmanager
def listener(port: int) -> Iterator[None]:
    with closing(socket.create_server(("127.0.0.1", port))):
        yield


def test_a_used_port_is_replaced_by_another(running_home: Path, options: LocalOptions) -> None:
    store(start(running_home, options), "a")
    before = status(running_home)
    stop(running_home, options)
    with ExitStack() as stack:
        for server in (before.postgres, before.valkey):
            assert server.port is not None
            stack.enter_context(listener(server.port))
        endpoints = start(running_home, options)
        assert stored(endpoints) == (["a"], ["a"])
    after = status(running_home)
    assert (after.postgres.port, after.valkey.port) != (before.postgres.port, before.valkey.port)
    stop(running_home, options)
    again = start(running_home, options)
    assert again.database_url == endpoints.database_url
    assert again.redis_url == endpoints.redis_url


def test_ports_lost_to_another_home(
    running_home: Path, home: Path, options: LocalOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(running_home, options)
    used = status(running_home)
    start(home, options)
    own = ports(home)
    stop(home, options)
    note = home / "local" / "ports.json"
    note.write_text(json.dumps({"postgres": used.postgres.port, "valkey": used.valkey.port}))
    looks: list[int] = []
    real = home_module.is_free
    used_ports = ports(running_home)

    def free_at_first_sight(port: int) -> bool:
        looks.append(port)
        return looks.count(port) == 1 if port in used_ports else real(port)

    monkeypatch.setattr(home_module, "is_free", free_at_first_sight)
    assert start(home, options).started == {"postgres", "valkey"}
    assert not ports(home) & (used_ports | own)
    assert status(running_home) == used


def ports(home: Path) -> set[int]:
    now = status(home)
    return {port for port in (now.postgres.port, now.valkey.port) if port is not None}


def test_a_copied_home_gets_a_life_of_its_own(
    seeded_home: Path, new_home: Callable[[str], Path], options: LocalOptions
) -> None:
    copy = new_home("copy")
    store(start(seeded_home, options), "a")
    stop(seeded_home, options)
    _copy_with_owners(seeded_home, copy)
    first, second = start(seeded_home, options), start(copy, options)
    store(second, "b")
    assert stored(first) == (["a"], ["a"])
    assert stored(second) == (["a", "b"], ["a", "b"])


def _copy_with_owners(source: Path, target: Path) -> None:
    shutil.copytree(source, target)
    for path in source.rglob("*"):
        owner = path.stat()
        shutil.chown(target / path.relative_to(source), owner.st_uid, owner.st_gid)
