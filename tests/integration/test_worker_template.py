"""Workers that are forks of a template: they are as executed ones, and need it no longer; it ends with its starter."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import psutil
import pytest

from tests.acceptance.cli_home import until
from tests.servers import Servers
from worker.cli.early_template import begin, early_template
from worker.settings import Settings, load_settings
from worker.supervise.processes import guard_is_free, is_alive
from worker.supervise.state_directory import StateDirectory
from worker.supervise.worker_template import LOG, Order, WorkerTemplate
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


@pytest.fixture
def template(supervisor: Supervisor) -> Iterator[WorkerTemplate]:
    supervisor.load_template()
    assert supervisor._template is not None
    yield supervisor._template
    supervisor.end_template()


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


def is_fork(process: psutil.Process, template: WorkerTemplate) -> bool:
    return process.ppid() == template.pid


def private_share(process: psutil.Process) -> float:
    """The share of a process's memory that no other process has."""
    memory = process.memory_full_info()
    return float(memory.uss / memory.rss)


def test_forked_workers_are_as_executed_ones(
    settings: Settings, supervisor: Supervisor, template: WorkerTemplate
) -> None:
    specs = two_of(settings)
    workers = start(supervisor, *specs)

    assert len({worker.pid for worker in workers}) == 2
    for spec, worker in zip(specs, workers, strict=True):
        assert is_fork(worker, template)
        command = [sys.executable, "-m", "worker.cli", *supervisor._command(spec)]
        assert [word for word in worker.cmdline() if word] == command
        assert os.getsid(worker.pid) == os.getpgid(worker.pid) == worker.pid
        assert Path(f"/proc/{worker.pid}/fd/0").readlink() == Path(os.devnull)
        assert Path(f"/proc/{worker.pid}/fd/2").readlink() == supervisor.log(spec.name)
        assert worker.cwd() == str(REPOSITORY)
        assert not guard_is_free(_identity(supervisor._record(spec.name)))
        await_line(supervisor, spec, f"takes jobs of the queues {', '.join(spec.queues)}")
        assert private_share(worker) < 0.7
    await_line(supervisor, specs[0], f"{specs[0].slots:,} calls at once")
    assert not supervisor.start(specs[0], ephemeral=True)
    assert "error" not in (settings.home / "logs" / LOG).read_text()


def test_a_worker_ends_in_order_on_sigterm(
    settings: Settings, supervisor: Supervisor, template: WorkerTemplate
) -> None:
    first, _ = two_of(settings)
    (worker,) = start(supervisor, first)
    assert supervisor.await_exit(supervisor.terminate([first.name]), READY_S) == []
    until(lambda: not psutil.pid_exists(worker.pid), "the system has collected the worker")
    assert "Warm shutdown" in supervisor.log(first.name).read_text()
    assert template.is_alive


def test_a_killed_worker_is_seen_and_forked_again(
    settings: Settings, supervisor: Supervisor, template: WorkerTemplate
) -> None:
    first, second = two_of(settings)
    killed, other = start(supervisor, first, second)
    killed.kill()
    until(lambda: first.name not in supervisor.running(), "the death is seen")

    (again,) = start(supervisor, first)

    assert again.pid != killed.pid
    assert is_fork(again, template)
    assert supervisor.running()[second.name].pid == other.pid


def test_workers_outlive_a_killed_template_and_the_next_has_another(
    settings: Settings, supervisor: Supervisor, template: WorkerTemplate
) -> None:
    first, second = two_of(settings)
    (worker,) = start(supervisor, first)
    os.kill(template.pid, signal.SIGKILL)
    until(lambda: not template.is_alive, "the template is gone")

    (next_worker,) = start(supervisor, second)

    assert is_alive(worker)
    assert supervisor._template is not None
    assert supervisor._template is not template
    assert is_fork(next_worker, supervisor._template)


