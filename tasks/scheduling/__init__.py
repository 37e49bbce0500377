"""Scheduling: feeds a process with jobs, promotes, hints, rescues, and batches small work."""
