"""Tries prompt versions side by side: which of several a job gets is drawn by its id, so that it stays with the job."""

import hashlib
from collections.abc import Mapping
from uuid import UUID

from schemas.job import JobRequest

Shares = Mapping[str, Mapping[str, float]]
"""For each name of a prompt, its versions with their weights (any unit; above 0)."""


def version_for(job_id: UUID, versions: Mapping[str, float]) -> str:
    """The version that a job gets: the same at each call and round, over many jobs in proportion to the weights."""
    # By name, so that the order in which the settings name them changes nothing.
    ordered = sorted(versions.items())
    drawn = int.from_bytes(hashlib.sha256(job_id.bytes).digest()[:8], "big") / 2**64 * sum(versions.values())
    for version, weight in ordered:
        drawn -= weight
        if drawn < 0:
            return version
    # The last one's, but for rounding.
    return ordered[-1][0]


def with_trial(request: JobRequest, job_id: UUID, shares: Shares) -> JobRequest:
    """The request with the version drawn for its prompt; one that names a version, or whose prompt is not tried, as is."""
    config = request.config
    versions = shares.get(config.prompt_name or config.mode.value)
    if not versions or config.prompt_version is not None:
        return request
    drawn = config.model_copy(update={"prompt_version": version_for(job_id, versions)})
    return request.model_copy(update={"config": drawn})
