"""Ports without anything behind them: each call is permitted at once, and no reader follows its text."""

from uuid import UUID

from schemas.failure import Failure, FailureKind
from schemas.model_call import Completion
from tasks.calls.paid_call import PaidCalls
from tasks.calls.retry import RetryPolicy
from tasks.ports import Call, Denied, FinalFacts, Journal, Leased, Limits, NewAttempt, Permit


class Unlimited(Limits):
    """Permits everything at once."""

    async def permit(self, job: Leased, call: Call) -> Permit | Denied:
        """Permit."""
        return Permit(job.token, call.provider, call.model or "", call.lane, (), 0.0, 0.0)

    def answered(self, permit: Permit, completion: Completion) -> None:
        """Learn nothing."""

    def failed(self, permit: Permit, failure: Failure) -> bool:
        """Learn nothing; a used-up quota pauses the lane."""
        return failure.kind is FailureKind.QUOTA

    def unused(self, permit: Permit) -> None:
        """Nothing was reserved."""


class Unheard:
    """The sink of a process without readers."""

    def start(self, job: Leased, attempt: NewAttempt) -> None:
        """Nothing."""

    def text(self, attempt_id: UUID, piece: str) -> None:
        """Nothing."""

    def end(self, attempt_id: UUID, *, whole: bool) -> None:
        """Nothing."""

    def final(self, job: FinalFacts) -> None:
        """Nothing."""


def paid_calls(journal: Journal, policy: RetryPolicy | None = None, limits: Limits | None = None) -> PaidCalls:
    """Calls without jitter, by default also without limits."""
    return PaidCalls(journal, policy or RetryPolicy(), lambda: 0.5, limits or Unlimited(), Unheard())
