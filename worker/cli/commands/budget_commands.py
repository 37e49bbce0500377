"""``nightdesk budget``: what a tenant may spend in a day or a night."""

from typing import Annotated, Literal

import typer

from schemas.budget import BudgetStatus
from tasks.errors import InputError
from worker.cli import options
from worker.cli.session import on_ledger
from worker.cli.terminal import actor, tell, write_json, write_line
from worker.operations import budget_changes
from worker.operations.counts import cost, count_of
from worker.operations.overview import dollars, key_words, next_period
from worker.settings import load_settings


def budget(
    action: Annotated[Literal["set", "list", "remove"], typer.Argument(help="set, list or remove.")],
    period: Annotated[
        str | None,
        typer.Argument(
            metavar="[PERIOD]",
            help="'day Europe/Berlin' for calendar days there, or hours: '22:00-06:00 Europe/Berlin', 'mon-fri 22:00-06:00 UTC'.",
        ),
    ] = None,
    usd: Annotated[
        str | None, typer.Argument(metavar="[USD]", help="The most that the calls of one period may cost.")
    ] = None,
    *,
    tenant: Annotated[
        str | None, typer.Option(help="Whose calls; default: NIGHTDESK_TENANT, and for list all tenants.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """Bound what all calls of a tenant may cost in a day, or in a night.

    Every call is paid from the budgets of its tenant and the ceiling of its batch, or it is not made. A job that meets a
    budget that is used up waits, and goes on by itself in the next period, or at once when the budget is raised.
    'list' has those of keys, too, which 'nightdesk keys limit' sets.
    """
    for word in (period, usd):
        if word is not None and word.startswith("--"):
            raise InputError(f"no such option: {word}; 'nightdesk budget --help' names those there are")
    settings = load_settings()
    if action == "list":
        if period is not None:
            raise InputError("list takes no period: nightdesk budget list --tenant NAME", field="PERIOD")
        owner = None if tenant is None else options.tenant_of(tenant)
        return _show(on_ledger(lambda ledger: ledger.budgets.all(owner), settings, makes=True), as_json=as_json)
    shape = "nightdesk budget set PERIOD USD" if action == "set" else "nightdesk budget remove PERIOD"
    if period is None:
        raise InputError(f"is missing: {shape}", field="PERIOD")
    if (usd is None) is (action == "set"):
        raise InputError(f"{'is missing' if usd is None else 'is one too many'}: {shape}", field="USD")
    owner = settings.tenant
    if tenant is not None:
        # A budget of an old name can still be removed.
        owner = options.tenant_of(tenant, new=action == "set")
    name = budget_changes.budget_name(owner, period)
    if action == "remove":
        on_ledger(lambda ledger: ledger.budgets.remove(name.tenant, name.period), settings, makes=True)
        tell(f"the tenant {name.tenant} has no budget for {name.period!r} any more")
        return 0
    assert usd is not None
    amount = budget_changes.amount(usd)
    changed = on_ledger(lambda ledger: budget_changes.set_budget(ledger, name, amount, actor()), settings, makes=True)
    return _show([changed], as_json=as_json)


def _show(budgets: list[BudgetStatus], *, as_json: bool) -> int:
    if as_json:
        write_json([each.model_dump(mode="json") for each in budgets])
        return 0
    if not budgets:
        tell("there are no budgets: the calls of every tenant are bounded by the ceilings of batches alone")
    for each in budgets:
        write_line(_line(each))
    return 0


def _line(budget: BudgetStatus) -> str:
    period = budget.period if budget.key is None else f"{key_words(budget)}, {budget.period}"
    parts = [f"{budget.tenant}, {period}: {cost(budget.spent_usd)} of {dollars(budget.max_cost_usd)} spent"]
    if budget.reserved_usd:
        parts.append(f"{cost(budget.reserved_usd)} reserved")
    if budget.next_at is not None:
        parts.append(f"next period from {next_period(budget)}")
    if budget.waiting:
        owner = "tenant" if budget.key is None else "key"
        parts.append(f"{count_of(budget.waiting, 'job')} of the {owner} held for money")
    if budget.too_small and budget.least_usd is not None:
        parts.append(f"too small for any of them: a call reserves {dollars(budget.least_usd)} or more")
    return ", ".join(parts)
