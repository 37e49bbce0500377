"""The rights of a worker's role are taken away amid calls and given back: nothing is lost, and the log tells it in few lines."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.acceptance.conftest import System, questions
from tests.stub.server import running_stub

JOBS = 4
ROLE = "nightdesk_revoked"
REFUSALS = 60
"""Statements that the server refuses before the log is read."""

_REFUSED = "SELECT sum(xact_rollback) FROM pg_stat_database WHERE datname = current_database()"


@contextmanager
def lesser_role(system: System) -> Iterator[psycopg.Connection]:
    """A role with the rights of a worker; a connection of the owner, who may take them away."""
    with psycopg.connect(system.database_url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD 'x'; GRANT ALL ON SCHEMA public TO {ROLE}")  # type: ignore[arg-type]
        try:
            yield owner
        finally:
            system.stop()
            owner.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")  # type: ignore[arg-type]


def test_rights_that_are_taken_away_and_given_back_lose_nothing_and_flood_no_log(system: System) -> None:
    grants = (
        "{} ALL ON ALL TABLES IN SCHEMA public {} " + ROLE + "; {} ALL ON ALL SEQUENCES IN SCHEMA public {} " + ROLE
    )
    grant, revoke = grants.format("GRANT", "TO", "GRANT", "TO"), grants.format("REVOKE", "FROM", "REVOKE", "FROM")
    with lesser_role(system) as owner, running_stub(latency_s=2.0) as stub:
        owner.execute(grant)  # type: ignore[call-overload]
        providers = f'{{"mine": {{"kind": "openai_chat", "base_url": "{stub.url}/v1", "model": "m"}}}}'
        system.submit(questions(JOBS))
        url = f"postgresql://{ROLE}:x@{system.database_url.rpartition('@')[2]}"
        system.start_worker(provider="mine", providers=providers, database_url=url)
        system.until(lambda: sum(stub.calls.values()) == JOBS, what="all calls under way")
        owner.execute(revoke)  # type: ignore[call-overload]
        before = system.scalar(_REFUSED)
        system.until(lambda: sum(stub.answered.values()) == JOBS, what="all calls answered")
        system.until(lambda: system.scalar(_REFUSED) > before + REFUSALS, what="refused statements")
        log = system.log()
        owner.execute(grant)  # type: ignore[call-overload]
        system.until_final(JOBS)
        assert sum(stub.calls.values()) == JOBS

    assert "does not let the role of NIGHTDESK_DATABASE_URL do that" in log
    assert "Traceback" not in log, log
    assert len(log.splitlines()) < REFUSALS / 2, log
