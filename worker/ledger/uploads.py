"""Files that callers upload for a batch to come, in pieces, and the batch that was made of each."""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from tasks.errors import NotFound, UploadsFull
from worker.ledger.database import Store

RETENTION = timedelta(days=7)
"""Time that a file waits for its batch."""

_COLUMNS = (
    "id, tenant, filename, bytes, created_at, submitted_at, window_s, metadata, errors, lines, batch_id, ended_at, "
    "output_bytes, error_bytes"
)

# Those that nobody made a batch of go when others come: nothing else needs to look for them.
_ADD = f"""
WITH stale_upload AS (
    DELETE FROM upload WHERE submitted_at IS NULL AND created_at < nightdesk_now() - %(kept)s
)
INSERT INTO upload (id, tenant, filename, bytes) VALUES (%(id)s, %(tenant)s, %(filename)s, %(bytes)s)
RETURNING {_COLUMNS}
"""
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('nightdesk:uploads:' || %(tenant)s, 0))"
"""Until the end of the transaction: of two files of a tenant at once the second counts the first."""

_WAITING = """
SELECT count(*) AS files, coalesce(sum(bytes), 0)::bigint AS bytes FROM upload
WHERE tenant = %(tenant)s AND submitted_at IS NULL AND created_at >= nightdesk_now() - %(kept)s
"""

_ADD_PIECE = "INSERT INTO upload_piece (upload_id, number, content) VALUES (%(id)s, %(number)s, %(content)b)"
_PIECE = "SELECT content FROM upload_piece WHERE upload_id = %(id)s AND number = %(number)s"

_STARTS_WITH = """
SELECT EXISTS (
    SELECT FROM upload_piece WHERE upload_id = %(id)s AND number = 0 AND substring(content FOR length(%(mark)b)) = %(mark)b
)
"""

_FIND = f"SELECT {_COLUMNS} FROM upload WHERE id = %(id)s AND tenant = %(tenant)s"

_PAGE = f"""
SELECT {_COLUMNS} FROM upload
WHERE tenant = %(tenant)s AND submitted_at IS NOT NULL
  AND (%(after)s::uuid IS NULL OR (created_at, id) < (SELECT created_at, id FROM upload WHERE id = %(after)s AND tenant = %(tenant)s))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s
"""

_ALL = f"""
SELECT {_COLUMNS} FROM upload
WHERE tenant = %(tenant)s AND (NOT %(ended)s OR (ended_at IS NOT NULL AND batch_id IS NOT NULL))
"""
# From the upload on that the last file of the page before belongs to.
_NEWEST_FIRST = (
    _ALL
    + """
  AND (%(last)s::uuid IS NULL OR (created_at, id) <= (SELECT created_at, id FROM upload WHERE id = %(last)s AND tenant = %(tenant)s))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s
"""
)
_OLDEST_FIRST = (
    _ALL
    + """
  AND (%(last)s::uuid IS NULL OR (created_at, id) >= (SELECT created_at, id FROM upload WHERE id = %(last)s AND tenant = %(tenant)s))
ORDER BY created_at, id LIMIT %(limit)s
"""
)

# A note that comes later than its batch, after a break, has the time and the window of the first order: those of the batch.
_SUBMIT = f"""
WITH removed_piece AS (DELETE FROM upload_piece WHERE upload_id = %(id)s)
UPDATE upload SET submitted_at = coalesce((SELECT created_at FROM batch WHERE id = %(batch_id)s), nightdesk_now()),
                  window_s = coalesce((
                      SELECT round(extract(epoch FROM deadline - created_at) / 3600)::int * 3600
                      FROM batch WHERE id = %(batch_id)s
                  ), %(window_s)s),
                  metadata = %(metadata)s::jsonb, errors = %(errors)s::jsonb, lines = %(lines)s, batch_id = %(batch_id)s
WHERE id = %(id)s AND submitted_at IS NULL
RETURNING {_COLUMNS}
"""

_REMOVE = "DELETE FROM upload WHERE id = %(id)s AND tenant = %(tenant)s AND submitted_at IS NULL RETURNING id"

# Written once, after the end: later questions read no job.
_END = f"""
UPDATE upload SET ended_at = (SELECT max(finished_at) FROM job WHERE batch_id = %(batch_id)s),
                  output_bytes = %(output_bytes)s, error_bytes = %(error_bytes)s
WHERE id = %(id)s AND ended_at IS NULL RETURNING {_COLUMNS}
"""

_REFUSED = "SELECT count(*) AS n FROM input_line WHERE batch_id = %(batch_id)s AND job_id IS NULL"


@dataclass(frozen=True, slots=True)
class Upload:
    """A file, and what became of it."""

    id: UUID
    tenant: str
    filename: str
    bytes: int
    created_at: datetime
    submitted_at: datetime | None
    """When a batch was first made of it, or refused."""
    window_s: int | None
    """Whole hours, from then on."""
    metadata: Mapping[str, str] | None
    errors: list[dict[str, Any]] | None
    """Why no batch was made of it."""
    lines: int | None
    batch_id: UUID | None
    ended_at: datetime | None
    output_bytes: int | None
    """Size of the results at the end; 0: there is none."""
    error_bytes: int | None


