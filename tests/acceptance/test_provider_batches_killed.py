"""Provider batches whose worker is killed at the worst moments: nothing is sent or paid for twice, and every job ends.

Each moment once, over both providers; ``make faults`` has all of both, and the contract suite their own steps.
"""

from pathlib import Path

import pytest

from tests.faults.lab import open_lab
from tests.faults.provider_batches import cancel_midway, run
from worker.providers.prices import PriceList

JOBS = 60


@pytest.mark.parametrize(("provider", "stall"), [("openai", "upload"), ("anthropic", "create"), ("openai", "content")])
def test_a_worker_killed_amid_a_provider_batch(provider: PriceList, stall: str, tmp_path: Path) -> None:
    with open_lab(tmp_path, 0) as lab:
        report = run(lab, provider, stall, JOBS)
    assert report.promises_hold
    assert report.unknown == 0


def test_a_cancelled_batch_is_cancelled_at_its_provider_and_what_was_finished_is_paid(tmp_path: Path) -> None:
    with open_lab(tmp_path, 0) as lab:
        cancel_midway(lab, "openai", JOBS)
