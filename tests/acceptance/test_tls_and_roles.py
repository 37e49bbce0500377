"""Over TLS alone, with the ACL user and the roles that docs/security.md gives, a worker does all its work.

Skipped where the machine has no Redis and PostgreSQL with TLS: the embedded ones are built without.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from tests.acceptance.cli_home import Home, new_home, question, until, write_lines
from tests.deadlines import scale_to_load
from tests.secure_servers import SecureServers, programs, secure_servers
from worker.process.celery_app import make_app
from worker.settings import Settings

pytestmark = pytest.mark.skipif(programs() is None, reason="no Redis and PostgreSQL with TLS on this machine")

DOCUMENTED = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text()
PREFIX = "nightdesk-1:"


def documented(pattern: str) -> str:
    match = re.search(pattern, DOCUMENTED, re.DOTALL)
    assert match is not None
    return match[1]


ACL = documented(r"\nuser nightdesk on >PASSWORD ([^\n]+)\n")
ROLES = documented(r"```sql\n(CREATE ROLE.*?)```")
GRANTS = documented(r"```sql\n(GRANT.*?)```")


@pytest.fixture(scope="module")
def tls_servers() -> Iterator[SecureServers]:
    with secure_servers(ACL, ROLES) as tls_servers:
        yield tls_servers


@pytest.fixture
def home(tls_servers: SecureServers) -> Iterator[Home]:
    with new_home(
        database_url=tls_servers.database_url("nightdesk_worker"),
        redis_url=tls_servers.redis_url("nightdesk"),
        key_prefix=PREFIX,
    ) as home:
        yield home


def test_a_worker_needs_only_the_documented_privileges(home: Home, tls_servers: SecureServers, tmp_path: Path) -> None:
    owner = tls_servers.database_url("nightdesk_owner")
    refused = home.run("migrate")
    assert (refused.code, "run this as the owner" in refused.err) == (3, True), refused.err
    assert home.run("migrate", database_url=owner).code == 0
    with psycopg.connect(owner, autocommit=True) as connection:
        connection.execute(GRANTS)  # type: ignore[call-overload]
        rights = connection.execute(
            "SELECT rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls FROM pg_roles "
            "WHERE rolname LIKE 'nightdesk%'"
        ).fetchall()
        assert rights == [(False,), (False,)]

    worker = home.start("worker", "--queues", "generate,check,submit")
    lines = write_lines(tmp_path / "in.jsonl", [question(n, config={"stream": True}) for n in range(2)])
    submitted = home.run("submit", lines)
    assert submitted.code == 0, submitted.err
    done = home.run("results", submitted.out.strip(), "--wait")
    assert done.code == 0, done.err
    job = json.loads(done.out.splitlines()[0])["job_id"]
    assert "warranty" in home.run("watch", job).out
    app = make_app(Settings(key_prefix=PREFIX), tls_servers.redis_url("nightdesk"))
    (by_redis,) = app.send_task("nightdesk.submit", args=[question(3)], queue="submit").get(timeout=scale_to_load(60))[
        "job_ids"
    ]
    assert app.AsyncResult(by_redis).get(timeout=scale_to_load(60))["outcome"] == "answered"
    app.close()
    examined = until(lambda: (doctor := home.run("doctor")).code == 0 and doctor, "a doctor with no findings")
    assert "all is well" in examined.out
    assert home.run("retry", job).code == 0
    worker.process.terminate()
    assert worker.ended().code == 0
    erased = home.run("erase", "--job", by_redis, "--yes", database_url=owner)
    assert erased.code == 0, erased.err

    with redis.Redis.from_url(tls_servers.redis_url("admin")) as admin:
        assert [(entry["reason"], entry["object"]) for entry in admin.acl_log()] == []


def test_certificates_of_servers_are_verified(home: Home, tls_servers: SecureServers, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.pem"
    other = f"-keyout {tmp_path / 'key'} -out {stranger}"
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=stranger {other}".split(),
        check=True,
        capture_output=True,
    )

    trusted = str(tls_servers.ca)
    doctor = home.run("doctor", "--json", database_url=home.settings["database_url"].replace(trusted, str(stranger)),
                    redis_url=home.settings["redis_url"].replace(trusted, str(stranger)))  # fmt: skip

    assert doctor.code == 3
    findings = doctor.json()["findings"]
    assert [finding["check"] for finding in findings if "certificate verify failed" in finding["what"]] == [
        "postgres",
        "redis",
    ]
    assert tls_servers.password not in doctor.out + doctor.err


def test_connections_without_tls_are_refused(home: Home, tls_servers: SecureServers) -> None:
    plain = home.run(
        "doctor",
        "--json",
        database_url=tls_servers.database_url("nightdesk_worker", "sslmode=disable"),
        redis_url=f"redis://nightdesk:{tls_servers.password}@127.0.0.1:{tls_servers.redis_port}/0",
    )

    assert plain.code == 3
    assert tls_servers.password not in plain.out + plain.err
