import re
import subprocess
import sys
from typing import Any

import pytest

from tests.deployment import COMPOSE, REPOSITORY, Unset, compose, compose_processes, compose_text
from worker.settings import Settings

PASSWORDS = {"NIGHTDESK_POSTGRES_PASSWORD": "p0stgres", "NIGHTDESK_REDIS_PASSWORD": "r3dis"}


def services() -> dict[str, Any]:
    service_definitions: dict[str, Any] = compose(**PASSWORDS)["services"]
    return service_definitions


def test_the_file_keeps_the_compose_specification() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("missing", PASSWORDS)
def test_no_password_has_a_default(missing: str) -> None:
    with pytest.raises(Unset, match=missing):
        compose(**{name: value for name, value in PASSWORDS.items() if name != missing})
    with pytest.raises(Unset, match=missing):
        compose(**{**PASSWORDS, missing: ""})
    # One place that insists would hide another that does not.
    assert set(re.findall(rf"{missing}(..)", COMPOSE.read_text())) == {":?"}


def test_no_password_is_in_the_file_or_on_a_command_line() -> None:
    for name, service in services().items():
        for part in service.get("command", []):
            assert not set(PASSWORDS.values()) & {part}, name
            assert not any(password in part for password in PASSWORDS.values()), name
    for service in compose_text()["services"].values():
        for variable, value in service.get("environment", {}).items():
            if "PASSWORD" in variable or "AUTH" in variable or "KEY" in variable:
                assert value is None or value.startswith("${"), variable


def test_the_example_environment_names_what_the_file_needs() -> None:
    example = {
        line.lstrip("#").partition("=")[0]: line.partition("=")[2]
        for line in (REPOSITORY / ".env.example").read_text().splitlines()
        if "=" in line
    }
    text = COMPOSE.read_text()
    assert example.keys() >= PASSWORDS.keys()
    assert all(f"${{{name}:" in text or f"    {name}:\n" in text for name in example), example
    assert all(example[name] == "" for name in PASSWORDS)


def test_ports_are_published_on_loopback_only() -> None:
    ports = [port for service in services().values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_our_processes_find_the_services_and_know_their_settings() -> None:
    names = {f"NIGHTDESK_{name.upper()}" for name in Settings.model_fields}
    for process in compose_processes(**PASSWORDS):
        environment = process.environment
        assert environment["NIGHTDESK_DATABASE_URL"] == "postgresql://nightdesk:p0stgres@postgres:5432/nightdesk"
        assert environment["NIGHTDESK_REDIS_URL"] == "redis://:r3dis@redis:6379/0"
    for service in services().values():
        if service["image"].startswith("nightdesk:"):
            variables = {name for name in service["environment"] if name.startswith("NIGHTDESK_")}
            assert variables == names - {"NIGHTDESK_HOME"}, "a setting in .env that is not passed on would do nothing"


def test_workers_start_after_the_migration_and_restart() -> None:
    for name in ("generate", "check"):
        service = services()[name]
        assert service["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
        assert service["depends_on"]["redis"]["condition"] == "service_healthy"
        assert service["restart"] == "unless-stopped"
    assert services()["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert services()["migrate"]["restart"] != "unless-stopped"


def test_a_worker_may_drain_before_it_is_killed() -> None:
    workers = [process for process in compose_processes(**PASSWORDS) if process.lasts]
    assert {queue for process in workers for queue in process.arguments[-1].split(",")} == {
        "generate", "check", "local", "submit", "urgent",
    }  # fmt: skip
    assert all(process.grace_s >= Settings().drain_s + 40 for process in workers)


def test_our_containers_run_without_privileges() -> None:
    for service in services().values():
        if service["image"].startswith("nightdesk:"):
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
            assert "no-new-privileges:true" in service["security_opt"]


def test_data_is_stored_in_named_volumes() -> None:
    service_definitions = services()
    assert service_definitions["redis"]["volumes"] == ["redis:/data"]
    # Where the image of PostgreSQL 18 keeps it; at the older path it would be lost with the container.
    assert service_definitions["postgres"]["volumes"] == ["postgres:/var/lib/postgresql"]
    assert service_definitions["postgres"]["image"] == "postgres:18"
    assert compose_text()["volumes"].keys() == {"postgres", "redis", "home", "prometheus", "grafana"}
