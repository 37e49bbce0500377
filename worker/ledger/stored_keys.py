"""Keys of callers over HTTP: their hashes, tenants and roles; the keys themselves are nowhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from schemas.access import Role
from tasks.errors import InputError, NotFound
from tasks.ports import Submitter
from worker.ledger.database import Store

LIMITS = ("requests_per_second", "requests_per_minute", "jobs_waiting", "jobs_per_minute", "jobs_per_day")
"""Columns of the limits of a key; NULL: none."""

_COLUMNS = (
    f"id, name, tenant, role, {', '.join(LIMITS)}, created_at, created_by, revoked_at, revoked_by, expires_at, last_used_at, "
    "previous_until, previous_used_at"
)

_ADD = f"""
INSERT INTO api_key (id, name, tenant, role, {", ".join(LIMITS)}, hash, created_by, expires_at)
VALUES (%(id)s, %(name)s, %(tenant)s, %(role)s, {", ".join(f"%({limit})s" for limit in LIMITS)}, %(hash)s, %(actor)s,
        nightdesk_now() + %(expires_in)s::interval)
ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING
RETURNING {_COLUMNS}
"""

# The secret before the last rotation is one of the key, too, for a while.
_BY_HASH = f"""
SELECT {_COLUMNS}, extract(epoch FROM ends_at - nightdesk_now())::float8 AS ends_in_s, is_previous FROM (
    SELECT *, false AS is_previous, expires_at AS ends_at FROM api_key WHERE hash = %(hash)s
    UNION ALL
    SELECT *, true, least(previous_until, expires_at) FROM api_key WHERE previous_hash = %(hash)s
) k WHERE revoked_at IS NULL AND (ends_at IS NULL OR ends_at > nightdesk_now())
"""

# Once a minute is enough to tell whether a key is in use, and spares a write for each request.
_NOTE_USE = """
UPDATE api_key SET last_used_at = CASE WHEN %(is_previous)s THEN last_used_at ELSE nightdesk_now() END,
    previous_used_at = CASE WHEN %(is_previous)s THEN nightdesk_now() ELSE previous_used_at END
WHERE id = %(id)s
"""

_ROTATE = f"""
UPDATE api_key SET hash = %(hash)s, previous_hash = hash, previous_until = nightdesk_now() + %(overlap)s::interval,
    previous_used_at = last_used_at, last_used_at = NULL,
    expires_at = coalesce(nightdesk_now() + %(expires_in)s::interval, expires_at)
WHERE name = %(name)s AND revoked_at IS NULL RETURNING {_COLUMNS}
"""

# A limit that is not given stays; 0 ends one.
_LIMIT = f"""
UPDATE api_key SET {", ".join(f"{limit} = nullif(coalesce(%({limit})s::integer, {limit}), 0)" for limit in LIMITS)}
WHERE id = %(id)s AND revoked_at IS NULL RETURNING {_COLUMNS}
"""

_NEWEST = f"""
SELECT {_COLUMNS} FROM api_key WHERE name = %(name)s OR id::text = %(name)s
ORDER BY id::text = %(name)s DESC, revoked_at IS NULL DESC, id DESC LIMIT 1
"""

_USE = """
SELECT k.name, u.day, u.jobs FROM api_key_use u JOIN api_key k ON k.id = u.key_id
WHERE k.revoked_at IS NULL AND u.day = (nightdesk_now() AT TIME ZONE 'UTC')::date
"""

# The row stays: its name stands in events, and a service whose last key is revoked must not be open to everybody.
_REVOKE = f"""
UPDATE api_key SET revoked_at = nightdesk_now(), revoked_by = %(actor)s
WHERE name = %(name)s AND revoked_at IS NULL RETURNING {_COLUMNS}
"""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret."""

    id: UUID
    name: str
    tenant: str
    role: Role
    requests_per_second: int | None
    requests_per_minute: int | None
    jobs_waiting: int | None
    jobs_per_minute: int | None
    jobs_per_day: int | None
    created_at: datetime
    created_by: str
    revoked_at: datetime | None
    revoked_by: str | None
    expires_at: datetime | None
    last_used_at: datetime | None
    """To the minute, by requests with its newest secret."""
    previous_until: datetime | None
    """Time at which the secret before the last rotation ends."""
    previous_used_at: datetime | None
    """Last use of that secret."""

    @property
    def submitter(self) -> Submitter:
        """The key as the one that submits a batch."""
        return Submitter(self.id, self.name, self.jobs_waiting, self.jobs_per_minute, self.jobs_per_day)


