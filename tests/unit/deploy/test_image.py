import json
import os
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.deployment import DOCKERFILE, HEALTH, REPOSITORY, pods_user

OWN_HOST = "127.0.0.2"
"""An address of loopback that is not the usual one."""


def instructions() -> list[tuple[str, str]]:
    """Instruction and arguments, with continued lines joined and comments gone."""
    text = "\n".join(line for line in DOCKERFILE.read_text().splitlines() if not line.lstrip().startswith("#"))
    joined = text.replace("\\\n", " ")
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def instruction_arguments(name: str) -> list[str]:
    return [rest for keyword, rest in instructions() if keyword == name]


def test_the_entrypoint_is_the_command() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    (entrypoint,) = instruction_arguments("ENTRYPOINT")
    (command,) = json.loads(entrypoint)
    assert command in project["scripts"]


def test_an_extra_adds_its_packages() -> None:
    (install,) = [rest for rest in instruction_arguments("RUN") if "> requirements.txt" in rest]
    command = install.partition(" > requirements.txt")[0].replace("python", sys.executable, 1)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for named, added in (("", []), ("onnx", extras["onnx"]), ("onnx,tokens", extras["onnx"] + extras["tokens"])):
        listed = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=REPOSITORY,
            env={"EXTRAS": named},
            capture_output=True,
            text=True,
            check=True,
        )
        assert listed.stdout.splitlines() == project["dependencies"] + added


def test_it_runs_as_the_user_that_kubernetes_names() -> None:
    assert instruction_arguments("USER") == ["10001:10001"]
    assert pods_user() == {(10001, 10001)}
    assert "ca-certificates" in " ".join(instruction_arguments("RUN"))


@pytest.fixture
def healthz() -> Iterator[int]:
    """The port of a service that answers /healthz alone."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Writes nothing."""

    with HTTPServer((OWN_HOST, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_the_health_of_a_container_is_that_of_its_command(tmp_path: Path, healthz: int) -> None:
    alive, none = tmp_path / "alive", tmp_path / "none"
    alive.touch()
    old = tmp_path / "old"
    old.touch()
    os.utime(old, (0, 0))
    (check,) = instruction_arguments("HEALTHCHECK")
    assert check.endswith('CMD ["sh", "/opt/nightdesk/bin/healthcheck"]')

    def is_well(command: str, file: Path = none) -> bool:
        line = tmp_path / "cmdline"
        line.write_text("\0".join([*command.split(), ""]))
        environment = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "NIGHTDESK_ALIVE_FILE": str(file),
            "http_proxy": "http://127.0.0.1:1",
        }
        return not subprocess.run(["sh", HEALTH, line], env=environment, capture_output=True, check=False).returncode

    worker = "/sbin/docker-init -- nightdesk worker --queues check"
    assert [is_well(worker, file) for file in (alive, old, none)] == [True, False, False]
    service = f"/opt/nightdesk/bin/python /opt/nightdesk/bin/nightdesk serve --host {OWN_HOST} --port"
    assert is_well(f"{service} {healthz}")
    assert not is_well(f"{service} 1")
    assert is_well("nightdesk migrate")


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ("", "127.0.0.1 8080"),
        ("--host 0.0.0.0", "127.0.0.1 8080"),
        ("--port=81 --host=::", "[::1] 81"),
        ("--host fd00::7 --port 81", "[fd00::7] 81"),
        ("--port 81 --host 10.0.0.7", "10.0.0.7 81"),
    ],
)
def test_a_service_is_asked_where_it_listens(tmp_path: Path, options: str, place: str) -> None:
    python, line = tmp_path / "python", tmp_path / "cmdline"
    python.write_text('#!/bin/sh\necho "$4 $5"\n')
    python.chmod(0o755)
    line.write_text("\0".join(["nightdesk", "serve", *options.split(), ""]))
    done = subprocess.run(
        ["sh", HEALTH, line], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{place}\n"
