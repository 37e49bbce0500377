"""Keeps Python's search for garbage away from what stays for good: one search through all modules takes 0.1 s, in which nothing is answered."""

import gc

GC_THRESHOLDS = (50_000, 50, 50)
"""Python's own is (700, 10, 10). A job makes hundreds of objects that live as long as its call and hardly any cycle, so
that at 700 the search for garbage among what is in use takes a tenth of a worker's CPU."""


def spare_the_modules() -> None:
    """Begins to search for garbage: seldom, and not among what is loaded by now, which stays for good."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
