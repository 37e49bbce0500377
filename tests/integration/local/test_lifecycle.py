import stat
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from tests.integration.local.actions import pids, query, store, stored, valkey
from tests.left_homes import remove
from worker.local import HomeError, LocalOptions, StopError, start, status, stop
from worker.local.home import Home
from worker.supervise.processes import is_alive


def test_a_deep_home_with_an_awkward_name_from_nothing_to_nothing(
    new_home: Callable[[str], Path], options: LocalOptions
) -> None:
    above = new_home('it\'s "quoted" \\ and # spaced')
    home = above / ("d" * 120)
    now = status(home)
    assert (now.running, now.postgres.running, now.postgres.pid, now.postgres.port) == (False, False, None, None)
    assert stop(home, options) == frozenset()
    assert not above.exists(), "a look creates nothing"
    try:
        first = start(home, options)
        assert first.started == {"postgres", "valkey"}
        assert first.database_url.startswith("postgresql://nightdesk:")
        assert first.redis_url.startswith("redis://:")
        store(first, "a")
        now = status(home)
        assert now.running
        assert f":{now.postgres.port}/nightdesk" in first.database_url
        assert f":{now.valkey.port}/0" in first.redis_url
        assert stop(home, options) == {"postgres", "valkey"}
        assert stop(home, options) == frozenset()
        second = start(home, options)
        assert (second.database_url, second.redis_url) == (first.database_url, first.redis_url)
        assert stored(second) == (["a"], ["a"])
        processes = [psutil.Process(pid) for pid in pids(home).values()]
    finally:
        remove(home, options)
    assert not any(is_alive(process) for process in processes)
    assert list(home.iterdir()) == []
    remove(home, options)


def test_the_role_owns_its_database_and_is_no_superuser(running_home: Path, options: LocalOptions) -> None:
    url = start(running_home, options).database_url
    rights = (
        "SELECT current_user::text, rolsuper, rolcreaterole, rolcreatedb FROM pg_roles WHERE rolname = current_user"
    )
    assert query(url, rights) == [("nightdesk", False, False, False)]
    owner = "SELECT pg_get_userbyid(datdba)::text FROM pg_database WHERE datname = current_database()"
    assert query(url, owner) == [("nightdesk",)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        query(url, "COPY (SELECT 1) TO PROGRAM 'true'")


def test_both_are_durable(running_home: Path, options: LocalOptions) -> None:
    endpoints = start(running_home, options)
    for setting in ("fsync", "synchronous_commit", "full_page_writes", "data_checksums"):
        assert query(endpoints.database_url, f"SHOW {setting}") == [("on",)]
    assert query(endpoints.database_url, "SELECT lower('ÄÖ'), upper('é')") == [("äö", "É")]
    with valkey(endpoints.redis_url) as client:
        settings = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}
        assert {name: client.config_get(name)[name] for name in settings} == settings


def test_both_require_the_password_and_no_other_account_can_read_it(running_home: Path, options: LocalOptions) -> None:
    endpoints = start(running_home, options)
    now = status(running_home)
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(host="127.0.0.1", port=now.postgres.port, user="nightdesk", password="", dbname="nightdesk")
    with valkey(f"redis://127.0.0.1:{now.valkey.port}/0") as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    place = Home.at(running_home)
    secrets_file = place.local / "secrets.json"
    assert stat.S_IMODE(secrets_file.stat().st_mode) == 0o600
    passwords = place.passwords()
    for secret in (passwords.postgres, passwords.postgres_superuser, passwords.valkey):
        assert secret not in repr(endpoints) + repr(passwords)
        assert all(secret not in " ".join(psutil.Process(pid).cmdline()) for pid in pids(running_home).values())
        files = [path for path in place.local.rglob("*") if path.is_file() and path != secrets_file]
        assert files
        assert not [path for path in files if secret.encode() in present_bytes(path)]


def present_bytes(path: Path) -> bytes:
    """The content of a file that the server may remove at any moment, such as a cache of its own."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def test_lost_passwords_are_reported_and_do_not_prevent_stopping(seeded_home: Path, options: LocalOptions) -> None:
    start(seeded_home, options)
    (seeded_home / "local" / "secrets.json").unlink()
    with pytest.raises(HomeError, match=r"restore that file"):
        start(seeded_home, options)
    assert stop(seeded_home, options) == {"postgres", "valkey"}


def test_a_server_that_does_not_end_is_named(running_home: Path, options: LocalOptions) -> None:
    start(running_home, options)
    # The one that is waited for first: on a busy machine the other may not end in so short a time either.
    process = psutil.Process(pids(running_home)["postgres"])
    process.suspend()
    try:
        with pytest.raises(StopError, match=str(process.pid)):
            stop(running_home, LocalOptions(shared_root=options.shared_root, stop_s=0.3))
    finally:
        process.resume()
    stop(running_home, options)
    assert not is_alive(process)
