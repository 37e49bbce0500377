"""A worker that loads its modules before it is needed: it does nothing until it is started, and outlives nobody."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.acceptance.cli_home import until
from tests.servers import Servers
from worker.cli.early_worker import early_worker
from worker.settings import Settings, load_settings
from worker.supervise.processes import guard_is_free, is_alive
from worker.supervise.state_directory import StateDirectory
from worker.supervise.workers import PreparedWorker, Supervisor, WorkerSpec, _identity, supervisor_of, worker_specs

READY_S = 60.0
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def settings(servers: Servers, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in [name for name in os.environ if name.startswith("NIGHTDESK_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "HOME": str(tmp_path / "home"),
        "DATABASE_URL": database_url,
        "REDIS_URL": servers.redis_url,
        "KEY_PREFIX": f"{database_url.rpartition('_')[2]}:",
        "PROVIDER": "extractive",
    }.items():
        monkeypatch.setenv(f"NIGHTDESK_{name}", value)
    StateDirectory(tmp_path / "home").create()
    return load_settings()


@pytest.fixture
def supervisor(settings: Settings) -> Iterator[Supervisor]:
    supervisor = supervisor_of(settings, StateDirectory(settings.home))
    yield supervisor
    for worker in supervisor.running().values():
        worker.process.kill()
        worker.process.wait(READY_S)


def first_of(settings: Settings) -> WorkerSpec:
    return worker_specs(settings.slots)[0]


def process_of(prepared: PreparedWorker) -> psutil.Process:
    assert prepared._process is not None
    return prepared._process


def test_it_is_no_worker_until_it_is_started(settings: Settings, supervisor: Supervisor) -> None:
    prepared = supervisor.prepare(first_of(settings))
    assert prepared is not None
    process = process_of(prepared)
    assert supervisor.running() == {}

    supervisor.take(prepared)
    assert supervisor.start(prepared.spec, ephemeral=True)

    assert supervisor.await_ready([prepared.spec.name], READY_S) == []
    assert {name: worker.pid for name, worker in supervisor.running().items()} == {prepared.spec.name: process.pid}
    assert not guard_is_free(_identity(supervisor._record(prepared.spec.name)))
    assert not supervisor.start(prepared.spec, ephemeral=True)


def test_it_ends_with_its_starter(settings: Settings, supervisor: Supervisor) -> None:
    prepared = supervisor.prepare(first_of(settings))
    assert prepared is not None
    process = process_of(prepared)
    # As the system closes it where the starter is killed.
    prepared._channel.close()
    until(lambda: not is_alive(process), "the prepared worker ends")
    assert supervisor.running() == {}
    assert "ready" not in supervisor.log(prepared.spec.name).read_text()


def test_one_that_was_killed_is_replaced(settings: Settings, supervisor: Supervisor) -> None:
    prepared = supervisor.prepare(first_of(settings))
    assert prepared is not None
    process = process_of(prepared)
    process.kill()
    until(lambda: not is_alive(process), "the prepared worker is gone")

    supervisor.take(prepared)
    assert supervisor.start(prepared.spec, ephemeral=True)

    assert supervisor.await_ready([prepared.spec.name], READY_S) == []
    assert supervisor.running()[prepared.spec.name].pid != process.pid


def test_a_command_that_starts_none_leaves_none(settings: Settings) -> None:
    with early_worker(settings) as prepared:
        assert prepared is not None
        process = process_of(prepared)
        assert is_alive(process)
    until(lambda: not is_alive(process), "the prepared worker is gone")


def test_a_home_that_never_had_a_worker_gets_none_before_its_input_is_read(settings: Settings, tmp_path: Path) -> None:
    with early_worker(settings.model_copy(update={"home": tmp_path / "new"})) as prepared:
        assert prepared is None
    assert not (tmp_path / "new").exists()


SPAWN = """
import fcntl, os, sys, time
from pathlib import Path
from worker.supervise.files import open_lock, try_lock
from worker.supervise.processes import spawn

descriptor = int(sys.argv[1])
locked = fcntl.fcntl(open_lock(Path("guard")), fcntl.F_DUPFD, 20)
assert try_lock(locked)
given = fcntl.fcntl(os.open("input", os.O_RDONLY), fcntl.F_DUPFD, 20)
os.dup2(locked, descriptor)
command = ["/bin/sh", "-c", "cat; exec sleep 60"]
process = spawn(command, Path("log"), descriptor, directory=Path.cwd(), environment=dict(os.environ), stdin=given)
os.closerange(3, 64)
while not Path("log").read_text():
    time.sleep(0.01)
print(Path("log").read_text(), try_lock(open_lock(Path("guard"))))
process.kill()
"""


@pytest.mark.parametrize("descriptor", [3, 4, 9])
def test_a_process_keeps_its_guard_and_its_input_whatever_the_descriptor(descriptor: int, tmp_path: Path) -> None:
    (tmp_path / "input").write_text("hello")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", SPAWN, str(descriptor)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=READY_S,
    )  # fmt: skip
    assert done.stdout == "hello False\n"
