"""Finds a job by what its producer knows of it: its custom id or its place in the batch."""

from uuid import UUID

from tasks.errors import NotFound
from worker.ledger.database import Database

_BY_CUSTOM_ID = "SELECT id FROM job WHERE batch_id = %(batch_id)s AND custom_id = %(name)s"
_BY_POSITION = "SELECT id FROM job WHERE batch_id = %(batch_id)s AND position = %(position)s"

MOST_POSITION = 2**31 - 1


class Locating:
    """The locating verb of the PostgreSQL ledger."""

    _db: Database

    async def locate(self, batch_id: UUID, name: str) -> UUID:
        """The id of the job of a batch whose custom id is ``name``, else whose position it is (counted from 0).

        Raises: NotFound.
        """
        rows = await self._db.rows(_BY_CUSTOM_ID, {"batch_id": batch_id, "name": name})
        if not rows and name.isascii() and name.isdigit() and (position := int(name[:20])) <= MOST_POSITION:
            rows = await self._db.rows(_BY_POSITION, {"batch_id": batch_id, "position": position})
        if not rows:
            raise NotFound(f"batch {batch_id} has no job with custom id or position {name!r}")
        job_id: UUID = rows[0].id
        return job_id
