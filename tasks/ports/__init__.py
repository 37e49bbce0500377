"""What the steps need from outside, as protocols and the values that pass through them.

``worker`` implements them: ``Ledger`` over PostgreSQL (and in memory for units), ``Journal`` as group commit over a
ledger, ``Provider`` per model provider, ``ClaimScorer`` over ONNX, ``Limits`` over Redis with a local share, ``Doorbell`` over Celery and
Redis, ``TokenSink`` over Redis, ``Runtime`` as a process's event loop.
"""

from tasks.ports.ledger import LAST_RESCUES, MAX_RESCUES, Journal, Ledger
from tasks.ports.limits import Limits, NotNow, Permit, Room, Unlimited, Why
from tasks.ports.process import Doorbell, Runtime, TokenSink, Unheard, wired
from tasks.ports.provider import Answered, Call, Listener, Provider, Providers, Turn
from tasks.ports.rows import (
    ANY_RESCUES,
    Advance,
    ClosedAttempt,
    FinalJob,
    HeardBefore,
    HeardQuery,
    JobDetail,
    JobView,
    Leased,
    LeaseKey,
    LeaseRoom,
    NewAttempt,
    NewBatch,
    NewJob,
    NewlyHeard,
    Opened,
    Purpose,
    Receipt,
    Shared,
    ShareTerms,
    Sharing,
    StoredAnswer,
    StoredCompletion,
    Wanted,
    risk_of,
)
from tasks.ports.scorer import ClaimScorer

__all__ = [
    "ANY_RESCUES",
    "LAST_RESCUES",
    "MAX_RESCUES",
    "Advance",
    "Answered",
    "Call",
    "ClaimScorer",
    "ClosedAttempt",
    "Doorbell",
    "FinalJob",
    "HeardBefore",
    "HeardQuery",
    "JobDetail",
    "JobView",
    "Journal",
    "LeaseKey",
    "LeaseRoom",
    "Leased",
    "Ledger",
    "Limits",
    "Listener",
    "NewAttempt",
    "NewBatch",
    "NewJob",
    "NewlyHeard",
    "NotNow",
    "Opened",
    "Permit",
    "Provider",
    "Providers",
    "Purpose",
    "Receipt",
    "Room",
    "Runtime",
    "ShareTerms",
    "Shared",
    "Sharing",
    "StoredAnswer",
    "StoredCompletion",
    "TokenSink",
    "Turn",
    "Unheard",
    "Unlimited",
    "Wanted",
    "Why",
    "risk_of",
    "wired",
]
