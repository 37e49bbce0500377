import re
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from tests.deployment import REPOSITORY, compose, compose_processes, make_secrets
from worker.settings import Settings, mistyped

SERVERS = {"database-url", "redis-url"}
CALLS = SERVERS | {"openai-api-key", "anthropic-api-key", "gemini-api-key", "callback-secret"}
SECRETS_OF = {
    "postgres": {"postgres-password"},
    "redis": {"redis-password", "redis-users"},
    **dict.fromkeys(("migrate", "http"), SERVERS),
    **dict.fromkeys(("generate", "check", "local", "urgent", "nightdesk"), CALLS),
    "prometheus": {"metrics-key"},
    "grafana": {"grafana-password"},
}
FOLDER = "/run/secrets/"


def services() -> dict[str, Any]:
    service_definitions: dict[str, Any] = compose()["services"]
    return service_definitions


def test_each_service_has_only_the_secrets_it_uses_and_all_as_files() -> None:
    definitions = services()
    assert definitions.keys() == SECRETS_OF.keys()
    for name, service in definitions.items():
        secrets = {each if isinstance(each, str) else each["source"] for each in service["secrets"]}
        assert secrets == SECRETS_OF[name], name
        for variable, value in service.get("environment", {}).items():
            is_secret = re.search("PASSWORD|AUTH|KEY$|SECRET|(DATABASE|REDIS)_URL", variable.removesuffix("_FILE"))
            assert not is_secret or variable.endswith("_FILE"), variable
            if variable.endswith("_FILE") and variable != "NIGHTDESK_ALIVE_FILE":
                assert value.removeprefix(FOLDER) in secrets, variable
        assert "configs" not in service, "Compose copies nothing into a container that is read-only"


def test_the_script_makes_each_secret_once_and_takes_those_there_are(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text('NIGHTDESK_POSTGRES_PASSWORD=p0stgres\nOPENAI_API_KEY="sk-of-the-file"\n')
    folder = make_secrets(tmp_path, ANTHROPIC_API_KEY="sk-of-the-shell")
    contents = {path.name: path.read_text() for path in folder.iterdir()}
    named = {name: tmp_path / secret["file"] for name, secret in compose()["secrets"].items()}
    assert named == {name: folder / name for name in contents}
    assert folder.stat().st_mode & 0o777 == 0o700, "the files themselves are for the accounts of containers"
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}
    assert {name for name, value in contents.items() if not value} == {"gemini-api-key", "metrics-key"}
    assert (contents["openai-api-key"], contents["anthropic-api-key"]) == ("sk-of-the-file", "sk-of-the-shell")
    assert contents["database-url"] == "postgresql://nightdesk:p0stgres@postgres:5432/nightdesk"
    assert contents["redis-url"] == f"redis://nightdesk:{contents['redis-password']}@redis:6379/0"
    assert len({contents[f"{name}-password"] for name in ("postgres", "redis", "grafana")}) == 3
    assert Settings(callback_secret=SecretStr(contents["callback-secret"]))

    make_secrets(tmp_path, OPENAI_API_KEY="sk-another")
    assert {path.name: path.read_text() for path in folder.iterdir()} == contents


def test_ports_are_published_on_loopback_only() -> None:
    ports = [port for service in services().values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_our_processes_take_every_setting() -> None:
    settings = {f"NIGHTDESK_{name.upper()}" for name in Settings.model_fields} - {"NIGHTDESK_HOME"}
    for name, service in services().items():
        if service["image"].startswith("nightdesk:"):
            variables = service["environment"].keys()
            missing = {setting for setting in settings if not {setting, f"{setting}_FILE"} & variables}
            assert missing == (set() if SECRETS_OF[name] == CALLS else {"NIGHTDESK_CALLBACK_SECRET"}), name
            assert not mistyped(variables)


def test_the_user_of_redis_has_the_documented_rights(tmp_path: Path) -> None:
    documented = re.search(r"\nuser nightdesk on >PASSWORD ([^\n]+)\n", (REPOSITORY / "docs/security.md").read_text())
    assert documented is not None
    users = (make_secrets(tmp_path, NIGHTDESK_REDIS_PASSWORD="r3dis") / "redis-users").read_text().splitlines()
    rights = documented[1].replace("nightdesk-1:", "nightdesk:")
    assert users == ["user default off", f"user nightdesk on >r3dis {rights}"]
    environment = services()["generate"]["environment"]
    assert environment["NIGHTDESK_KEY_PREFIX"] == "nightdesk:"


def test_the_role_of_postgres_is_no_superuser() -> None:
    assert "POSTGRES_USER" not in services()["postgres"]["environment"]
    source, target, _ = services()["postgres"]["volumes"][1].split(":")
    script = (REPOSITORY / source).read_text()
    assert "CREATE ROLE nightdesk LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'password';" in script
    assert target.startswith("/docker-entrypoint-initdb.d/")


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
    workers = [process for process in compose_processes() if process.lasts]
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
