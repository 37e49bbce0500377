"""Provider batches whose worker is killed at the worst moments: nothing is sent or paid for twice, and every job ends.

Each moment once; ``make faults`` has all of both providers, and the contract suite their own steps.
"""

from pathlib import Path

from tests.faults.lab import open_lab
from tests.faults.provider_batches import cancel_midway, run

JOBS = 60


def test_workers_killed_at_each_moment_of_a_provider_batch(tmp_path: Path) -> None:
    with open_lab(tmp_path, 0) as lab:
        report = run(lab, "openai", "create", "content", jobs=JOBS)
    assert report.promises_hold
    assert report.unknown == 0


def test_a_cancelled_batch_is_cancelled_at_its_provider_and_what_was_finished_is_paid(tmp_path: Path) -> None:
    with open_lab(tmp_path, 0) as lab:
        cancel_midway(lab, "anthropic", JOBS)
