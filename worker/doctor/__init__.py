"""Examines a Nightdesk's environment and its work, and reports findings with their remedies.

``examine`` goes from the outside in: ``environment`` (settings, servers), ``consumers`` (workers), ``backlog`` (jobs and
limits). Every check is a function from an observation to findings. Nothing is started, changed or repaired.
"""

from worker.doctor.consumers import answers_here
from worker.doctor.examination import examine
from worker.doctor.finding import Finding, Report, Severity

__all__ = ["Finding", "Report", "Severity", "answers_here", "examine"]
