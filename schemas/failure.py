"""Failures: their kinds and their stored form."""

from datetime import datetime
from enum import StrEnum

from schemas.base import Contract


class FailureKind(StrEnum):
    """The cause of a failed attempt or job; the retry policy depends on this alone."""

    RATE_LIMITED = "rate_limited"
    """429: the job tries again later, without spending an attempt."""
    QUOTA = "quota"
    """Quota or spend limit: the lane pauses, the jobs wait."""
    OVERLOADED = "overloaded"
    """The provider refused for overload before doing any work."""
    UNAVAILABLE = "unavailable"
    """Connection refused, no route, or another program at the address: no provider got the request."""
    UNKNOWN_OUTCOME = "unknown_outcome"
    """Sent, but no answer: timeout, reset, 500, 502, 504, or a worker that died. It may have been billed."""
    INVALID_REQUEST = "invalid_request"
    """The provider refused the request as such."""
    CONTEXT_EXCEEDED = "context_exceeded"
    AUTHENTICATION = "authentication"
    PERMISSION = "permission"
    NOT_FOUND = "not_found"
    """Unknown model or endpoint."""
    PARAMETER = "parameter"
    """The model or its server refuses a parameter, or the form that answers are asked for in."""
    BAD_ANSWER = "bad_answer"
    """The answer does not follow the provider's protocol, or holds no text, also when asked for again."""
    REFUSED = "refused"
    MISSING_CITATIONS = "missing_citations"
    """Fewer citations than ``min_citations``, with ``missing_citations: failed``."""
    UNSTORABLE = "unstorable"
    """The database cannot store this row."""
    UNREADABLE = "unreadable"
    """What the ledger holds of the job can't be read: its row is damaged, or a later version wrote it."""
    BUDGET = "budget"
    CONFIGURATION = "configuration"
    ATTEMPTS_SPENT = "attempts_spent"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    WORKER_LOST = "worker_lost"
    """Its worker died or stopped renewing again and again: the job may be the cause."""
    INTERNAL = "internal"
    """A defect of Nightdesk; the message contains the exception."""


class Failure(Contract):
    """One failure, stored with the attempt or the job."""

    kind: FailureKind
    message: str
    attempt: int | None = None
    at: datetime | None = None
    provider_request_id: str | None = None
    retry_after_s: float | None = None
    status_code: int | None = None
