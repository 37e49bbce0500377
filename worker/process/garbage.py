"""Tunes Python for a loop that answers at once beside what computes: in its search for garbage and between its threads."""

import gc
import sys

GC_THRESHOLDS = (50_000, 50, 50)
"""Python's own is (700, 10, 10). A job makes hundreds of objects that live as long as its call and hardly any cycle, so
that at 700 the search for garbage among what is in use takes a tenth of a worker's CPU."""


SWITCH_S = 0.0005
"""Longest time that a thread of the process computes while another wants to go on; Python's own is 5 ms. The threads that take
messages and renew leases make many short steps, and so does the loop beside a provider or a submission that computes on a thread:
each step after a system call waited for the whole of that time."""


def switch_threads_soon() -> None:
    """Lets no thread compute for long while another has a short step to do."""
    sys.setswitchinterval(SWITCH_S)


def spare_the_modules() -> None:
    """Begins to search for garbage: seldom, and not among what is loaded by now, which stays for good.

    One search through all modules takes 0.1 s, in which nothing is answered.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
