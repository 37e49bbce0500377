"""Feeds a process with jobs, and leads the duties that keep all jobs moving: promote, hint, rescue, publish."""
