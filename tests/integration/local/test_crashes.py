import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.integration.local.actions import kill, pids, start_elsewhere, store, stored
from worker.local import LocalOptions, StartError, StartTimeoutError, start, status, stop
from worker.process.doorbell import ring
from worker.settings import Settings
from worker.supervise.processes import is_alive


@contextmanager
def bystander(like: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a foreign process under the servers' account."""
    owner = like.stat()
    switch = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": ()} if os.geteuid() == 0 else {}
    process = subprocess.Popen(["/bin/sleep", "600"], cwd="/", **switch)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("name", ["postgres", "valkey"])
def test_a_killed_server_comes_back_with_its_data(running_home: Path, options: LocalOptions, name: str) -> None:
    first = start(running_home, options)
    store(first, "a")
    before = pids(running_home)
    kill(before[name])
    assert not getattr(status(running_home), name).running
    second = start(running_home, options)
    assert second.started == {name}
    assert {other for other, pid in pids(running_home).items() if before[other] == pid} == before.keys() - {name}
    assert (second.database_url, second.redis_url) == (first.database_url, first.redis_url)
    assert stored(second) == (["a"], ["a"])


def test_only_a_killed_valkey_may_have_lost_results(running_home: Path, options: LocalOptions) -> None:
    def lost_its_data(*, remember: bool = False) -> bool:
        redis_url = start(running_home, options).redis_url

        async def look() -> bool:
            async with ring(Settings(), redis_url) as doorbell:
                lost = await doorbell.lost_its_data()
                if remember:
                    await doorbell.remember()
                return lost

        return asyncio.run(look())

    assert lost_its_data(remember=True)
    for _ in range(2):
        stop(running_home, options)
        assert not lost_its_data()
    kill(pids(running_home)["valkey"])
    assert lost_its_data()
    stop(running_home, options)
    assert lost_its_data(), "until a worker has published them again"


def test_pid_files_that_name_a_foreign_process(running_home: Path, options: LocalOptions) -> None:
    store(start(running_home, options), "a")
    data = running_home / "local" / "data"
    files = {data / "postgres" / "postmaster.pid": "postgres", data / "valkey" / "valkey.pid": "valkey"}
    notes = {file: (file.read_text(), file.stat()) for file in files}
    for pid in pids(running_home).values():
        kill(pid)
    with bystander(data / "postgres") as process:
        for file, (text, before) in notes.items():
            file.write_text("\n".join([str(process.pid), *text.split("\n")[1:]]))
            os.chown(file, before.st_uid, before.st_gid)
        now = status(running_home)
        assert (now.postgres.running, now.valkey.running) == (False, False)
        assert stop(running_home, options) == frozenset()
        endpoints = start(running_home, options)
        assert endpoints.started == {"postgres", "valkey"}
        assert stored(endpoints) == (["a"], ["a"])
        assert process.pid not in pids(running_home).values()
        stop(running_home, options)
        assert process.poll() is None


def test_a_start_killed_at_any_step_can_be_repeated(home: Path, options: LocalOptions) -> None:
    for last_steps in (
        ["subprocess.Popen /initdb", "call communicate"],  # initdb goes on alone
        ["os.rename postgres.new"],
        ["open valkey.pid"],  # PostgreSQL runs
        ["os.rename valkey.conf"],
    ):
        process = start_elsewhere(home, options, last_steps=last_steps)
        assert process.end() == (-signal.SIGKILL, frozenset()), last_steps
        if "valkey.pid" in last_steps[0]:
            stop(home, options)
    endpoints = start(home, options)
    store(endpoints, "a")
    assert stored(endpoints) == (["a"], ["a"])
    processes = [process for process in psutil.process_iter() if _names(process, home / "local")]
    assert {process.pid for process in processes} == set(pids(home).values())


def test_starts_at_once_make_one_pair_of_servers(home: Path, options: LocalOptions) -> None:
    processes = [start_elsewhere(home, options) for _ in range(3)]
    ends = [process.end() for process in processes]
    assert {code for code, _ in ends} == {0}
    assert sorted(name for _, names in ends for name in names) == ["postgres", "valkey"]
    assert status(home).running


def test_a_failed_start_says_why_and_stops_what_it_started(running_home: Path, options: LocalOptions) -> None:
    start(running_home, options)
    stop(running_home, options)
    (manifest,) = (running_home / "local" / "data" / "valkey" / "appendonlydir").glob("*.manifest")
    good = manifest.read_text()
    manifest.write_text("nonsense\n")
    with pytest.raises(StartError, match=r"(?s)valkey ended while starting.*valkey\.log.*manifest"):
        start(running_home, options)
    assert not status(running_home).postgres.running
    manifest.write_text(good)
    assert start(running_home, options).started == {"postgres", "valkey"}


def test_a_server_that_is_slow_to_answer_is_left_running(running_home: Path, options: LocalOptions) -> None:
    start(running_home, options)
    process = psutil.Process(pids(running_home)["valkey"])
    process.suspend()
    try:
        with pytest.raises(StartTimeoutError, match=str(process.pid)):
            start(running_home, LocalOptions(shared_root=options.shared_root, start_s=0.3))
    finally:
        process.resume()
    assert is_alive(process)
    assert start(running_home, options).started == frozenset()


def _names(process: psutil.Process, path: Path) -> bool:
    try:
        return any(str(path) in argument for argument in process.cmdline())
    except psutil.Error:
        return False
