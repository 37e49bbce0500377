"""A budget of a tenant for a day or for recurring hours, as it stands now."""

from datetime import datetime

from pydantic import Field

from schemas.base import Contract
from schemas.model_call import Usd


class BudgetStatus(Contract):
    """The most that a tenant's calls may cost in each period, and the sums of one."""

    tenant: str
    period: str = Field(description="a calendar day, 'day ZONE', or recurring hours, '22:00-06:00 ZONE'")
    max_cost_usd: Usd
    begins_at: datetime | None = Field(description="of the present period, else of the last one; null: none has begun")
    ends_at: datetime | None
    spent_usd: Usd
    reserved_usd: Usd = Field(description="the worst case of the calls under way")
    used_up: bool = Field(description="it had no room for a job that waits")
    next_at: datetime | None = Field(description="the beginning of the next period; null: not known yet")
    waiting: int = Field(description="jobs of the tenant that wait for any of its budgets")
