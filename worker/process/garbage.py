"""Keeps Python's search for garbage away from what stays for good: one search through all modules takes 0.1 s, in which nothing is answered."""

import gc

GC_THRESHOLDS = (10_000, 20, 20)
"""Python's own is (700, 10, 10). A job makes hundreds of objects that live as long as its call and hardly any cycle, so
that at 700 the search for garbage among what is in use takes a tenth of a worker's CPU."""

WORKER_THRESHOLDS = (50_000, 20, 20)
"""Of a process whose loop may pause for some 20 ms: with a thousand jobs in hand each search looks at what they hold, whatever
the threshold, and finds a dozen objects. At 10,000 it still took a twelfth of the CPU."""


def spare_the_modules(thresholds: tuple[int, int, int] = GC_THRESHOLDS) -> None:
    """Begins to search for garbage: seldom, and not among what is loaded by now, which stays for good."""
    gc.freeze()
    gc.set_threshold(*thresholds)
    gc.enable()
