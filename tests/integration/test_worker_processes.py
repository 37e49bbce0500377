"""Workers that outlive their starter: how they begin and end, and who sees it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.acceptance.cli_home import until
from tests.servers import Servers
from worker.settings import Settings, load_settings
from worker.supervise.processes import guard_is_free
from worker.supervise.state_directory import StateDirectory
from worker.supervise.workers import Supervisor, WorkerFailed, WorkerSpec, _identity, supervisor_of, worker_specs

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


def two_of(settings: Settings) -> tuple[WorkerSpec, WorkerSpec]:
    return worker_specs(settings.slots, 2)  # type: ignore[return-value]


def start(supervisor: Supervisor, *specs: WorkerSpec) -> list[psutil.Process]:
    for spec in specs:
        assert supervisor.start(spec, ephemeral=True)
    assert supervisor.await_ready([spec.name for spec in specs], READY_S) == []
    running = supervisor.running()
    return [running[spec.name].process for spec in specs]


def await_line(supervisor: Supervisor, spec: WorkerSpec, line: str) -> None:
    """Wait for a line of a worker's log: a worker is ready to its supervisor before it has written what it does."""
    until(lambda: line in supervisor.log(spec.name).read_text(), f"{spec.name} has logged {line!r}")


def test_workers_have_a_session_a_log_and_a_guard_of_their_own_and_end_in_order(
    settings: Settings, supervisor: Supervisor
) -> None:
    specs = two_of(settings)
    workers = start(supervisor, *specs)

    assert len({worker.pid for worker in workers}) == 2
    for spec, worker in zip(specs, workers, strict=True):
        command = [sys.executable, "-m", "worker.cli", *supervisor._command(spec)]
        assert [word for word in worker.cmdline() if word] == command
        assert os.getsid(worker.pid) != os.getsid(0)
        assert Path(f"/proc/{worker.pid}/fd/0").readlink() == Path(os.devnull)
        assert Path(f"/proc/{worker.pid}/fd/2").readlink() == supervisor.log(spec.name)
        assert worker.cwd() == str(REPOSITORY)
        assert not guard_is_free(_identity(supervisor._record(spec.name)))
        await_line(supervisor, spec, f"takes jobs of the queues {', '.join(spec.queues)}")
    await_line(supervisor, specs[0], f"{specs[0].slots:,} calls at once")
    assert not supervisor.start(specs[0], ephemeral=True)

    assert supervisor.await_exit(supervisor.terminate([spec.name for spec in specs]), READY_S) == []
    until(lambda: not any(psutil.pid_exists(worker.pid) for worker in workers), "the system has collected the workers")
    for spec in specs:
        assert "Warm shutdown" in supervisor.log(spec.name).read_text()


def test_a_worker_that_can_not_start_says_why(
    settings: Settings, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, checking = two_of(settings)
    monkeypatch.setenv("NIGHTDESK_CALIBRATION", "/nowhere.json")
    supervisor.start(checking, ephemeral=True)
    with pytest.raises(WorkerFailed, match=r"nowhere\.json"):
        supervisor.await_ready([checking.name], READY_S)
