"""The ledger over PostgreSQL: the stores of the port and those that only the worker needs, over one ``Database``."""

from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from worker.ledger.database import STATEMENT_S, Admit, Database
from worker.ledger.fairness import shares_document
from worker.ledger.outage import Outage, WatchedDatabase
from worker.ledger.schema_version import TABLES, Schema, require_fit, schema_query

if TYPE_CHECKING:
    import worker.ledger.views
    from worker.ledger import (  # noqa: F401 - mypy finds them by this
        actions,
        answer_cache,
        attempts,
        batch_contents,
        batch_figures,
        browsing,
        callbacks,
        disk_space,
        duties,
        fleet,
        gauges,
        history,
        inspection,
        labels,
        metric_totals,
        provider_batches,
        publishing,
        queue,
        remote_overview,
        removal,
        stored_keys,
        submission,
        tenancy,
        tenant_budgets,
        uploads,
        viewer_sessions,
    )

_KNOWING = {"queue": "_shares", "duties": "_shares", "attempts": "_lease_for"}
"""Stores that know more than the database, and what."""


class PostgresLedger:
    """The truth about jobs, as stores over PostgreSQL 15 and newer.

    Each is made at its first use, from its annotation.

    Every method of a store but those of ``actions`` is one transaction; methods that take a list are the unit of group commit. All raise
    ``LedgerUnavailable`` when the database can't be reached.

    Use as an async context manager, or call ``open`` and ``close``. Belongs to the event loop it was opened on.
    """

    submission: "worker.ledger.submission.PostgresSubmission"
    queue: "worker.ledger.queue.PostgresQueue"
    attempts: "worker.ledger.attempts.PostgresAttempts"
    cache: "worker.ledger.answer_cache.PostgresAnswerCache"
    duties: "worker.ledger.duties.PostgresDuties"
    outbox: "worker.ledger.publishing.PostgresOutbox"
    actions: "worker.ledger.actions.PostgresActions"
    reading: "worker.ledger.views.PostgresReading"
    erasure: "worker.ledger.removal.Erasure"
    fleet: "worker.ledger.fleet.Fleet"
    remote_batches: "worker.ledger.provider_batches.PostgresRemoteBatches"
    remote_overview: "worker.ledger.remote_overview.RemoteOverview"
    history: "worker.ledger.history.CallHistory"
    labels: "worker.ledger.labels.Labels"
    contents: "worker.ledger.batch_contents.BatchContents"
    figures: "worker.ledger.batch_figures.BatchFigures"
    inspection: "worker.ledger.inspection.Inspection"
    space: "worker.ledger.disk_space.DiskSpace"
    metric_totals: "worker.ledger.metric_totals.MetricTotals"
    gauges: "worker.ledger.gauges.Gauges"
    tenancy: "worker.ledger.tenancy.Tenancy"
    api_keys: "worker.ledger.stored_keys.ApiKeys"
    uploads: "worker.ledger.uploads.Uploads"
    budgets: "worker.ledger.tenant_budgets.TenantBudgets"
    callbacks: "worker.ledger.callbacks.Callbacks"
    browsing: "worker.ledger.browsing.Browsing"
    viewer_sessions: "worker.ledger.viewer_sessions.ViewerSessions"

    def __init__(
        self,
        database_url: str,
        *,
        connections: int = 4,
        tenant_shares: Mapping[str, float] | None = None,
        lease_for: timedelta = timedelta(seconds=60),
        statement_s: float = STATEMENT_S,
        patience_s: float | None = None,
        outage: Outage | None = None,
        repeats: bool = False,
        admit: Admit | None = None,
    ) -> None:
        """See ``Database`` for the times, ``repeats`` and ``admit``; ``tenant_shares`` are the tenants' weights in leases."""
        options: dict[str, Any] = {
            "size": connections,
            "statement_s": statement_s,
            "patience_s": patience_s,
            "repeats": repeats,
            "admit": admit,
        }
        if outage is None:
            database = Database(database_url, **options)
        else:
            database = WatchedDatabase(database_url, outage, **options)
        self._database = database
        self._shares = shares_document(tenant_shares or {})
        self._lease_for = lease_for

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
        identity: UUID = await self._database.value("SELECT id FROM ledger")
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

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Makes a store at its first use, and loads its module only then: a command uses two or three of them."""
            module, _, store_class = PostgresLedger.__annotations__.get(name, "").rpartition(".")
            if not module:
                raise AttributeError(f"a ledger has no store {name!r}")
            arguments = [self._database, *([getattr(self, _KNOWING[name])] if name in _KNOWING else ())]
            store = getattr(import_module(module), store_class)(*arguments)
            vars(self)[name] = store
            return store
