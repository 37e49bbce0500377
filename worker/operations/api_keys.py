"""Makes keys of callers over HTTP, and sets what they and tenants may spend.

A key is shown once, when it is made: the ledger has only its hash.
"""

import hashlib
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal, InvalidOperation

from schemas.access import Role
from schemas.base import check_tenant
from schemas.budget import BudgetStatus
from schemas.window import parse_period
from tasks.errors import InputError, NotFound
from worker.ledger.postgres import PostgresLedger
from worker.ledger.stored_keys import LIMITS, ApiKey

PREFIX = "ndk_"
"""Of every key, so that a scanner for secrets recognises one."""

RANDOM_BYTES = 32
"""So many can't be guessed, so a plain hash is enough: there is nothing to slow down."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """A key to be made."""

    name: str
    tenant: str
    role: Role
    limits: Mapping[str, int | None] = field(default_factory=dict)
    """By their names in the ledger (``LIMITS``); None and 0: no limit."""
    money: Mapping[str, Decimal] = field(default_factory=dict)
    """The most that its jobs may cost, by period (``TOTAL``, ``DAY``); 0: no limit."""
    expires_in: timedelta | None = None
    """None: it never expires."""


def hash_of(key: str) -> bytes:
    """The hash of a key, as the ledger keeps it."""
    return hashlib.sha256(key.encode()).digest()


async def add_key(ledger: PostgresLedger, request: KeyRequest, actor: str) -> tuple[ApiKey, str]:
    """Makes a key; returns it with its secret, which is nowhere afterwards. Raises ``InputError``."""
    if not _NAME.fullmatch(request.name):
        raise InputError("must be 1 to 64 letters, digits, dots, dashes or underscores", field="name")
    try:
        check_tenant(request.tenant)
    except ValueError as error:
        raise InputError(str(error), field="tenant") from None
    jobs = [most for limit, most in request.limits.items() if limit.startswith("jobs")]
    if not request.role.includes(Role.SUBMIT) and any((*jobs, *request.money.values())):
        raise InputError(
            f"a key with the role {request.role.value} submits no jobs, so limits on jobs and money bound nothing: give --role submit, "
            "or leave them out",
            field="role",
        )
    secret = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    fields = {
        "name": request.name,
        "tenant": request.tenant,
        "role": request.role.value,
        **{limit: request.limits.get(limit) or None for limit in LIMITS},
    }
    key = await ledger.api_keys.add(fields, hash_of(secret), actor, request.expires_in)
    # Before its secret is shown to anyone.
    await set_money(ledger, key, request.money, actor)
    return key, secret


async def rotate_key(
    ledger: PostgresLedger, name: str, overlap: timedelta, expires_in: timedelta | None
) -> tuple[ApiKey, str]:
    """Gives a key another secret, and returns it with it; its jobs, limits and budgets stay. Raises ``NotFound``.

    Args:
        ledger: of the key.
        name: of the key.
        overlap: how long the secret before stays good; one that was rotated away earlier ends at once.
        expires_in: None: the key expires when it did.
    """
    secret = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    return await ledger.api_keys.rotate(name, hash_of(secret), overlap, expires_in), secret


async def limit_key(
    ledger: PostgresLedger, name: str, limits: Mapping[str, int | None], money: Mapping[str, Decimal], actor: str
) -> ApiKey:
    """Changes limits of a key, by its name or id, and what its jobs may cost; raises ``NotFound``.

    Jobs of a key that was revoked may still wait for money: of that alone it is given more. By its id, where a later key
    has its name.
    """
    key = await ledger.api_keys.newest(name)
    if not money or any(limit is not None for limit in limits.values()):
        key = await ledger.api_keys.limit(key, limits)
    await set_money(ledger, key, money, actor)
    return key


async def set_money(ledger: PostgresLedger, key: ApiKey, money: Mapping[str, Decimal], actor: str) -> None:
    """Sets the budgets of a key by period; 0 ends one."""
    for period, usd in money.items():
        if usd:
            await ledger.budgets.set(key.tenant, period, usd, actor, key_id=key.id)
        else:
            with suppress(NotFound):
                await ledger.budgets.remove(key.tenant, period, key_id=key.id)


async def set_budget(ledger: PostgresLedger, tenant: str, period: str, usd: Decimal, actor: str) -> BudgetStatus:
    """Sets a budget of a tenant; returns it as it stands then."""
    await ledger.budgets.set(tenant, period, usd, actor)
    budgets = await ledger.budgets.all(tenant)
    return next(budget for budget in budgets if (budget.key, budget.period) == (None, period))


def period_of(text: str) -> str:
    """Reads the period of a budget, as an operator types it, in its one spelling; raises ``InputError``."""
    try:
        return parse_period(text).text
    except ValueError as error:
        raise InputError(str(error), field="PERIOD") from None


MOST_USD = Decimal(999_999)
"""More than any day costs, and what the columns of money can hold."""

UNIT_USD = Decimal("0.00000001")
"""The least that the columns of money can hold."""


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
