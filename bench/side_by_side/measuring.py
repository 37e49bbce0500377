"""Reads CPU and memory of process trees from the operating system."""

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

SAMPLE_S = 2.0
"""A sample of this system's twenty processes takes 45 ms of CPU, of a script 6: four a second took a sixth of a core from one side."""
LONGEST_S = 300.0
"""A program that takes longer is ended: a chain of tasks that lost one would wait for it for ever."""


@dataclass
class Trees:
    """Process trees to measure, by the name of their part.

    Attributes:
        peak_mb: the largest resident size of all parts together while ``sampled``, shared pages counted once a process.
    """

    roots: Mapping[str, list[psutil.Process]]
    peak_mb: dict[str, float] = field(default_factory=dict)

    def cpu_s(self) -> dict[str, float]:
        """User and system seconds so far, with those of children, also of ended ones."""
        return {name: sum(map(_tree_cpu_s, roots)) for name, roots in self.roots.items()}

    @contextmanager
    def sampled(self) -> Iterator[None]:
        """Samples the resident sizes meanwhile."""
        ended = threading.Event()
        sampler = threading.Thread(target=self._sample, args=(ended,), daemon=True)
        sampler.start()
        try:
            yield
        finally:
            ended.set()
            sampler.join()

    def _sample(self, ended: threading.Event) -> None:
        while not ended.wait(SAMPLE_S):
            for name, roots in self.roots.items():
                size = sum(map(tree_mb, roots))
                self.peak_mb[name] = max(self.peak_mb.get(name, 0.0), size)


def _tree(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _tree_cpu_s(root: psutil.Process) -> float:
    total = 0.0
    for process in _tree(root):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        # Those of ended children are counted with the root alone: PostgreSQL's backends come and go.
        total += times.user + times.system
        if process.pid == root.pid:
            total += times.children_user + times.children_system
    return total


def tree_mb(root: psutil.Process) -> float:
    """Proportional shares where the system tells them: PostgreSQL's processes share their buffers."""
    total = 0
    for process in _tree(root):
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total / 1e6


class Program:
    """A program that says ``ready`` when it has started and begins its work.

    Attributes:
        starting_s: CPU seconds until then.
        process: to measure it meanwhile.
    """

    def __init__(self, arguments: list[str], environment: dict[str, str], cwd: Path) -> None:
        """Returns when the program is ready; raises ``CalledProcessError`` where it ends before."""
        self._arguments = arguments
        self._program = subprocess.Popen(arguments, env=environment, cwd=cwd, stdout=subprocess.PIPE)
        assert self._program.stdout is not None
        if not any(line == b"ready\n" for line in self._program.stdout):
            raise subprocess.CalledProcessError(self._program.wait(), arguments)
        self.process = psutil.Process(self._program.pid)
        self.starting_s = _tree_cpu_s(self.process)

    def finish(self) -> float:
        """CPU seconds from ``ready`` to the end; raises ``CalledProcessError`` where it fails or takes ``LONGEST_S``."""
        assert self._program.stdout is not None
        limit = threading.Timer(LONGEST_S, self._program.kill)
        limit.start()
        try:
            for _ in self._program.stdout:
                pass
            code, used = _wait(self._program)
        finally:
            limit.cancel()
        self._program.stdout.close()
        if code:
            raise subprocess.CalledProcessError(code, self._arguments)
        return used - self.starting_s


def cpu_of(arguments: list[str], environment: dict[str, str], cwd: Path) -> float:
    """CPU seconds of a program from its start to its end."""
    with subprocess.Popen(arguments, env=environment, cwd=cwd, stdout=subprocess.DEVNULL) as program:
        code, used = _wait(program)
        if code:
            raise subprocess.CalledProcessError(code, arguments)
    return used


def _wait(program: subprocess.Popen[bytes]) -> tuple[int, float]:
    """The exit code and CPU seconds of a child; the kernel counts its own children with it."""
    _, status, usage = os.wait4(program.pid, 0)
    program.returncode = os.waitstatus_to_exitcode(status)
    return program.returncode, usage.ru_utime + usage.ru_stime
