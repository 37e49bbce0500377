"""The ledger over PostgreSQL: the stores of the port and those that only the worker needs, over one ``Database``.

A store is made at its first use, and only then its module is loaded: a command uses two or three of them.
"""

from collections.abc import Mapping
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from tasks.ports import Ledger
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
        # No call of the port's own initialiser, which takes all stores as they are.
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

    # ---- the stores ----

    @cached_property
    def submission(self) -> "PostgresSubmission":
        from worker.ledger.submission import PostgresSubmission

        return PostgresSubmission(self._database)

    @cached_property
    def queue(self) -> "PostgresQueue":
        from worker.ledger.queue import PostgresQueue

        return PostgresQueue(self._database, self._shares)

    @cached_property
    def attempts(self) -> "PostgresAttempts":
        from worker.ledger.attempts import PostgresAttempts

        return PostgresAttempts(self._database)

    @cached_property
    def cache(self) -> "PostgresAnswerCache":
        from worker.ledger.answer_cache import PostgresAnswerCache

        return PostgresAnswerCache(self._database)

    @cached_property
    def duties(self) -> "PostgresDuties":
        from worker.ledger.duties import PostgresDuties

        return PostgresDuties(self._database, self._shares)

    @cached_property
    def outbox(self) -> "PostgresOutbox":
        from worker.ledger.publishing import PostgresOutbox

        return PostgresOutbox(self._database)

    @cached_property
    def actions(self) -> "PostgresActions":
        from worker.ledger.actions import PostgresActions

        return PostgresActions(self._database)

    @cached_property
    def reading(self) -> "PostgresReading":
        from worker.ledger.views import PostgresReading

        return PostgresReading(self._database)

    @cached_property
    def erasure(self) -> "Erasure":
        from worker.ledger.removal import Erasure

        return Erasure(self._database)

    @cached_property
    def fleet(self) -> "Fleet":
        from worker.ledger.fleet import Fleet

        return Fleet(self._database)

    @cached_property
    def remote_batches(self) -> "PostgresRemoteBatches":
        from worker.ledger.provider_batches import PostgresRemoteBatches

        return PostgresRemoteBatches(self._database)

    @cached_property
    def remote_responses(self) -> "PostgresResponses":
        from worker.ledger.background_responses import PostgresResponses

        return PostgresResponses(self._database)

    @cached_property
    def remote_overview(self) -> "RemoteOverview":
        from worker.ledger.remote_overview import RemoteOverview

        return RemoteOverview(self._database)

    @cached_property
    def history(self) -> "CallHistory":
        from worker.ledger.history import CallHistory

        return CallHistory(self._database)

    @cached_property
    def answer_calls(self) -> "AnswerCalls":
        from worker.ledger.answer_calls import AnswerCalls

        return AnswerCalls(self._database)

    @cached_property
    def labels(self) -> "Labels":
        from worker.ledger.labels import Labels

        return Labels(self._database)

    @cached_property
    def contents(self) -> "BatchContents":
        from worker.ledger.batch_contents import BatchContents

        return BatchContents(self._database)

    @cached_property
    def figures(self) -> "BatchFigures":
        from worker.ledger.batch_figures import BatchFigures

        return BatchFigures(self._database)

    @cached_property
    def inspection(self) -> "Inspection":
        from worker.ledger.inspection import Inspection

        return Inspection(self._database)

    @cached_property
    def space(self) -> "DiskSpace":
        from worker.ledger.disk_space import DiskSpace

        return DiskSpace(self._database)

    @cached_property
    def metric_totals(self) -> "MetricTotals":
        from worker.ledger.metric_totals import MetricTotals

        return MetricTotals(self._database)

    @cached_property
    def gauges(self) -> "Gauges":
        from worker.ledger.gauges import Gauges

        return Gauges(self._database)

    @cached_property
    def tenancy(self) -> "Tenancy":
        from worker.ledger.tenancy import Tenancy

        return Tenancy(self._database)

    @cached_property
    def api_keys(self) -> "ApiKeys":
        from worker.ledger.stored_keys import ApiKeys

        return ApiKeys(self._database)

    @cached_property
    def uploads(self) -> "Uploads":
        from worker.ledger.uploads import Uploads

        return Uploads(self._database)

    @cached_property
    def budgets(self) -> "TenantBudgets":
        from worker.ledger.tenant_budgets import TenantBudgets

        return TenantBudgets(self._database)

    @cached_property
    def callbacks(self) -> "Callbacks":
        from worker.ledger.callbacks import Callbacks

        return Callbacks(self._database)

    @cached_property
    def browsing(self) -> "Browsing":
        from worker.ledger.browsing import Browsing

        return Browsing(self._database)

    @cached_property
    def viewer_sessions(self) -> "ViewerSessions":
        from worker.ledger.viewer_sessions import ViewerSessions

        return ViewerSessions(self._database)
