"""Only one of the workers has the local model, or none has: its jobs go to it, and wait for it no longer than they may."""

from typing import Any
from uuid import UUID

from schemas.generation import CheckerName
from schemas.job import Recheck
from tests.acceptance.conftest import System
from worker.ledger.postgres import PostgresLedger

SOLD = "Alice sold the red house near the harbour to Boris in spring. Boris paid for it in gold coins."
TURNED = "The house near the harbour was sold by Boris to Alice for silver [1]."
"""Supported as far as words tell; the model knows who sold it."""
READ = ("structure", "lexical", "local")
MODEL, BROKEN = "tests.scorers:NamedScorer", "tests.scorers:broken"


def job(*checkers: str) -> dict[str, Any]:
    return {"response": TURNED, "context": [SOLD], "config": {"checkers": checkers} if checkers else {}}


def check_results(system: System, batch: UUID) -> list[tuple[Any, ...]]:
    """(verdict, who gave it, the model that ran, why it did not) of each job of one claim."""
    return system.rows(
        """SELECT g.grounding #>> '{claims,0,verdict}', g.grounding #>> '{claims,0,checker}',
                  g.grounding #>> '{checkers,local}', g.grounding #>> '{failed_checkers,local}'
           FROM job j JOIN generation_record g ON g.job_id = j.id AND g.run = j.run
           WHERE j.batch_id = %s ORDER BY j.position""",
        batch,
    )


def by_model(system: System) -> int:
    return int(system.scalar("SELECT count(*) FROM job WHERE step = 'local' AND finished_at IS NOT NULL"))


def test_jobs_for_the_local_model_wait_for_its_worker_and_others_do_not(system: System) -> None:
    batch, ids = system.submit([job(*READ) if number % 2 else job() for number in range(40)])
    # It knows that there is a model, and would fail if it loaded it.
    system.start_worker("generate,check,submit", local_model=BROKEN)
    system.until_final(20)
    assert system.rows("SELECT step, state, count(*) FROM job GROUP BY 1, 2 ORDER BY 1") == [
        ("check", "completed", 20),
        ("local", "available", 20),
    ]

    system.start_worker("local", local_model=MODEL)
    system.until_final(40)

    assert check_results(system, batch) == [
        ("unsupported", "local", "says-who-3", None) if number % 2 else ("undecided", "lexical", None, None)
        for number in range(40)
    ]
    assert "the local model says-who-3 is loaded" in system.log(1)

    async def recheck(ledger: PostgresLedger) -> None:
        assert await ledger.actions.recheck(ids[:1], Recheck(checkers=tuple(map(CheckerName, READ))), "me") == ids[:1]

    system.with_ledger(recheck)
    system.until(lambda: by_model(system) == 21, what="the recheck by the model")
    assert check_results(system, batch)[0] == ("unsupported", "local", "says-who-3", None)


def test_without_a_model_worker_the_check_skips_the_model(system: System) -> None:
    batch, _ = system.submit([job(*READ) for _ in range(2)])
    system.start_worker("check", local_model=MODEL, local_model_wait_s=1)
    system.until_final(2)

    (without,) = {*check_results(system, batch)}
    assert without[:3] == ("undecided", "lexical", None)
    assert "NIGHTDESK_LOCAL_MODEL" in without[3]
    assert system.rows("SELECT DISTINCT outcome FROM job") == [("partial",)]
    assert system.scalar("SELECT count(*) FROM job_event WHERE kind = 'unserved'") == 2
