"""Breaks things on purpose and counts: ``python -m tests.faults`` prints a row an experiment (``make faults``).

ground       servers of its own, workers, a provider that counts its calls, and the account at the end
experiments  what is broken, and when
soak         everything broken at random, for minutes (``make soak``)
"""
