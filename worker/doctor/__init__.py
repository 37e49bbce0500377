"""Examines what a Nightdesk needs and what it is doing, and says what is wrong and what to do about it.

``examine`` goes from the outside in: settings, servers, workers, jobs. A module each: ``place`` (settings, embedded
servers, disk), ``postgres``, ``broker``, ``workers``, ``limits``, ``jobs``; every check is a function from what was seen to
findings. Nothing is started, changed or repaired.
"""

from worker.doctor.examination import Report, examine
from worker.doctor.finding import Finding, Severity
from worker.doctor.workers import answers_here

__all__ = ["Finding", "Report", "Severity", "answers_here", "examine"]
