import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.cli.commands import services
from worker.cli.session import Session
from worker.local import Endpoints
from worker.settings import Settings
from worker.supervise.state_directory import StateDirectory
from worker.supervise.workers import (
    Supervisor,
    WorkerSpec,
    _write_record,
    check_only_specs,
    local_model_processes,
    supervisor_of,
    worker_specs,
)


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    state = StateDirectory(tmp_path / "home")
    state.create()
    return state


@pytest.fixture
def sleeper(state: StateDirectory) -> Iterator["subprocess.Popen[bytes]"]:
    """A process whose command line names the record of the worker 'generate'."""
    record = state.workers / "generate.pid"
    command = [sys.executable, "-c", "print(flush=True); input()", str(record)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        # Its command line can be read a moment after its start only.
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def note(state: StateDirectory, name: str, pid: int | str) -> None:
    (state.workers / f"{name}.pid").write_text(
        f'{pid}\n{{"queues": ["generate"], "ephemeral": true, "settings": "x"}}\n'
    )


CHECK = WorkerSpec("check-1", ("check",))


def test_one_worker_checks_and_the_others_call_with_an_even_share_of_the_slots() -> None:
    assert worker_specs(1_000, 1) == (WorkerSpec("all", ("generate", "check", "submit")),)
    queues = ("generate", "submit")
    assert worker_specs(1_000, 4) == (
        WorkerSpec("generate-1", queues, 334),
        WorkerSpec("generate-2", queues, 333),
        WorkerSpec("generate-3", queues, 333),
        CHECK,
    )
    assert worker_specs(1, 3) == (WorkerSpec("generate-1", queues, 1), CHECK)
    assert len(worker_specs(1_000)) >= 2


def test_a_worker_gets_its_share_of_the_slots_and_its_record_names_it(
    state: StateDirectory, sleeper: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHTDESK_SLOTS", "1000")
    spec = WorkerSpec("generate", ("generate",), 500)
    assert Supervisor(state)._environment(spec)["NIGHTDESK_SLOTS"] == "500"
    assert Supervisor(state)._environment(WorkerSpec("all", ("generate",)))["NIGHTDESK_SLOTS"] == "1000"

    _write_record(state.workers / "generate.pid", sleeper.pid, spec, ephemeral=True, settings="x")
    assert Supervisor(state).running()["generate"].spec == spec


def test_the_local_model_gets_processes_of_its_own() -> None:
    of_model = (WorkerSpec("local-1", ("local",)), WorkerSpec("local-2", ("local",)))
    assert worker_specs(9, 1, local=2) == (*worker_specs(9, 1), *of_model)
    assert worker_specs(9, 3, local=2) == (*worker_specs(9, 3), *of_model)
    assert check_only_specs(local=2) == (*check_only_specs(), *of_model)
    assert {queue for spec in check_only_specs() for queue in spec.queues} == {"check"}
    assert local_model_processes(Settings(local_model_processes=3)) == 0
    assert local_model_processes(Settings(local_model="a.module:Model", local_model_processes=3)) == 3


def test_a_worker_is_recognised_by_the_record_on_its_command_line(
    state: StateDirectory, sleeper: "subprocess.Popen[bytes]"
) -> None:
    note(state, "generate", sleeper.pid)
    assert {name: worker_process.pid for name, worker_process in Supervisor(state).running().items()} == {
        "generate": sleeper.pid
    }


def test_a_reused_process_id_is_no_worker(state: StateDirectory, sleeper: "subprocess.Popen[bytes]") -> None:
    note(state, "check-1", sleeper.pid)
    assert Supervisor(state).running() == {}
    assert Supervisor(state).exited() == {"check-1"}


@pytest.mark.parametrize("content", ["", "x\n{}", "999999999\n{}", "7\n"])
def test_a_damaged_or_stale_record_is_no_worker(state: StateDirectory, content: str) -> None:
    (state.workers / "generate.pid").write_text(content)
    assert Supervisor(state).running() == {}
    Supervisor(state).clear()
    assert Supervisor(state).exited() == set()


def test_workers_with_another_key_address_or_setting_are_noticed(
    state: StateDirectory,
    sleeper: "subprocess.Popen[bytes]",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = Settings(providers={"mine": {"kind": "openai_chat", "base_url": "https://x/v1", "api_key_env": "MINE"}})
    monkeypatch.setenv("OPENAI_API_KEY", "sk-first-key-of-the-workers")
    first = supervisor_of(settings, state)
    _write_record(
        state.workers / "generate.pid",
        sleeper.pid,
        WorkerSpec("generate", ()),
        ephemeral=False,
        settings=first.fingerprint,
    )
    assert "sk-first" not in (state.workers / "generate.pid").read_text()
    assert supervisor_of(settings, state).difference() == ""

    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "MINE", "MINE_FILE"):
        with monkeypatch.context() as changed:
            changed.setenv(name, "https://other/v1")
            message = supervisor_of(settings, state).difference()
            assert "or another key or address of a provider" in message, name
            assert message.endswith("nightdesk down; nightdesk up")
    other = supervisor_of(settings.model_copy(update={"max_concurrency": 3}), state)
    assert "started with other settings" in other.difference()

    services._report(Session(settings, state, Endpoints("", "", frozenset()), other), set(), set(), as_json=False)
    assert "started with other settings" in capsys.readouterr().err
