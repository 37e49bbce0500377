"""Things are broken under a run: no job is lost, nothing is called twice without need. ``make faults`` has all of them."""

from pathlib import Path

import pytest

from tests.faults.experiments import EXPERIMENTS, Experiment


@pytest.mark.parametrize(
    "experiment", [experiment for experiment in EXPERIMENTS if experiment.quick], ids=lambda experiment: experiment.name
)
def test_promises_are_kept(experiment: Experiment, tmp_path: Path) -> None:
    report = experiment(tmp_path)

    assert (report.lost, report.needless, report.unrecorded) == (0, 0, 0)
