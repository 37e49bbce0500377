"""Breaks things on purpose and counts: ``python -m tests.faults`` prints a row an experiment (``make faults``).

lab          its own servers, workers, a provider that counts its calls, and the final report
experiments  each fault and its moment
soak         everything broken at random, for minutes (``make soak``)
"""
