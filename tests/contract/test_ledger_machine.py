"""Random lives of jobs, over every ledger."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.conftest import MemoryClock, Subject
from tests.contract.ledger_machine import LedgerMachine
from tests.fakes.ledger import MemoryLedger


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


def _named(make: Callable[[], LedgerMachine], part: int) -> Callable[[], LedgerMachine]:
    """Give a part lives of its own: where the examples are always the same, they follow from the name."""
    make.__name__ = f"part_{part}"
    return make


@pytest.mark.timeout(600)  # a failure is shrunk before it is shown
@pytest.mark.parametrize("part", range(5))
def test_random_lives(subject: Subject, runner: asyncio.Runner, part: int) -> None:
    if subject.name == "postgres":
        _run(_named(lambda: LedgerMachine(subject, runner), part), examples=5, steps=40)
        return

    def fresh() -> LedgerMachine:
        ledger = MemoryLedger()
        return LedgerMachine(Subject("memory", ledger, MemoryClock(ledger)), runner)

    _run(_named(fresh, part), examples=30, steps=60)
