"""Ends what a killed test process left: the servers and workers of its homes.

A shell reads the names of homes from the test process. When that one ends, however it does, the shell looks for homes that
are not empty.
"""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

from worker import local
from worker.local.home import Home
from worker.supervise.state_directory import StateDirectory
from worker.supervise.workers import supervisors_in

REPOSITORY = Path(__file__).resolve().parents[1]

_SHELL = """
while IFS= read -r path; do set -- "$@" "$path"; done
for path; do rmdir "$path" 2>/dev/null; [ ! -e "$path" ] || exec "$0" -m tests.left_homes "$@"; done
"""


def watch(path: Path) -> None:
    """Remove a home, or another directory, if this process ends without removing it or what is in it."""
    os.write(_pipe(), f"{path}\n".encode())


@cache
def _pipe() -> int:
    """The end of the shell's input, closed with this process."""
    reading, writing = os.pipe()
    shell = subprocess.Popen(
        ["/bin/sh", "-c", _SHELL, sys.executable],
        cwd=REPOSITORY,
        stdin=reading,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    shell.returncode = 0  # it outlives this process, which never collects it
    os.close(reading)
    return writing


def remove(home: Path, options: local.LocalOptions | None = None) -> None:
    """Stop the servers of a home and delete their data, logs and passwords; the home itself stays."""
    place = Home.at(home)
    if place.exists():
        local.stop(home, options)
        data = place.data.resolve()
        if data.is_dir():
            shutil.rmtree(data)
        shutil.rmtree(place.local)


def end(home: Path) -> None:
    """End the workers and servers of a home, and remove it."""
    if (home / "workers").is_dir():
        for supervisor in supervisors_in(StateDirectory(home)):
            for worker in supervisor.running().values():
                with suppress(psutil.NoSuchProcess):
                    worker.process.kill()
    remove(home)
    shutil.rmtree(home)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if Path(argument).exists():
            end(Path(argument))
