"""Draws the prompt version of a job from the versions of an experiment."""

import hashlib
from collections.abc import Mapping
from uuid import UUID

from schemas.job import JobRequest

Variants = Mapping[str, Mapping[str, float]]
"""The versions of each prompt with their weights (any unit; above 0)."""


def draw_version(job_id: UUID, versions: Mapping[str, float]) -> str:
    """The version for a job: the same in every call and round, and in proportion to the weights over many jobs."""
    # Sorted by name, so that the order in the settings has no effect.
    ordered = sorted(versions.items())
    remainder = int.from_bytes(hashlib.sha256(job_id.bytes).digest()[:8], "big") / 2**64 * sum(versions.values())
    for version, weight in ordered:
        remainder -= weight
        if remainder < 0:
            return version
    # Only rounding leads here.
    return ordered[-1][0]


def with_variant(request: JobRequest, job_id: UUID, variants: Variants) -> JobRequest:
    """The request with the version drawn for its prompt.

    A request with a version of its own, or with a prompt outside all experiments, stays unchanged.
    """
    config = request.config
    versions = variants.get(config.prompt_name or config.mode.value)
    if not versions or config.prompt_version is not None:
        return request
    config_with_version = config.model_copy(update={"prompt_version": draw_version(job_id, versions)})
    return request.model_copy(update={"config": config_with_version})
