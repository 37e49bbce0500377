"""The one tree of Nightdesk's errors.

NightdeskError
├── InputError                 a request is refused at submission; names the field and what to do
│   ├── IdempotencyConflict    same key, different request
│   ├── JobsRefused            nothing of a submission is accepted; names each job at fault
│   └── TooManyJobs            of the tenant (QueueFull), or of a key of the HTTP service (KeyLimitReached)
├── ConfigurationError         a setting is missing or wrong; names it
├── NotFound                   no such job or batch
├── CheckEnded                 a piece of a check was ended from outside; says why
├── ServiceUnavailable         something we need is unreachable
│   ├── LedgerUnavailable      Postgres
│   └── BrokerUnavailable      Redis
├── LedgerError                the ledger answered, but not as it should
│   ├── SchemaMismatch         a migration is missing, or the database is newer than the code
│   ├── Unreadable             one row that no reader understands
│   └── Unstorable             one row that the database can't keep
└── ProviderError              a call failed; carries a ``FailureKind``; only adapters raise it
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from schemas.failure import Failure, FailureKind
from tasks.masking import masked, words_of


class NightdeskError(Exception):
    """Base of all errors raised on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Lets an error pass between processes as it is, whatever its class is made of."""
        return _remade, (type(self), self.args), self.__dict__


def _remade(kind: type[NightdeskError], arguments: tuple[Any, ...]) -> NightdeskError:
    error = kind.__new__(kind)
    error.args = arguments
    return error


class InputError(NightdeskError):
    """A request is refused at submission.

    Attributes:
        field: dotted path of the field at fault, or None for the request as a whole.
        refused: the jobs at fault, where there were several.
    """

    refused: "tuple[Refused, ...]" = ()

    def __init__(self, message: str, *, field: str | None = None) -> None:
        prefix = f"{field}: " if field else ""
        super().__init__(prefix + message.removeprefix(prefix))
        self.field = field


class IdempotencyConflict(InputError):
    """The key was used before with a different request (HTTP 409)."""


class SameInputSubmitted(IdempotencyConflict):
    """Another command submitted the same jobs at the same moment; its batch can be taken now."""


@dataclass(frozen=True, slots=True)
class Refused:
    """One job that was not accepted: its position among those handed in, and why."""

    position: int
    message: str
    field: str | None = None
    custom_id: str | None = None
    place: str | None = None
    """Its file and line, where it came in a file."""

    @property
    def line(self) -> int | None:
        """The number of its line among those of its files or the body of a request, as in ``BATCH:lineN``."""
        return self.position + 1 if self.place else None

    def __str__(self) -> str:
        if not self.place:
            return self.message
        line = f"line {self.line}"
        return f"{self.place}{'' if self.place.endswith(line) else f' ({line} of the batch)'}: {self.message}"


class JobsRefused(InputError):
    """Nothing of a submission is accepted: all its jobs are refused, or one is and all or none were asked for."""

    def __init__(self, refused: Sequence[Refused]) -> None:
        first = refused[0]
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        super().__init__(first.message + more, field=first.field)
        self.refused = tuple(refused)


class TooManyJobs(InputError):
    """There are as many jobs as there may be (HTTP 429); the same submission may succeed later.

    Attributes:
        retry_after_s: seconds after which it is worth trying.
    """

    retry_after_s = 60


class UploadsFull(TooManyJobs):
    """The uploaded files of a tenant take as much room as they may (HTTP 429), until batches are made of some or they are deleted."""


class QueueFull(TooManyJobs):
    """The tenant has as many jobs that are not final as it may."""

    def __init__(self, tenant: str, cap: int, present: int) -> None:
        count = f"{present:,}" if present <= cap else f"more than {cap:,}"
        super().__init__(
            f"tenant {tenant!r} may have {cap:,} jobs that are not final and has {count} already; these would be more. "
            "Nothing was accepted: submit fewer at a time, wait until some are final, or raise NIGHTDESK_MAX_QUEUED_JOBS "
            "(or the tenant's in NIGHTDESK_TENANT_LIMITS)"
        )


class KeyLimitReached(TooManyJobs):
    """A key of the HTTP service has submitted as many jobs as it may."""

    def __init__(self, key: str, limit: str, retry_after_s: int) -> None:
        super().__init__(
            f"the key {key!r} may have {limit}, and these would be more. Nothing was accepted: submit fewer at a time, "
            f"or try again in {retry_after_s} s; 'nightdesk keys limit' changes the limit"
        )
        self.retry_after_s = retry_after_s


class ConfigurationError(NightdeskError):
    """A setting is missing or wrong; the message names it and the remedy."""


class NotFound(NightdeskError):
    """No such job or batch, or it belongs to another tenant."""


class CheckEnded(NightdeskError):
    """A piece of a check was ended from outside: its time was up, or its process died of it."""


class ServiceUnavailable(NightdeskError):
    """A service that is needed now is unreachable."""


class LedgerUnavailable(ServiceUnavailable):
    """Postgres is unreachable or restarting; the same call may succeed later."""


class BrokerUnavailable(ServiceUnavailable):
    """Redis is unreachable; jobs in the ledger are not affected."""


class LedgerError(NightdeskError):
    """The ledger answered, but not as it should."""


class SchemaMismatch(LedgerError):
    """The database's schema is not the one this code expects; run ``nightdesk migrate``."""


class Unreadable(LedgerError):
    """A row of the ledger can't be read, for this cause."""


class Unstorable(LedgerError):
    """One row that the database can't keep: too large, or not representable."""


UNPRICED = (
    "the price of model {} at {} is unknown, so the ceiling of the batch or the budget of its tenant could not be kept; "
    "take a model whose price is known, give it in `prices` of the provider (NIGHTDESK_PROVIDERS), or submit without a ceiling "
    "where the tenant has no budget"
)
"""Message of a call, or of a job, that would need a price."""


class ProviderError(NightdeskError):
    """A provider call failed.

    Attributes:
        kind: what the retry policy decides by.
        status_code: HTTP status, if one came.
        provider_request_id: the provider's own id of the call, if one came.
        retry_after_s: seconds the provider asked to wait.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        status_code: int | None = None,
        provider_request_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status_code = status_code
        self.provider_request_id = provider_request_id
        self.retry_after_s = retry_after_s


def failure_of(error: BaseException, *, attempt: int | None = None) -> Failure:
    """The failure that is stored for an error; an error that is not raised on purpose is a defect of ours."""
    message, call = masked(str(error)), None
    match error:
        case ProviderError(kind=kind):
            call = error
        case TimeoutError():
            kind, message = FailureKind.UNKNOWN_OUTCOME, "no answer within the time allowed"
        case ConfigurationError() | InputError():
            kind = FailureKind.CONFIGURATION
        case Unstorable():
            kind = FailureKind.UNSTORABLE
        case _:
            kind, message = FailureKind.INTERNAL, words_of(error)
    return Failure(
        kind=kind,
        message=message,
        attempt=attempt,
        at=datetime.now(UTC),
        provider_request_id=call and call.provider_request_id,
        retry_after_s=call and call.retry_after_s,
        status_code=call and call.status_code,
    )
