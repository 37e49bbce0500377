"""The ledger over PostgreSQL, put together from its verbs."""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from worker.ledger.attempts import Attempts
from worker.ledger.budgets import Budgets
from worker.ledger.database import STATEMENT_S, Database
from worker.ledger.dispatching import Dispatching
from worker.ledger.erasing import Erasing
from worker.ledger.fairness import shares_document
from worker.ledger.finals import Finals
from worker.ledger.health import Health
from worker.ledger.input_lines import InputLines
from worker.ledger.invariants import Invariants
from worker.ledger.leading import Leading
from worker.ledger.leasing import Leasing
from worker.ledger.locating import Locating
from worker.ledger.outbox import Outbox
from worker.ledger.person import PersonVerbs
from worker.ledger.presence import Presence
from worker.ledger.reading import Reading
from worker.ledger.rescuing import Rescuing
from worker.ledger.schema_version import require_current
from worker.ledger.sharing import SharingVerbs
from worker.ledger.submission import Submission
from worker.ledger.verdict_store import VerdictStore


class PostgresLedger(
    Submission,
    Leasing,
    Rescuing,
    Attempts,
    Budgets,
    SharingVerbs,
    Finals,
    Outbox,
    VerdictStore,
    Dispatching,
    Leading,
    PersonVerbs,
    Erasing,
    Presence,
    Reading,
    InputLines,
    Locating,
    Health,
    Invariants,
):
    """``tasks.ports.Ledger`` over PostgreSQL 15 and newer.

    Use as an async context manager, or call ``open`` and ``close``. Belongs to the event loop it was opened on.
    """

    def __init__(
        self,
        database_url: str,
        *,
        connections: int = 4,
        tenant_shares: Mapping[str, float] | None = None,
        statement_s: float = STATEMENT_S,
        patience_s: float | None = None,
    ) -> None:
        """See ``Database`` for the times; ``tenant_shares`` are the tenants' weights in leases."""
        self._db = Database(database_url, size=connections, statement_s=statement_s, patience_s=patience_s)
        self._shares = shares_document(tenant_shares or {})

    async def open(self) -> None:
        """Connect and refuse a database of another schema; raises ``LedgerUnavailable``, ``SchemaMismatch``."""
        await self._db.open()
        try:
            require_current(await self._revision())
        except BaseException:
            await self._db.close()
            raise

    async def _revision(self) -> str | None:
        exists = await self._db.rows("SELECT to_regclass('alembic_version') IS NOT NULL AS it_does")
        if not exists[0].it_does:
            return None
        rows = await self._db.rows("SELECT version_num FROM alembic_version")
        return str(rows[0].version_num) if rows else None

    async def close(self) -> None:
        """Close all connections."""
        await self._db.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