def test_an_order_to_a_template_that_dies_is_executed(
    settings: Settings, supervisor: Supervisor, template: WorkerTemplate
) -> None:
    first, _ = two_of(settings)
    os.kill(template.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        started = threads.submit(start, supervisor, first)
        until(lambda: not guard_is_free(_identity(supervisor._record(first.name))), "the order is given")
        os.kill(template.pid, signal.SIGKILL)
        (worker,) = started.result(READY_S)
    assert worker.ppid() != template.pid


def test_where_no_template_can_be_loaded_workers_are_executed(
    settings: Settings, supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, threading\n"
        "if any('template_process' in word for word in sys.orig_argv):\n"
        "    threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    supervisor.load_template()
    first, second = two_of(settings)
    writer, _ = start(supervisor, first, second)
    supervisor.end_template()
    # The checking worker shares its memory with the processes that it forks.
    assert private_share(writer) > 0.7
    assert "an imported module began a thread" in (settings.home / "logs" / LOG).read_text()


def test_a_worker_that_can_not_start_says_why(
    settings: Settings, supervisor: Supervisor, template: WorkerTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, checking = two_of(settings)
    monkeypatch.setenv("NIGHTDESK_CALIBRATION", "/nowhere.json")
    supervisor.start(checking, ephemeral=True)
    with pytest.raises(WorkerFailed, match=r"nowhere\.json"):
        supervisor.await_ready([checking.name], READY_S)
    assert template.is_alive


STARTER = """
import sys
from worker.settings import load_settings
from worker.supervise.state_directory import state_of
from worker.supervise.workers import supervisor_of, worker_specs

settings = load_settings()
supervisor = supervisor_of(settings, state_of(settings))
supervisor.load_template()
supervisor.start(worker_specs(settings.slots, 2)[0], ephemeral=True)
print(supervisor._template.pid, flush=True)
sys.stdin.read()
"""


def test_with_a_killed_starter_ends_the_template_and_no_worker(settings: Settings, supervisor: Supervisor) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with starter:
        assert starter.stdout is not None
        template = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    first, _ = two_of(settings)
    until(lambda: not is_alive(template), "the template ends")
    assert supervisor.await_ready([first.name], READY_S) == []


def test_an_order_of_a_killed_starter_leaves_no_worker(
    settings: Settings, supervisor: Supervisor, template: WorkerTemplate
) -> None:
    first, _ = two_of(settings)
    os.kill(template.pid, signal.SIGSTOP)
    # As the system leaves it where the starter is killed: an order, and the end of the socket.
    with open_log(supervisor, first) as log:
        template._send(Order(supervisor._command(first), dict(os.environ)), log.fileno(), log.fileno())
    template._channel.close()
    os.kill(template.pid, signal.SIGCONT)
    until(lambda: template._process.poll() is not None, "the template ends")
    assert supervisor.running() == {}
    assert supervisor.log(first.name).read_text() == ""


def open_log(supervisor: Supervisor, spec: WorkerSpec) -> BinaryIO:
    return supervisor.log(spec.name).open("ab")


def test_a_command_that_starts_no_worker_leaves_no_template(settings: Settings) -> None:
    with early_template(settings, None) as template:
        assert template is not None
        process = psutil.Process(template.pid)
        assert is_alive(process)
    assert not is_alive(process)


def test_a_template_is_begun_for_commands_that_start_workers(settings: Settings, tmp_path: Path) -> None:
    early = begin(["run", "questions.jsonl", "-o", "answers.jsonl"])
    assert early is not None
    early.end()
    for words in (["run", "--help"], ["check", "answers.jsonl", "--no-workers"], ["status"], ["worker"], []):
        assert begin(words) is None
    (settings.home / "workers" / "generate-1.pid").touch()
    assert begin(["run", "questions.jsonl"]) is None


def test_a_home_that_never_had_a_worker_gets_none_before_its_input_is_read(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHTDESK_HOME", str(tmp_path / "new"))
    assert begin(["run", "questions.jsonl"]) is None
    with early_template(settings.model_copy(update={"home": tmp_path / "new"}), None) as template:
        assert template is None
    assert not (tmp_path / "new").exists()


FORKS = """
import os, random, secrets, ssl
from uuid_utils.compat import uuid7
from worker.cli.template_process import load

load()
for _ in range(2):
    if os.fork() == 0:
        print(random.random(), secrets.token_hex(), ssl.RAND_bytes(8).hex(), str(uuid7())[14:], flush=True)
        os._exit(0)
    os.wait()
"""


def test_forks_draw_other_random_numbers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS], cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=READY_S
    )
    first, second = (line.split() for line in done.stdout.splitlines())
    assert not set(first) & set(second)


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ends a process that a failed test leaves."""
    try:
        yield
    finally:
        process.terminate()


def programs_of(home: Path) -> list[psutil.Process]:
    """The Python processes that were started for a home and still run."""
    programs = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("NIGHTDESK_HOME") == str(home) and is_alive(process):
                programs.append(process)
    return programs


def test_a_command_that_stays_replaces_what_is_killed_and_leaves_nothing(
    settings: Settings, supervisor: Supervisor
) -> None:
    command = [sys.executable, "-m", "worker.cli", "up", "--foreground", "--workers", "2"]
    first, second = two_of(settings)
    with subprocess.Popen(command, cwd=REPOSITORY) as foreground, ended(foreground):

        def template() -> int | None:
            children = psutil.Process(foreground.pid).children()
            return next((child.pid for child in children if "worker.cli.template_process" in child.cmdline()), None)

        def restarted(name: str, pid: int) -> bool:
            running = supervisor.running()
            return name in running and running[name].pid != pid

        until(lambda: {first.name, second.name} <= supervisor.running().keys(), "both workers run")
        assert supervisor.await_ready([first.name, second.name], READY_S) == []
        forking, before = template(), {name: each.pid for name, each in supervisor.running().items()}
        assert forking is not None

        os.kill(before[first.name], signal.SIGKILL)
        until(lambda: restarted(first.name, before[first.name]), "the worker is forked again")
        assert is_child(supervisor, first, forking)

        os.kill(forking, signal.SIGKILL)
        os.kill(before[second.name], signal.SIGKILL)
        until(lambda: restarted(second.name, before[second.name]), "the other is forked by another template")
        assert template() not in {None, forking}
        assert is_child(supervisor, second, template())

        foreground.terminate()
        assert foreground.wait(READY_S) == 0
    assert programs_of(settings.home) == []


def is_child(supervisor: Supervisor, spec: WorkerSpec, parent: int | None) -> bool:
    return supervisor.running()[spec.name].process.ppid() == parent
