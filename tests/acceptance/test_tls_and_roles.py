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
from tests.secure_servers import Secured, programs, secured_servers
from worker.process.celery_app import make_app
from worker.settings import Settings

pytestmark = pytest.mark.skipif(programs() is None, reason="no Redis and PostgreSQL with TLS on this machine")

DOCUMENTED = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text()
PREFIX = "nightdesk-1:"


def documented(pattern: str) -> str:
    found = re.search(pattern, DOCUMENTED, re.DOTALL)
    assert found is not None
    return found[1]


ACL = documented(r"\nuser nightdesk on >PASSWORD ([^\n]+)\n")
ROLES = documented(r"```sql\n(CREATE ROLE.*?)```")
GRANTS = documented(r"```sql\n(GRANT.*?)```")


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with secured_servers(ACL, ROLES) as secured:
        yield secured


@pytest.fixture
def home(secured: Secured) -> Iterator[Home]:
    with new_home(
        database_url=secured.database_url("nightdesk_worker"),
        redis_url=secured.redis_url("nightdesk"),
        key_prefix=PREFIX,
    ) as home:
        yield home


def test_a_worker_does_its_work_with_no_more_than_is_documented(home: Home, secured: Secured, tmp_path: Path) -> None:
    owner = secured.database_url("nightdesk_owner")
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
    app = make_app(Settings(key_prefix=PREFIX), secured.redis_url("nightdesk"))
    (by_redis,) = app.send_task("nightdesk.submit", args=[question(3)], queue="submit").get(timeout=scale_to_load(60))[
        "job_ids"
    ]
    assert app.AsyncResult(by_redis).get(timeout=scale_to_load(60))["outcome"] == "answered"
    app.close()
    examined = until(lambda: (found := home.run("doctor")).code == 0 and found, "a doctor with no findings")
    assert "all is well" in examined.out
    assert home.run("retry", job).code == 0
    worker.process.main.terminate()
    assert worker.ended().code == 0
    erased = home.run("erase", "--job", by_redis, "--yes", database_url=owner)
    assert erased.code == 0, erased.err

    with redis.Redis.from_url(secured.redis_url("admin")) as admin:
        assert [(entry["reason"], entry["object"]) for entry in admin.acl_log()] == []


def test_who_answers_is_looked_at(home: Home, secured: Secured, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.pem"
    other = f"-keyout {tmp_path / 'key'} -out {stranger}"
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=stranger {other}".split(),
        check=True,
        capture_output=True,
    )

    trusted = str(secured.ca)
    told = home.run("doctor", "--json", database_url=home.settings["database_url"].replace(trusted, str(stranger)),
                    redis_url=home.settings["redis_url"].replace(trusted, str(stranger)))  # fmt: skip

    assert told.code == 3
    findings = told.json()["findings"]
    assert [found["check"] for found in findings if "certificate verify failed" in found["what"]] == [
        "postgres",
        "redis",
    ]
    assert secured.password not in told.out + told.err


def test_without_tls_nobody_is_let_in(home: Home, secured: Secured) -> None:
    plain = home.run(
        "doctor",
        "--json",
        database_url=secured.database_url("nightdesk_worker", "sslmode=disable"),
        redis_url=f"redis://nightdesk:{secured.password}@127.0.0.1:{secured.redis_port}/0",
    )

    assert plain.code == 3
    assert secured.password not in plain.out + plain.err
