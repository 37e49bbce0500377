"""Measures the space of the ledger in its database, and gives back what removed rows held."""

from dataclasses import dataclass

from worker.ledger.database import Store

WITHIN_S = 3_600.0
"""Seconds that giving back may take: it reads, and with ``whole`` rewrites, all tables."""

# With indexes and the values that are stored apart.
_TABLES = """
SELECT c.relname AS name, pg_total_relation_size(c.oid) AS bytes
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname = current_schema() ORDER BY 2 DESC, 1
"""
_DATABASE = "SELECT pg_database_size(current_database()) AS bytes"


@dataclass(frozen=True, slots=True)
class LedgerSize:
    """Bytes on the disk of the database server."""

    tables: dict[str, int]
    """The largest first, with their indexes."""
    database: int


class DiskSpace(Store):
    """Sizes of the tables, and VACUUM."""

    async def measure(self) -> LedgerSize:
        """The sizes of this moment."""
        tables = {row.name: int(row.bytes) for row in await self._db.rows(_TABLES)}
        return LedgerSize(tables, int(await self._db.value(_DATABASE)))

    async def give_back(self) -> None:
        """Makes the space of removed rows free for other files.

        It rewrites each table under a lock that stops all work on it, and needs room for a copy meanwhile.
        """
        async with self._db.connection(WITHIN_S) as connection:
            if not self._db.pooled:
                await connection.execute("SET statement_timeout = 0")
            # Outside of a transaction: the connections of a pool commit each statement.
            await connection.execute("VACUUM (FULL, ANALYZE)")