class Uploads(Store):
    """The files of all tenants."""

    async def require_room(self, tenant: str, size: int, bounds: tuple[int, int]) -> None:
        """Raises ``UploadsFull`` where a file of a tenant has no room beside those that wait for their batch."""
        rows = await self._db.rows(_WAITING, {"tenant": tenant, "kept": RETENTION})
        _check_room(rows[0], size, bounds)

    async def add(
        self,
        upload_id: UUID,
        tenant: str,
        filename: str,
        size: int,
        pieces: Iterable[bytes],
        *,
        bounds: tuple[int, int],
    ) -> Upload:
        """Writes a file whole or not at all; raises ``UploadsFull`` beyond the bounds of its tenant: bytes and number."""
        fields = {"id": upload_id, "tenant": tenant, "filename": filename, "bytes": size, "kept": RETENTION}
        async with self._db.connection() as connection, connection.transaction():
            await connection.execute(_LOCK, fields)
            _check_room(await (await connection.execute(_WAITING, fields)).fetchone(), size, bounds)
            row = await (await connection.execute(_ADD, fields)).fetchone()
            for number, content in enumerate(pieces):
                await connection.execute(_ADD_PIECE, {"id": upload_id, "number": number, "content": content})
        return _upload(row)

    async def find(self, upload_id: UUID, tenant: str) -> Upload:
        """A file of a tenant; raises ``NotFound``."""
        rows = await self._db.rows(_FIND, {"id": upload_id, "tenant": tenant})
        if not rows:
            raise NotFound(f"no file {upload_id}")
        return _upload(rows[0])

    async def now(self) -> datetime:
        """The time by the ledger's clock, as all others of a file."""
        at: datetime = await self._db.value("SELECT nightdesk_now() AS now")
        return at

    async def content(self, upload_id: UUID) -> AsyncIterator[bytes]:
        """The pieces of a file that no batch was made of yet."""
        number = 0
        while rows := await self._db.rows(_PIECE, {"id": upload_id, "number": number}):
            yield bytes(rows[0].content)
            number += 1

    async def starts_with(self, upload_id: UUID, mark: bytes) -> bool:
        """Tells whether a file that no batch was made of yet begins so."""
        return bool(await self._db.value(_STARTS_WITH, {"id": upload_id, "mark": mark}))

    async def submitted(self, tenant: str, limit: int, after: UUID | None) -> list[Upload]:
        """Files that a batch was made of, newest first, after one of them."""
        rows = await self._db.rows(_PAGE, {"tenant": tenant, "limit": limit, "after": after})
        return [_upload(row) for row in rows]

    async def submit(
        self,
        upload: Upload,
        *,
        window_s: int,
        metadata: Mapping[str, str],
        lines: int,
        batch_id: UUID | None = None,
        errors: list[dict[str, Any]] | None = None,
    ) -> Upload:
        """Notes the batch of a file, or why there is none, and removes the content; another's note stays."""
        parameters = {
            "id": upload.id,
            "window_s": window_s,
            "metadata": orjson.dumps(dict(metadata)).decode(),
            "lines": lines,
            "batch_id": batch_id,
            "errors": None if errors is None else orjson.dumps(errors).decode(),
        }
        rows = await self._db.rows(_SUBMIT, parameters)
        return _upload(rows[0]) if rows else await self.find(upload.id, upload.tenant)

    async def files(
        self, tenant: str, limit: int, last: UUID | None, *, ended: bool, newest_first: bool
    ) -> list[Upload]:
        """Files by their time, from one on; with ``ended`` those whose batch ended alone."""
        parameters = {"tenant": tenant, "limit": limit, "last": last, "ended": ended}
        rows = await self._db.rows(_NEWEST_FIRST if newest_first else _OLDEST_FIRST, parameters)
        return [_upload(row) for row in rows]

    async def end(self, upload: Upload, output_bytes: int, error_bytes: int) -> Upload:
        """Notes the end of the last job of its batch, and the sizes of its results."""
        sizes = {"output_bytes": output_bytes, "error_bytes": error_bytes}
        rows = await self._db.rows(_END, {"id": upload.id, "batch_id": upload.batch_id, **sizes})
        return _upload(rows[0]) if rows else await self.find(upload.id, upload.tenant)

    async def remove(self, upload_id: UUID, tenant: str) -> bool:
        """Removes a file that no batch was made of; tells whether it was there."""
        return bool(await self._db.rows(_REMOVE, {"id": upload_id, "tenant": tenant}))

    async def refused_lines(self, batch_id: UUID) -> int:
        """Number of lines of a batch that were no valid job."""
        return int(await self._db.value(_REFUSED, {"batch_id": batch_id}))


def _check_room(waiting: Any, size: int, bounds: tuple[int, int]) -> None:
    most_bytes, most_files = bounds
    if waiting.bytes + size > most_bytes or waiting.files >= most_files:
        raise UploadsFull(
            f"the uploaded files of this tenant that wait for their batch are {waiting.files:,} with {waiting.bytes:,} bytes; at most "
            f"{most_files:,} with {most_bytes:,} bytes are kept (NIGHTDESK_HTTP_MAX_STORED_BYTES). Make their batches, or delete some: GET "
            "/openai/v1/files?purpose=batch lists them, those with expires_at wait, and DELETE /openai/v1/files/ID removes one"
        )


def _upload(row: Any) -> Upload:
    return Upload(**row._asdict())
