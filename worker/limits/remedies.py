"""Describes a lane without calls and its remedy, in the same words for every command."""

from typing import TYPE_CHECKING

from schemas.failure import FailureKind

if TYPE_CHECKING:
    # The words alone need no driver of a database.
    from worker.ledger.fleet import LaneNotice

_REMEDIES = {
    FailureKind.QUOTA: "raise the quota or spend limit at the provider",
    FailureKind.AUTHENTICATION: "put a key that is accepted in the environment of the workers and restart them",
    FailureKind.PERMISSION: "let the key use this model at the provider",
    FailureKind.NOT_FOUND: "set a model that exists (NIGHTDESK_MODEL, or 'model' in NIGHTDESK_PROVIDERS) and restart the "
    "workers; cancel jobs that name the model themselves and hand them in again with another",
    FailureKind.UNAVAILABLE: "start the server, or correct its address and restart the workers",
    FailureKind.CONFIGURATION: "correct the settings of the workers and restart them",
}
"""The remedy of an operator before jobs are released, by the cause of the pause."""


def _target(notice: "LaneNotice") -> str:
    """The provider, with the model if the lane is of one model."""
    return f"{notice.provider} with the model {notice.model}" if notice.model else notice.provider


def event(notice: "LaneNotice") -> str:
    """The event, its time, and the provider's words."""
    since = f"{notice.since:%Y-%m-%d %H:%M} UTC"
    if not notice.paused:
        return f"{notice.provider} can't be reached since {since}: {notice.why}"
    return f"no calls are made to {_target(notice)} in the lane {notice.lane} since {since}: {notice.why}"


def remedy(notice: "LaneNotice") -> str:
    """The remedy for the cause."""
    return _REMEDIES.get(notice.kind, "mend what the failure says")
