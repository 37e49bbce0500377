"""Random lives of jobs, over every ledger."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.conftest import MemoryClock, Subject
from tests.contract.ledger_machine import LedgerMachine
from worker.ledger.memory import MemoryLedger


def _run(make: Callable[[], LedgerMachine], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        make,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(600)  # a failure is shrunk before it is shown
def test_random_lives(subject: Subject, runner: asyncio.Runner) -> None:
    if subject.name == "postgres":
        _run(lambda: LedgerMachine(subject, runner), examples=25, steps=40)
        return

    def fresh() -> LedgerMachine:
        ledger = MemoryLedger()
        return LedgerMachine(Subject("memory", ledger, MemoryClock(ledger)), runner)

    _run(fresh, examples=150, steps=60)
