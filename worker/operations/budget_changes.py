"""Sets and removes budgets of tenants, from what an operator types."""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from schemas.budget import BudgetStatus
from schemas.window import parse_period
from tasks.errors import InputError
from worker.ledger.postgres import PostgresLedger

MOST_USD = Decimal(999_999)
"""More than any day costs, and what the columns of money can hold."""

UNIT_USD = Decimal("0.00000001")
"""The least that the columns of money can hold."""


@dataclass(frozen=True, slots=True)
class BudgetName:
    """The tenant and the period of a budget, in one spelling."""

    tenant: str
    period: str


def budget_name(tenant: str, period: str) -> BudgetName:
    """Reads the period of a budget; raises ``InputError``."""
    try:
        return BudgetName(tenant, parse_period(period).text)
    except ValueError as error:
        raise InputError(str(error), field="PERIOD") from None


def amount(text: str, field: str = "USD") -> Decimal:
    """Reads an amount of money; raises ``InputError``, which names the field."""
    try:
        usd = Decimal(text)
    except InvalidOperation:
        usd = Decimal(-1)
    if not (usd.is_finite() and 0 <= usd <= MOST_USD):
        raise InputError(f"{text!r} is no amount: give dollars from 0 to {MOST_USD}, such as 20 or 7.50", field=field)
    stored = usd.quantize(UNIT_USD)
    if stored != usd:
        raise InputError(f"{text!r} has more than the 8 decimals that amounts are kept with", field=field)
    return stored


async def set_budget(ledger: PostgresLedger, name: BudgetName, usd: Decimal, actor: str) -> BudgetStatus:
    """Sets a budget; returns it as it stands then."""
    await ledger.budgets.set(name.tenant, name.period, usd, actor)
    return next(
        budget for budget in await ledger.budgets.all(name.tenant) if (budget.key, budget.period) == (None, name.period)
    )
