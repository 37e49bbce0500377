"""Random lives of jobs, beside the model."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.conftest import Clock
from tests.contract.ledger_machine import LedgerMachine
from worker.ledger.postgres import PostgresLedger


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
@pytest.mark.parametrize("part", range(3))
def test_random_lives(ledger: PostgresLedger, clock: Clock, runner: asyncio.Runner, part: int) -> None:
    _run(_named(lambda: LedgerMachine(ledger, clock, runner), part), examples=5, steps=40)
