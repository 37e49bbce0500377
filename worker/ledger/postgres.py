"""The ledger over PostgreSQL: the stores of the port and those that only the worker needs, over one ``Database``."""

from collections.abc import Mapping
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from worker.ledger.database import STATEMENT_S, Admit, Database
from worker.ledger.fairness import shares_document
from worker.ledger.outage import Outage, WatchedDatabase
from worker.ledger.schema_version import TABLES, Schema, require_fit, schema_query

if TYPE_CHECKING:
    from worker.ledger.actions import PostgresActions
    from worker.ledger.answer_cache import PostgresAnswerCache
    from worker.ledger.answer_calls import AnswerCalls
    from worker.ledger.attempts import PostgresAttempts
    from worker.ledger.background_responses import PostgresResponses
    from worker.ledger.batch_contents import BatchContents
    from worker.ledger.batch_figures import BatchFigures
    from worker.ledger.browsing import Browsing
    from worker.ledger.callbacks import Callbacks
    from worker.ledger.disk_space import DiskSpace
    from worker.ledger.duties import PostgresDuties
    from worker.ledger.fleet import Fleet
    from worker.ledger.gauges import Gauges
    from worker.ledger.history import CallHistory
    from worker.ledger.inspection import Inspection
    from worker.ledger.labels import Labels
    from worker.ledger.metric_totals import MetricTotals
    from worker.ledger.provider_batches import PostgresRemoteBatches
    from worker.ledger.publishing import PostgresOutbox
    from worker.ledger.queue import PostgresQueue
    from worker.ledger.remote_overview import RemoteOverview
    from worker.ledger.removal import Erasure
    from worker.ledger.stored_keys import ApiKeys
    from worker.ledger.submission import PostgresSubmission
    from worker.ledger.tenancy import Tenancy
    from worker.ledger.tenant_budgets import TenantBudgets
    from worker.ledger.uploads import Uploads
    from worker.ledger.viewer_sessions import ViewerSessions
    from worker.ledger.views import PostgresReading


_STORES = {
    "submission": "submission.PostgresSubmission",
    "queue": "queue.PostgresQueue",
    "attempts": "attempts.PostgresAttempts",
    "cache": "answer_cache.PostgresAnswerCache",
    "duties": "duties.PostgresDuties",
    "outbox": "publishing.PostgresOutbox",
    "actions": "actions.PostgresActions",
    "reading": "views.PostgresReading",
    "erasure": "removal.Erasure",
    "fleet": "fleet.Fleet",
    "remote_batches": "provider_batches.PostgresRemoteBatches",
    "remote_responses": "background_responses.PostgresResponses",
    "remote_overview": "remote_overview.RemoteOverview",
    "history": "history.CallHistory",
    "answer_calls": "answer_calls.AnswerCalls",
    "labels": "labels.Labels",
    "contents": "batch_contents.BatchContents",
    "figures": "batch_figures.BatchFigures",
    "inspection": "inspection.Inspection",
    "space": "disk_space.DiskSpace",
    "metric_totals": "metric_totals.MetricTotals",
    "gauges": "gauges.Gauges",
    "tenancy": "tenancy.Tenancy",
    "api_keys": "stored_keys.ApiKeys",
    "uploads": "uploads.Uploads",
    "budgets": "tenant_budgets.TenantBudgets",
    "callbacks": "callbacks.Callbacks",
    "browsing": "browsing.Browsing",
    "viewer_sessions": "viewer_sessions.ViewerSessions",
}
"""The modules and classes of the stores: see ``PostgresLedger.__getattr__``."""

_WITH_SHARES = {"queue", "duties"}
"""Stores that know the weights of tenants."""


class PostgresLedger:
    """The truth about jobs, as stores over PostgreSQL 15 and newer.

    Every method of a store but those of ``actions`` is one transaction; methods that take a list are the unit of group commit. All raise
    ``LedgerUnavailable`` when the database can't be reached.

    Use as an async context manager, or call ``open`` and ``close``. Belongs to the event loop it was opened on.
    """

    submission: "PostgresSubmission"
    queue: "PostgresQueue"
    attempts: "PostgresAttempts"
    cache: "PostgresAnswerCache"
    duties: "PostgresDuties"
    outbox: "PostgresOutbox"
    actions: "PostgresActions"
    reading: "PostgresReading"
    erasure: "Erasure"
    fleet: "Fleet"
    remote_batches: "PostgresRemoteBatches"
    remote_responses: "PostgresResponses"
    remote_overview: "RemoteOverview"
    history: "CallHistory"
    answer_calls: "AnswerCalls"
    labels: "Labels"
    contents: "BatchContents"
    figures: "BatchFigures"
    inspection: "Inspection"
    space: "DiskSpace"
    metric_totals: "MetricTotals"
    gauges: "Gauges"
    tenancy: "Tenancy"
    api_keys: "ApiKeys"
    uploads: "Uploads"
    budgets: "TenantBudgets"
    callbacks: "Callbacks"
    browsing: "Browsing"
    viewer_sessions: "ViewerSessions"

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
        reserve: int = 0,
        admit: Admit | None = None,
    ) -> None:
        """See ``Database`` for the times, ``repeats``, ``reserve`` and ``admit``; ``tenant_shares`` are the tenants' weights in leases."""
        options: dict[str, Any] = {
            "size": connections,
            "statement_s": statement_s,
            "patience_s": patience_s,
            "repeats": repeats,
            "reserve": reserve,
            "admit": admit,
        }
        if outage is None:
            database = Database(database_url, **options)
        else:
            database = WatchedDatabase(database_url, outage, **options)
        self._database = database
        self._shares = shares_document(tenant_shares or {})

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

    async def identity(self) -> UUID:
        """The id of this ledger, which stays whatever its server and address are."""
        (row,) = await self._database.rows("SELECT id FROM ledger")
        identity: UUID = row.id
        return identity

    async def use_connection(self, use: Admit, within_s: float = STATEMENT_S) -> None:
        """Give somebody a connection for a while."""
        async with self._database.connection(within_s) as connection:
            await use(connection)

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

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Makes a store at its first use, and loads its module only then: a command uses two or three of them."""
            if name not in _STORES:
                raise AttributeError(f"a ledger has no store {name!r}")
            module, _, store_class = _STORES[name].rpartition(".")
            arguments = [self._database, *([self._shares] if name in _WITH_SHARES else ())]
            store = getattr(import_module(f"worker.ledger.{module}"), store_class)(*arguments)
            vars(self)[name] = store
            return store
