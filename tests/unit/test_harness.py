"""The tests' own tools: deadlines on a busy machine, and processes that end while they are looked at."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from tests.faults.ground import family, ports_of, unless_ended
from tests.patience import Patience, crowding, stretched, until


def busy(monkeypatch: pytest.MonkeyPatch, load: float) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


@pytest.mark.parametrize(("load", "times"), [(0.0, 1.0), (2.0, 1.0), (10.0, 5.0)])
def test_waits_are_as_much_longer_as_the_machine_is_busier(
    monkeypatch: pytest.MonkeyPatch, load: float, times: float
) -> None:
    busy(monkeypatch, load)
    assert crowding() == times
    assert stretched(3) == 3 * times


def test_patience_counts_the_time_of_a_free_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    busy(monkeypatch, 8.0)
    patience = Patience(10)

    now[0] += 36
    assert not patience.is_over()  # 9 s of a free machine
    busy(monkeypatch, 0.5)
    now[0] += 0.5
    assert not patience.is_over()
    now[0] += 0.6
    assert patience.is_over()


def test_a_wait_ends_with_the_patience() -> None:
    assert until(lambda: 0, 0.1) is None
    assert until(lambda: "there", 0.1) == "there"


def test_a_process_that_ended_meanwhile_is_passed_over() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        (seen,) = family(child.pid)
        assert unless_ended(seen.suspend)
        assert unless_ended(seen.resume)
        child.kill()
        child.wait()
        assert not unless_ended(seen.resume)
        assert ports_of(seen) == set()
        with pytest.raises(psutil.NoSuchProcess):
            next(family(child.pid))
