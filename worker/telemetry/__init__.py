"""Figures and traces of jobs and calls, made apart from their path: a fault here never touches a job."""
