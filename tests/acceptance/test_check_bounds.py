"""A check is bounded from outside: what takes too long, or ends its process, ends unchecked, alone, and holds up nobody."""

import json
import signal
from typing import Any

import psutil

from tests.acceptance.command import run_here
from tests.acceptance.conftest import System, questions
from tests.deadlines import scale_to_load

SOURCES = ["The notice period is three months. The fee is 5,000 euros."] * 3
LOOP = "€5 " * 20_000
SETTINGS = {"checkers": json.dumps({"dangerous": "tests.plugins:DangerousChecker"})}
OPEN = "SELECT count(*) FROM job WHERE id = ANY(%s) AND finished_at IS NULL"
FINAL = "SELECT count(*) FROM job WHERE finished_at IS NOT NULL"
FOR_EVER_S = 600
"""A limit that no test waits for."""


def stored(text: str, **fields: Any) -> dict[str, Any]:
    """A job that only checks an answer."""
    return {"query": "What is the fee?", "context": SOURCES, "response": text, **fields}


def dangerous(text: str, **fields: Any) -> dict[str, Any]:
    """A job whose answer is checked by the dangerous checker, too."""
    return stored(text, config={"checkers": ["structure", "lexical", "dangerous"]}, **fields)


def states(system: System, tenant: str) -> list[tuple[str, str | None]]:
    return system.rows("SELECT state, outcome FROM job WHERE tenant = %s ORDER BY position", tenant)


def until_endless(system: System, jobs: int) -> None:
    """Wait until the attackers are in their checks, where they stay."""
    running = "SELECT count(*) FROM job WHERE tenant = 'attacker' AND state = 'running'"
    system.until(lambda: system.scalar(running) == jobs, what="endless checks under way")


def processes_of(worker: int) -> list[psutil.Process]:
    return psutil.Process(worker).children(recursive=True)


def test_endless_checks_hold_up_no_other_tenant_and_end_with_their_cancellation(system: System) -> None:
    settings = {**SETTINGS, "check_timeout_s": FOR_EVER_S}
    attack, _ = system.submit([dangerous("The fee is endless.")] * 4 + [stored(LOOP)] * 4, tenant="attacker")
    system.start_worker("check", **settings)
    until_endless(system, 8)
    for _ in range(2):
        # Again and again: the attack goes on.
        _, other_ids = system.submit([stored("The fee is 5,000 euros.")] * 4, tenant="other")
        system.until(lambda ids=other_ids: system.scalar(OPEN, ids) == 0, what="checks of the other tenant")
    assert [state for state, _ in states(system, "attacker")[:4]] == ["running"] * 4
    assert run_here(["cancel", str(attack)], system.environment()).code == 0
    system.until_final(16)

    assert set(states(system, "other")) == {("completed", "answered")}
    assert {state for state, _ in states(system, "attacker")[:4]} == {"cancelled"}


def test_a_check_past_its_time_and_one_that_ends_its_process_end_unchecked_and_take_no_other_with_them(
    system: System,
) -> None:
    texts = ["The fee is endless.", *["The fee is 5,000 euros."] * 12, LOOP]
    texts[7] = "The fee is fatal."
    system.submit([dangerous(text) for text in texts])
    worker = system.start_worker("check", **SETTINGS, check_timeout_s=2)
    system.until_final(len(texts))

    records = system.rows(
        "SELECT j.outcome, g.answer, g.quality ->> 'reasoning', g.grounding::text, j.rescues"
        " FROM job j JOIN generation_record g ON g.job_id = j.id ORDER BY j.position"
    )
    assert [outcome for outcome, *_ in records[:-1]] == ["partial", *["answered"] * 6, "partial", *["answered"] * 5]
    endless, fatal = records[0], records[7]
    assert endless[1] == texts[0]
    assert "NIGHTDESK_CHECK_TIMEOUT_S" in endless[2]
    assert "died" in fatal[3]
    assert [rescues for *_, rescues in records] == [0] * len(texts)
    assert worker.poll() is None


def test_a_process_that_is_killed_amid_its_work_loses_no_job(system: System) -> None:
    system.submit(questions(80))
    worker = system.start_worker("generate,check,submit", slots=50)
    system.until(lambda: system.scalar(FINAL) >= 10, what="some checks")
    # One alone: a check that two processes die of counts as their cause. Not their fork server: it has children.
    next(process for process in reversed(processes_of(worker.pid)) if process.is_running()).kill()
    system.until_final(80)

    assert set(states(system, "default")) == {("completed", "answered")}
    assert system.scalar("SELECT count(*) FROM attempt") == 80
    assert system.scalar("SELECT max(rescues) FROM job") == 0


def test_a_stop_ends_endless_checks_and_their_processes(system: System) -> None:
    system.submit([dangerous("The fee is endless.")] * 4, tenant="attacker")
    worker = system.start_worker("check", **SETTINGS, check_timeout_s=FOR_EVER_S, drain_s=0.5)
    until_endless(system, 4)
    processes = processes_of(worker.pid)
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(scale_to_load(30)) == 0
    assert len(processes) >= 3
    _, alive = psutil.wait_procs(processes, timeout=scale_to_load(30))
    assert alive == []
    assert {state for state, _ in states(system, "attacker")} == {"available"}


def test_a_killed_worker_leaves_no_process_behind(system: System) -> None:
    system.submit([dangerous("The fee is endless.")] * 4, tenant="attacker")
    worker = system.start_worker("check", **SETTINGS, check_timeout_s=FOR_EVER_S)
    until_endless(system, 4)
    processes = processes_of(worker.pid)
    worker.kill()

    _, alive = psutil.wait_procs(processes, timeout=scale_to_load(30))
    assert alive == []
