"""The ledger over PostgreSQL: the stores of the port and those that only the worker needs, over one ``Database``."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from tasks.ports import Ledger
from worker.ledger.actions import PostgresActions
from worker.ledger.answer_cache import PostgresAnswerCache
from worker.ledger.answer_calls import AnswerCalls
from worker.ledger.attempts import PostgresAttempts
from worker.ledger.background_responses import PostgresResponses
from worker.ledger.batch_contents import BatchContents
from worker.ledger.batch_figures import BatchFigures
from worker.ledger.browsing import Browsing
from worker.ledger.callbacks import Callbacks
from worker.ledger.database import STATEMENT_S, Database
from worker.ledger.disk_space import DiskSpace
from worker.ledger.duties import PostgresDuties
from worker.ledger.fairness import shares_document
from worker.ledger.fleet import Fleet
from worker.ledger.gauges import Gauges
from worker.ledger.history import CallHistory
from worker.ledger.inspection import Inspection
from worker.ledger.labels import Labels
from worker.ledger.metric_totals import MetricTotals
from worker.ledger.outage import Outage, WatchedDatabase
from worker.ledger.provider_batches import PostgresRemoteBatches
from worker.ledger.publishing import PostgresOutbox
from worker.ledger.queue import PostgresQueue
from worker.ledger.remote_overview import RemoteOverview
from worker.ledger.removal import Erasure
from worker.ledger.schema_version import TABLES, Schema, require_fit, schema_query
from worker.ledger.stored_keys import ApiKeys
from worker.ledger.submission import PostgresSubmission
from worker.ledger.tenancy import Tenancy
from worker.ledger.tenant_budgets import TenantBudgets
from worker.ledger.uploads import Uploads
from worker.ledger.viewer_sessions import ViewerSessions
from worker.ledger.views import PostgresReading


class PostgresLedger(Ledger):
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
        outage: Outage | None = None,
        repeats: bool = False,
    ) -> None:
        """See ``Database`` for the times and ``repeats``; ``tenant_shares`` are the tenants' weights in leases."""
        options: dict[str, Any] = {
            "size": connections,
            "statement_s": statement_s,
            "patience_s": patience_s,
            "repeats": repeats,
        }
        if outage is None:
            database = Database(database_url, **options)
        else:
            database = WatchedDatabase(database_url, outage, **options)
        shares = shares_document(tenant_shares or {})
        super().__init__(
            submission=PostgresSubmission(database),
            queue=PostgresQueue(database, shares),
            attempts=PostgresAttempts(database),
            cache=PostgresAnswerCache(database),
            duties=PostgresDuties(database, shares),
            outbox=PostgresOutbox(database),
            actions=PostgresActions(database),
            reading=PostgresReading(database),
        )
        self.erasure = Erasure(database)
        self.fleet = Fleet(database)
        self.remote_batches = PostgresRemoteBatches(database)
        self.remote_responses = PostgresResponses(database)
        self.remote_overview = RemoteOverview(database)
        self.history = CallHistory(database)
        self.answer_calls = AnswerCalls(database)
        self.labels = Labels(database)
        self.contents = BatchContents(database)
        self.figures = BatchFigures(database)
        self.inspection = Inspection(database)
        self.space = DiskSpace(database)
        self.metric_totals = MetricTotals(database)
        self.gauges = Gauges(database)
        self.tenancy = Tenancy(database)
        self.api_keys = ApiKeys(database)
        self.uploads = Uploads(database)
        self.budgets = TenantBudgets(database)
        self.callbacks = Callbacks(database)
        self.browsing = Browsing(database)
        self.viewer_sessions = ViewerSessions(database)
        self._database = database

    async def open(self) -> None:
        """Connect and refuse a database of another schema; raises ``LedgerUnavailable``, ``SchemaMismatch``."""
        await self._database.open()
        try:
            require_fit(await self._schema())
        except BaseException:
            await self._database.close()
            raise

    async def _schema(self) -> Schema:
        (tables,) = await self._database.rows(TABLES)
        query = schema_query(revision=tables.revision, floor=tables.floor)
        rows = await self._database.rows(query) if query else []
        return Schema(rows[0].revision, rows[0].floor) if rows else Schema(None)

    async def close(self) -> None:
        """Close all connections."""
        await self._database.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
