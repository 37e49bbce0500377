"""A budget of a tenant or of one of its keys, as it stands now."""

from datetime import datetime
from uuid import UUID

from pydantic import Field

from schemas.base import Contract
from schemas.model_call import Usd

TOTAL = "total"
"""The period of a budget of a key that does not begin anew."""

DAY = "day UTC"
"""The other period of budgets of keys."""


class BudgetStatus(Contract):
    """The most that the calls of a tenant, or of a key, may cost in each period, and the sums of one."""

    tenant: str
    key: str | None = Field(
        default=None, description="the key of the HTTP service whose jobs it bounds; null: all of the tenant"
    )
    key_id: UUID | None = None
    key_revoked: bool = Field(default=False, description="the key was revoked; jobs of it wait for this money")
    period: str = Field(
        description="a calendar day, 'day ZONE', or recurring hours, '22:00-06:00 ZONE'; of a key also 'total'"
    )
    max_cost_usd: Usd
    begins_at: datetime | None = Field(description="of the present period, else of the last one; null: none has begun")
    ends_at: datetime | None
    spent_usd: Usd
    reserved_usd: Usd = Field(description="the worst case of the calls under way")
    used_up: bool = Field(description="it had no room for a job that waits")
    next_at: datetime | None = Field(description="the beginning of the next period; null: not known yet")
    waiting: int = Field(description="jobs that wait for any budget of the tenant, or of the key")
    least_usd: Usd | None = Field(
        default=None,
        description="the least that one of them, of the batch in question, reserves for its call; null: none waits",
    )

    @property
    def too_small(self) -> bool:
        """True if no period has room for the call of a job that waits: only a larger budget helps."""
        return self.used_up and self.least_usd is not None and self.max_cost_usd < self.least_usd
