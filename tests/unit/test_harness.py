"""The tests' own tools: deadlines on a busy machine, and processes that end while they are looked at."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from tests.deadlines import Deadline
from tests.faults.lab import if_alive, ports_of, process_tree


def busy(monkeypatch: pytest.MonkeyPatch, load: float) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def test_a_deadline_counts_the_time_of_a_free_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    busy(monkeypatch, 8.0)
    deadline = Deadline(10)

    now[0] += 36
    assert not deadline.is_over()  # 9 s of a free machine
    busy(monkeypatch, 0.5)
    now[0] += 0.5
    assert not deadline.is_over()
    now[0] += 0.6
    assert deadline.is_over()


def test_a_process_that_has_ended_is_skipped() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        (process,) = process_tree(child.pid)
        assert if_alive(process.suspend)
        assert if_alive(process.resume)
        child.kill()
        child.wait()
        assert not if_alive(process.resume)
        assert ports_of(process) == set()
        with pytest.raises(psutil.NoSuchProcess):
            next(process_tree(child.pid))
