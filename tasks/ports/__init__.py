"""Protocols of everything outside the steps, and the values that pass through them.

``worker`` implements them: ``Ledger`` over PostgreSQL (a fake in memory serves the tests), ``Journal`` as group commit over a
ledger, ``Provider`` per model provider, ``ClaimScorer`` over ONNX, ``Limits`` over Redis with a local share, ``Doorbell`` over Celery and
Redis, ``TokenSink`` over Redis, ``Runtime`` as a process's event loop.
"""

from tasks.ports.attempt_rows import (
    Advance,
    CachedVerdict,
    CacheLookup,
    CacheResult,
    CacheStatus,
    CallFacts,
    ClosedAttempt,
    NewAttempt,
    NewVerdicts,
    Opened,
    Purpose,
    ShareTerms,
    StoredAnswer,
    VerdictQuery,
)
from tasks.ports.limits import Denied, DenyReason, Limits, Permit, Room, Unlimited
from tasks.ports.process import READ_FIRST_S, STALL_S, Doorbell, HintKey, Rendered, Runtime, TokenSink, Unheard
from tasks.ports.provider import (
    Answered,
    Call,
    Catalog,
    CheapJudge,
    ClaimScorer,
    Everything,
    Listener,
    Objection,
    Provider,
    Providers,
    Turn,
)
from tasks.ports.rows import (
    ANY_RESCUES,
    ROUNDS_PER_LEVEL,
    BatchCounts,
    Content,
    FinalJob,
    InputLine,
    JobDetail,
    JobView,
    Leased,
    LeaseKey,
    LeaseRoom,
    NewBatch,
    NewJob,
    OnPage,
    Outlook,
    Page,
    Receipt,
    Refused,
    Renewal,
    Repeated,
    Replay,
    RepublishPage,
    ResultLine,
    StoredCompletion,
    StoredResult,
    Submitter,
    UnchangedJob,
    UnreadableRow,
    no_page,
    own_id_key,
    risk_of,
)
from tasks.ports.stores import (
    LAST_RESCUES,
    Actions,
    AnswerCache,
    Attempts,
    Duties,
    Journal,
    Ledger,
    Observation,
    Outbox,
    Queue,
    Reading,
    Submission,
)
