"""A worker with the database role of docs/security.md, and no right beyond it, does all its work."""

import asyncio
import re
import signal
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.acceptance.command import run_here
from tests.acceptance.conftest import System, questions
from tests.budget import REPOSITORY
from tests.lent_ledger import KeptLedger
from tests.servers import advance_clock
from tests.stub.server import running_stub
from worker.process.pruning import Pruning

PAGE = (REPOSITORY / "docs" / "security.md").read_text()
ROLE = "nightdesk_worker"
NEW_ROLE = next(line for line in PAGE.splitlines() if line.startswith(f"CREATE ROLE {ROLE}"))
DAILY, PRUNES = re.findall(r"```sql\n(GRANT.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def role_url(system: System) -> Iterator[str]:
    """The database by the URL of the role, which has the rights that every worker needs."""
    with psycopg.connect(system.database_url, autocommit=True) as owner:
        owner.execute(NEW_ROLE.replace(":password", "'secret'").encode())
        owner.execute(DAILY.encode())
        try:
            where = urlsplit(system.database_url)
            yield where._replace(netloc=f"{ROLE}:secret@{where.hostname}:{where.port}").geturl()
        finally:
            owner.execute(f"DROP OWNED BY {ROLE}".encode())
            owner.execute(f"DROP ROLE {ROLE}".encode())


def test_calls_provider_batches_and_counts_need_only_the_documented_rights(
    system: System, role_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")
    jobs = questions(4)
    with running_stub() as stub:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        stub.remote.ends_after_s = 0.1
        system.submit([*jobs[:2], *({**job, "config": {"lane": "provider_batch"}} for job in jobs[2:])])
        quick = {"provider_batch_gather_s": 0.5, "provider_batch_look_s": 0.3, "default_judge_share": 0}
        worker = system.start_worker(provider="openai", database_url=role_url, **quick)
        system.until_final(len(jobs))
        ended = "SELECT bool_and(ended_at IS NOT NULL) AND count(*) > 0 FROM provider_batch"
        system.until(lambda: system.scalar(ended), what="the provider batch is settled")
        worker.send_signal(signal.SIGTERM)
        worker.wait()
    assert system.rows("SELECT state, count(*) FROM job GROUP BY 1") == [("completed", len(jobs))]
    assert system.scalar("SELECT count(*) FROM provider_batch_call") == 0
    assert system.scalar("SELECT count(*) FROM metric_total") > 0
    assert "permission denied" not in system.log()


def test_pruning_needs_the_rights_that_are_documented_for_it(system: System, role_url: str) -> None:
    ages = [timedelta(days=days) for days in (1, 3, 5)]

    async def forget(_: object) -> None:
        """Redis has nothing of these jobs."""

    async def prune() -> tuple[int, int]:
        async with KeptLedger(role_url) as ledger:
            return await Pruning(ledger, forget, *ages).prune()

    system.submit(questions(2))
    system.start_worker()
    system.until_final(2)
    system.stop()
    with psycopg.connect(system.database_url) as owner:
        owner.execute(PRUNES.encode())
    advance_clock(system.database_url, ages[0] * 2)
    assert asyncio.run(prune()) == (2, 0)
    advance_clock(system.database_url, ages[0] * 2)
    assert asyncio.run(prune()) == (0, 2)
    advance_clock(system.database_url, ages[0] * 4)
    asyncio.run(prune())
    assert system.scalar("SELECT count(*) FROM batch") == 0


def test_a_role_that_can_not_see_a_fail_over_is_told_of_it(system: System, role_url: str) -> None:
    function = "EXECUTE ON FUNCTION pg_control_system()"
    with psycopg.connect(system.database_url, autocommit=True) as owner:
        owner.execute(f"REVOKE {function} FROM PUBLIC".encode())
        try:
            system.submit(questions(1))
            worker = system.start_worker(database_url=role_url)
            system.until_final(1)
            worker.send_signal(signal.SIGTERM)
            worker.wait()
            examined = run_here(["doctor", "--json"], system.environment(database_url=role_url))
        finally:
            owner.execute(f"GRANT {function} TO PUBLIC".encode())
    assert system.log().count("would go unnoticed") == 1
    (finding,) = [each for each in examined.json()["findings"] if each["check"] == "failover"]
    assert "GRANT EXECUTE ON FUNCTION pg_control_system()" in finding["remedy"]


def test_every_table_of_which_rows_are_deleted_is_named() -> None:
    granted = set(re.findall(r"\w+", " ".join(re.findall(r"GRANT DELETE ON (.*) TO", PAGE))))
    sources = [path for path in (REPOSITORY / "worker").rglob("*.py") if "migrations" not in path.parts]
    deleted = {table for path in sources for table in re.findall(r"DELETE FROM (\w+)", path.read_text())}
    # Only a migration, which the owner runs, writes it.
    assert deleted - granted == {"schema_floor"}
    assert granted - deleted == set()
