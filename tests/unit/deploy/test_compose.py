import re
import subprocess
import sys
from typing import Any

import pytest

from tests.deployment import COMPOSE, REPOSITORY, Unset, compose, compose_processes, compose_text
from worker.settings import Settings

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY")
CALLBACKS = "NIGHTDESK_CALLBACK_SECRET"
WITHOUT_SECRETS = ("migrate", "http")
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
    assert all(f"${{{name}:" in text or f"  {name}:\n" in text for name in example), example
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
        assert environment["NIGHTDESK_REDIS_URL"] == "redis://nightdesk:r3dis@redis:6379/0"
    for name, service in services().items():
        if service["image"].startswith("nightdesk:"):
            variables = {name for name in service["environment"] if name.startswith("NIGHTDESK_")}
            expected = names - {"NIGHTDESK_HOME"} - ({CALLBACKS} if name in WITHOUT_SECRETS else set())
            assert variables == expected, "a setting in .env that is not passed on would do nothing"


def test_only_processes_that_make_calls_have_their_secrets() -> None:
    for name, service in services().items():
        if service["image"].startswith("nightdesk:"):
            secrets = {*KEYS, CALLBACKS} & service["environment"].keys()
            assert secrets == (set() if name in WITHOUT_SECRETS else {*KEYS, CALLBACKS}), name


def test_the_user_of_redis_has_the_documented_rights() -> None:
    documented = re.search(r"\nuser nightdesk on >PASSWORD ([^\n]+)\n", (REPOSITORY / "docs/security.md").read_text())
    assert documented is not None
    users = compose(**PASSWORDS)["configs"]["redis-users"]["content"].splitlines()
    rights = documented[1].replace("nightdesk-1:", "nightdesk:")
    assert users == ["user default off", f"user nightdesk on >r3dis {rights}"]
    environment = services()["generate"]["environment"]
    assert environment["NIGHTDESK_KEY_PREFIX"] == "nightdesk:"


def test_the_role_of_postgres_is_no_superuser() -> None:
    assert "POSTGRES_USER" not in services()["postgres"]["environment"]
    script = compose(**PASSWORDS)["configs"]["postgres-roles"]["content"]
    assert "CREATE ROLE nightdesk LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD 'p0stgres';" in script
    assert services()["postgres"]["configs"][0]["target"].startswith("/docker-entrypoint-initdb.d/")


def test_no_log_and_no_container_grows_for_ever() -> None:
    for name, service in services().items():
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name
        assert re.fullmatch(r"\d+g", service["mem_limit"]), name
        assert service["cpus"] == "0", "none on the cores of a machine that is not known"


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


def test_containers_run_without_privileges_on_a_file_system_that_nothing_changes() -> None:
    for name, service in services().items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert ("cap_add" in service) == (name in {"postgres", "redis"}), (
            "begin as root, and go on as their own account"
        )


def test_data_is_stored_in_named_volumes() -> None:
    service_definitions = services()
    assert service_definitions["redis"]["volumes"] == ["redis:/data"]
    # Where the image of PostgreSQL 18 keeps it; at the older path it would be lost with the container.
    assert service_definitions["postgres"]["volumes"] == ["postgres:/var/lib/postgresql"]
    assert service_definitions["postgres"]["image"] == "postgres:18"
    assert compose_text()["volumes"].keys() == {"postgres", "redis", "home", "prometheus", "grafana"}
