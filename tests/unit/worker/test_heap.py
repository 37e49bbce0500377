import platform
import subprocess
import sys

import pytest

# Blocks of 100 KB between small ones that stay; prints the megabytes that are left when the blocks are freed.
KEEP_THE_SMALL = """
import sys
import time
from contextlib import nullcontext
from worker.process import heap

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6

heap.TRIM_EVERY_S = 0.02
SIZE = 20_000 if sys.argv[1] == "trimmed" else 100_000
with nullcontext() if sys.argv[1] == "left alone" else heap.tidy_heap():
    before = resident_mb()
    kept = []
    for _ in range(50_000_000 // SIZE):
        block = b"x" * SIZE
        kept.append((block, b"y" * 600))
    kept = [small for _, small in kept]
    until = time.monotonic() + float(sys.argv[2])
    while resident_mb() - before > 10 and time.monotonic() < until:
        time.sleep(0.01)
    print(resident_mb() - before)
"""


def left_mb(setting: str, patience_s: float) -> float:
    finished = subprocess.run(
        [sys.executable, "-c", KEEP_THE_SMALL, setting, str(patience_s)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return float(finished.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator than glibc's")
def test_freed_blocks_go_back_to_the_system() -> None:
    assert left_mb("left alone", 0) > 20
    # Big blocks at once, and holes between small ones by the next look.
    assert left_mb("bound", 30) < 10
    assert left_mb("trimmed", 30) < 10
