"""``nightdesk keys`` and ``budget``: the keys of callers over HTTP, and what they and whole tenants may spend."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple

from schemas.access import Role
from schemas.budget import DAY, TOTAL, BudgetStatus
from tasks.errors import InputError
from worker.cli import options
from worker.cli.help import argument, option
from worker.cli.session import on_ledger
from worker.cli.terminal import actor, tell, write_json, write_line
from worker.ledger.postgres import PostgresLedger
from worker.ledger.stored_keys import LIMITS, ApiKey
from worker.operations.api_keys import KeyRequest, add_key, amount, limit_key, period_of, rotate_key, set_budget
from worker.operations.counts import cost, count_of
from worker.operations.overview import OPTIONS, dollars, key_words, next_period
from worker.settings import load_settings

Limit = int | None


def _limit(text: str) -> Any:
    return option(text, min=0, max=1_000_000_000)


def keys(
    action: Annotated[
        Literal["add", "list", "limit", "rotate", "revoke"], argument("add, list, limit, rotate or revoke.")
    ],
    name: Annotated[
        str | None,
        argument("Of the key to add, limit, rotate or revoke; to limit, its id, too.", "[NAME]"),
    ] = None,
    *,
    role: Annotated[
        Role,
        option(
            "read; submit (and cancel, and read); review (and read); metrics (of the service, and nothing else); admin."
        ),
    ] = Role.READ,
    tenant: Annotated[str | None, option("Whose jobs it reaches; default: NIGHTDESK_TENANT.")] = None,
    requests_per_second: Annotated[
        Limit, _limit("Most requests a second, of each process that serves; 0: no limit.")
    ] = None,
    requests_per_minute: Annotated[
        Limit, _limit("Most requests a minute, of each process that serves; 0: no limit.")
    ] = None,
    jobs_waiting: Annotated[Limit, _limit("Most jobs submitted with the key that are not final; 0: no limit.")] = None,
    jobs_per_minute: Annotated[Limit, _limit("Most jobs submitted a minute; 0: no limit.")] = None,
    jobs_per_day: Annotated[Limit, _limit("Most jobs submitted a day (UTC); 0: no limit.")] = None,
    max_cost_usd: Annotated[
        str | None,
        option("The most that all jobs submitted with the key may cost, past ones too; 0: no limit.", metavar="USD"),
    ] = None,
    max_cost_usd_per_day: Annotated[
        str | None, option("The most that their calls of a day (UTC) may cost; 0: no limit.", metavar="USD")
    ] = None,
    expires: Annotated[
        str | None,
        option(
            "Time from now after which a key to add or rotate is refused; else it never is, or when it was before.",
            metavar="90d",
        ),
    ] = None,
    overlap: Annotated[str, option("How long the secret before a rotation stays good.", metavar="24h")] = "24h",
    as_json: options.Json = False,
) -> int:
    """Make, list, limit, rotate or revoke keys of callers over HTTP ('nightdesk serve').

    A new key is written to standard output, once: the ledger has only its hash. A revoked one ends within seconds.
    Once there is a key, every request needs one. 'limit' changes the limits that are named, and leaves the others. 'rotate'
    gives a key another secret; its name, jobs and limits stay, and the secret before stays good for --overlap.
    """
    expires_in = None if expires is None else _stretch(expires, "expires", shortest=timedelta(minutes=1))
    limits = {
        "requests_per_second": requests_per_second,
        "requests_per_minute": requests_per_minute,
        "jobs_waiting": jobs_waiting,
        "jobs_per_minute": jobs_per_minute,
        "jobs_per_day": jobs_per_day,
    }
    periods = {TOTAL: max_cost_usd, DAY: max_cost_usd_per_day}
    money = {period: amount(usd, field=OPTIONS[period]) for period, usd in periods.items() if usd is not None}
    if (name is None) is not (action == "list"):
        raise InputError("list takes no name, the others take one: nightdesk keys add NAME", field="NAME")

    async def change(ledger: PostgresLedger) -> Sequence[_KeyState] | tuple[ApiKey, str]:
        if name is None:
            return await _states(ledger, await ledger.api_keys.all())
        if action == "limit":
            return await _states(ledger, [await limit_key(ledger, name, limits, money, actor())])
        if action == "revoke":
            return await _states(ledger, [await ledger.api_keys.revoke(name, actor())])
        if action == "rotate":
            return await rotate_key(ledger, name, _stretch(overlap, "overlap"), expires_in)
        owner = load_settings().tenant if tenant is None else options.tenant_of(tenant, new=True)
        return await add_key(ledger, KeyRequest(name, owner, role, limits, money, expires_in), actor())

    done = on_ledger(change, makes=True)
    if isinstance(done, tuple):
        _show_secret(*done, as_json=as_json)
    else:
        _show_states(done, as_json=as_json, only_one=name is not None)
    return 0


def _show_secret(key: ApiKey, secret: str, *, as_json: bool) -> None:
    if as_json:
        write_json({**asdict(key), "key": secret})
        return
    write_line(secret)
    tell(
        f"the key {key.name} of the tenant {key.tenant} may {key.role.value}: {_validity(key)}; the secret is shown only now"
    )


def _stretch(text: str, option: str, shortest: timedelta = timedelta()) -> timedelta:
    """Reads a stretch of time; raises ``InputError``."""
    stretch = options.age(text, option)
    if not shortest <= stretch <= timedelta(days=3_650):
        raise InputError(f"{text!r} is too short or too long: give 1m to 3650d", field=option)
    return stretch


def _moment(at: datetime | None) -> str:
    return "never" if at is None else f"{at:%Y-%m-%d %H:%M} UTC"


class _KeyState(NamedTuple):
    """A key with what it used."""

    key: ApiKey
    budgets: list[BudgetStatus]
    jobs_today: int | None
    """None: its jobs are not counted."""

    def document(self) -> dict[str, Any]:
        """For programs."""
        budgets = [each.model_dump(mode="json") for each in self.budgets]
        return {**asdict(self.key), "jobs_today": self.jobs_today, "budgets": budgets}


async def _states(ledger: PostgresLedger, keys: Sequence[ApiKey]) -> list[_KeyState]:
    jobs_today, budgets = await ledger.api_keys.jobs_today(), await ledger.budgets.all()
    return [
        _KeyState(
            key,
            [each for each in budgets if each.key_id == key.id],
            None if key.revoked_at else jobs_today.get(key.name),
        )
        for key in keys
    ]


def _validity(key: ApiKey) -> str:
    """The validity of a key in words, with its last use."""
    if key.revoked_at:
        return f"revoked {_moment(key.revoked_at)} by {key.revoked_by}"
    now, ends = datetime.now(UTC), key.expires_at
    parts = [f"{'valid until' if ends > now else 'expired since'} {_moment(ends)}" if ends else "valid"]
    if key.last_used_at:
        parts.append(f"last used {_moment(key.last_used_at)}")
    if key.previous_until and key.previous_until > now:
        parts.append(
            f"the secret before until {_moment(key.previous_until)}, last used {_moment(key.previous_used_at)}"
        )
    return "; ".join(parts)


def _show_states(states: Sequence[_KeyState], *, as_json: bool, only_one: bool) -> None:
    """A line for a key, one for its limits, and one for each of its budgets."""
    if as_json:
        documents = [state.document() for state in states]
        write_json(documents[0] if only_one else documents)
        return
    if not states:
        tell("there are no keys: 'nightdesk serve' answers whatever runs on its own machine")
    for key, budgets, jobs_today in states:
        write_line(f"{key.name:<20} {key.role.value:<7} {key.tenant:<16} {_validity(key)}")
        limits = [f"{most:,} {name.replace('_', ' ')}" for name in LIMITS if (most := getattr(key, name)) is not None]
        if limits:
            today = "" if jobs_today is None else f"; {jobs_today:,} jobs today"
            write_line(f"{'':<20} at most {', '.join(limits)}{today}")
        for each in budgets:
            write_line(f"{'':<20} {_line(each)}")


def budget(
    action: Annotated[Literal["set", "list", "remove"], argument("set, list or remove.")],
    period: Annotated[
        str | None,
        argument(
            "'day Europe/Berlin' for calendar days there, or hours: '22:00-06:00 Europe/Berlin', 'mon-fri 22:00-06:00 UTC'.",
            "[PERIOD]",
        ),
    ] = None,
    usd: Annotated[str | None, argument("The most that the calls of one period may cost.", "[USD]")] = None,
    *,
    tenant: Annotated[str | None, option("Whose calls; default: NIGHTDESK_TENANT, and for list all tenants.")] = None,
    as_json: options.Json = False,
) -> int:
    """Bound what all calls of a tenant may cost in a day, or in a night.

    Every call is paid from the budgets of its tenant and the ceiling of its batch, or it is not made. A job that meets a
    budget that is used up waits, and goes on by itself in the next period, or at once when the budget is raised.
    'list' has those of keys, too, which 'nightdesk keys limit' sets.
    """
    settings = load_settings()
    if action == "list":
        if period is not None:
            raise InputError("list takes no period: nightdesk budget list --tenant NAME", field="PERIOD")
        owner = None if tenant is None else options.tenant_of(tenant)
        return _show_budgets(on_ledger(lambda ledger: ledger.budgets.all(owner), settings, makes=True), as_json=as_json)
    shape = "nightdesk budget set PERIOD USD" if action == "set" else "nightdesk budget remove PERIOD"
    if period is None:
        raise InputError(f"is missing: {shape}", field="PERIOD")
    if (usd is None) is (action == "set"):
        raise InputError(f"{'is missing' if usd is None else 'is one too many'}: {shape}", field="USD")
    # A budget of an old name can still be removed.
    owner = settings.tenant if tenant is None else options.tenant_of(tenant, new=action == "set")
    name = period_of(period)
    if usd is None:
        on_ledger(lambda ledger: ledger.budgets.remove(owner, name), settings, makes=True)
        tell(f"the tenant {owner} has no budget for {name!r} any more")
        return 0
    most = amount(usd)
    changed = on_ledger(lambda ledger: set_budget(ledger, owner, name, most, actor()), settings, makes=True)
    return _show_budgets([changed], as_json=as_json)


def _show_budgets(budgets: list[BudgetStatus], *, as_json: bool) -> int:
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
