"""Things are broken under a run: no job is lost, nothing is called twice without need. ``make faults`` has all of them."""

from pathlib import Path

import pytest

from tests.faults.experiments import EXPERIMENTS, Experiment


@pytest.mark.parametrize("experiment", [one for one in EXPERIMENTS if one.quick], ids=lambda one: one.name)
def test_promises_are_kept(experiment: Experiment, tmp_path: Path) -> None:
    found = experiment(tmp_path)

    assert (found.lost, found.needless, found.unrecorded) == (0, 0, 0)
