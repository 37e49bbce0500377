"""Protocols of everything outside the steps, and the values that pass through them.

``worker`` implements them: ``Submission``, ``Queue`` and ``Reading`` over PostgreSQL, ``Journal`` as group commit over them, ``Provider`` per model provider, ``ClaimScorer`` over ONNX, ``Limits`` over Redis with a local share, ``Doorbell`` over Celery and
Redis, ``TokenSink`` over Redis, ``Runtime`` as a process's event loop.
"""

from tasks.errors import Refused
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
    OnLost,
    Opened,
    Purpose,
    ShareTerms,
    StoredAnswer,
    VerdictQuery,
)
from tasks.ports.limits import Denied, DenyReason, Limits, Permit, Room
from tasks.ports.process import (
    READ_FIRST_S,
    STALL_S,
    CheckExecutor,
    Doorbell,
    Providers,
    Rendered,
    Runtime,
    TokenSink,
)
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
    Turn,
)
from tasks.ports.rows import (
    ANY_RESCUES,
    ROUNDS_PER_LEVEL,
    Content,
    FinalFacts,
    FinalJob,
    HintKey,
    InputLine,
    JobDetail,
    JobView,
    Lease,
    Leased,
    LeaseKey,
    LeaseRoom,
    NewBatch,
    NewJob,
    OnPage,
    Outlook,
    PackedFinal,
    Page,
    Receipt,
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
    Journal,
    Observation,
    Queue,
    Reading,
    Submission,
)
