"""The priorities that a worker takes from each queue in Redis."""

import pytest

from worker.process.intake import levels_to_take
from worker.scheduling.urgent_workers import UrgentWorkers

LEVELS = [0, 3, 6, 9]


@pytest.mark.parametrize(
    ("urgent_workers", "levels"),
    [
        (UrgentWorkers(), LEVELS),
        (UrgentWorkers(only=True), [0]),
        (UrgentWorkers(only=True, present=True), [0]),
        (UrgentWorkers(present=True), [3, 6, 9]),
    ],
)
def test_the_first_level_is_of_the_workers_for_urgent_jobs(urgent_workers: UrgentWorkers, levels: list[int]) -> None:
    assert levels_to_take(LEVELS, urgent_workers) == levels
