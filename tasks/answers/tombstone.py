"""What stands in the place of a job's content once that is erased. Pure.

Everything a producer wrote or a model said goes; everything Nightdesk assigned, measured and paid stays.
"""

from schemas.job import JobRequest
from tasks.submission.identity import canonical

TOMBSTONE = JobRequest(query="[erased]")
"""The request of a job that was erased: the least that is valid."""

TOMBSTONE_JSON, TOMBSTONE_HASH = canonical(TOMBSTONE)
