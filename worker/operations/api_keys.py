"""Makes keys of callers over HTTP. A key is shown once, when it is made: the ledger has only its hash."""

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.access import Role
from schemas.base import check_tenant
from tasks.errors import InputError
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
    secret = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    fields = {
        "name": request.name,
        "tenant": request.tenant,
        "role": request.role.value,
        **{limit: request.limits.get(limit) or None for limit in LIMITS},
    }
    return await ledger.api_keys.add(fields, hash_of(secret), actor), secret