@dataclass(frozen=True, slots=True)
class Use:
    """A key that a secret opens.

    ``ends_in_s`` are the seconds until it does not any more, None: no end is set; ``is_previous``: it was rotated away.
    """

    key: ApiKey
    ends_in_s: float | None = None
    is_previous: bool = False


class ApiKeys(Store):
    """The keys of all tenants."""

    async def add(
        self, key: Mapping[str, Any], key_hash: bytes, actor: str, expires_in: timedelta | None = None
    ) -> ApiKey:
        """Writes a key: its ``name``, ``tenant``, ``role`` and ``LIMITS``; raises ``InputError``."""
        fields = {**key, "id": uuid7(), "hash": key_hash, "actor": actor, "expires_in": expires_in}
        rows = await self._db.rows(_ADD, fields)
        if not rows:
            raise InputError(f"there is a key {key['name']!r} already; choose another name, or revoke it", field="name")
        return _key(rows[0])

    async def by_hash(self, key_hash: bytes) -> Use | None:
        """The key of a secret with this hash; None where there is none, or it is revoked or expired."""
        rows = await self._db.rows(_BY_HASH, {"hash": key_hash})
        if not rows:
            return None
        fields = rows[0]._asdict()
        ends_in_s, is_previous = fields.pop("ends_in_s"), fields.pop("is_previous")
        return Use(ApiKey(**{**fields, "role": Role(fields["role"])}), ends_in_s, is_previous)

    async def note_use(self, use: Use) -> None:
        """Writes that a secret of a key is used now."""
        await self._db.rows(_NOTE_USE, {"id": use.key.id, "is_previous": use.is_previous})

    async def rotate(self, name: str, key_hash: bytes, overlap: timedelta, expires_in: timedelta | None) -> ApiKey:
        """Gives a key another secret; the one before stays good for a while. Raises ``NotFound``."""
        parameters = {"name": name, "hash": key_hash, "overlap": overlap, "expires_in": expires_in}
        rows = await self._db.rows(_ROTATE, parameters)
        if not rows:
            raise _unknown(name)
        return _key(rows[0])

    async def exist(self) -> bool:
        """Tells whether there ever was a key."""
        return bool(await self._db.value("SELECT EXISTS (SELECT FROM api_key) AS yes"))

    async def all(self) -> list[ApiKey]:
        """All keys, also the revoked ones, oldest first."""
        return [_key(row) for row in await self._db.rows(f"SELECT {_COLUMNS} FROM api_key ORDER BY id")]

    async def limit(self, key: ApiKey, limits: Mapping[str, int | None]) -> ApiKey:
        """Changes limits of a key: None leaves one, 0 ends it. Raises ``NotFound`` if it was revoked."""
        rows = await self._db.rows(_LIMIT, {**dict.fromkeys(LIMITS), **limits, "id": key.id})
        if not rows:
            raise _unknown(key.name)
        return _key(rows[0])

    async def newest(self, name: str) -> ApiKey:
        """The key of an id; of a name the valid one, else the last that was revoked. Raises ``NotFound``."""
        rows = await self._db.rows(_NEWEST, {"name": name})
        if not rows:
            raise _unknown(name)
        return _key(rows[0])

    async def jobs_today(self) -> dict[str, int]:
        """Jobs of the day (UTC) by the name of each key whose jobs are counted."""
        return {row.name: row.jobs for row in await self._db.rows(_USE)}

    async def revoke(self, name: str, actor: str) -> ApiKey:
        """Ends a key for good; raises ``NotFound``."""
        rows = await self._db.rows(_REVOKE, {"name": name, "actor": actor})
        if not rows:
            raise _unknown(name)
        return _key(rows[0])


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no key {name!r} that is valid; 'nightdesk keys list' shows them")


def _key(row: Any) -> ApiKey:
    return ApiKey(**{**row._asdict(), "role": Role(row.role)})
