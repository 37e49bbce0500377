"""Examines a Nightdesk's environment and its work, and reports findings with their remedies.

``examine`` goes from the outside in: ``environment`` (settings, servers), ``backlog`` (workers, jobs), as far as the servers
answer. Every check is a function from an observation to findings. Nothing is started, changed or repaired.
"""

import asyncio
import os

from tasks.errors import ConfigurationError
from worker import local
from worker.doctor import backlog, environment
from worker.doctor.finding import Finding, Report
from worker.ledger.inspection import LedgerHealth, Refused, look
from worker.ledger.invariants import INVARIANTS
from worker.ledger.postgres import PostgresLedger
from worker.ledger.schema_version import Standing
from worker.local import Endpoints
from worker.settings import Settings, load_settings
from worker.supervise.state_directory import StateDirectory
from worker.supervise.workers import supervisors_in
from worker.wiring import endpoints

STUCK_LEASES = 2
"""Lease times after which a lease that ran out counts as stuck: a rescue comes within one."""


async def examine(*, invariants: bool = False) -> Report:
    """Examines everything that can be examined; raises only for a defect of ours.

    With ``invariants`` the whole ledger is read, which takes seconds for each million rows.
    """
    report = Report()
    try:
        settings = load_settings()
        settings.embedded()  # refuses one URL without the other
    except ConfigurationError as error:
        report.add("settings", environment.check_settings(error))
        return report
    report.add(
        "settings",
        *environment.check_provider(settings, os.environ),
        *environment.check_checkers(settings),
    )
    report.add("spool", *environment.check_spool(settings))
    where = _where(settings, report)
    if where is None:
        return report
    health = await _postgres(settings, where, report)
    if health is not None and invariants:
        async with PostgresLedger(where.database_url, connections=1) as ledger:
            report.add(f"{len(INVARIANTS)} invariants", *backlog.check_invariants(await ledger.inspection.violations()))
    info = await asyncio.to_thread(environment.redis_info, where.redis_url)
    report.add("Redis", *([info] if isinstance(info, Finding) else environment.check_redis(info)))
    if health is not None:
        report.add("workers", *backlog.check_workers(health, settings))
        report.add(
            "jobs",
            *backlog.check_moving(health),
            *backlog.check_held(health),
            *backlog.check_lanes(health.lanes),
            *backlog.check_remote(health.remote),
            *backlog.check_money(health),
        )
    return report


def _where(settings: Settings, report: Report) -> Endpoints | None:
    """The servers' URLs; None when they are embedded ones that do not run, because an examination starts none."""
    if not settings.embedded():
        return endpoints(settings)
    home = settings.home.expanduser().absolute()
    report.add("disk", *environment.check_disk(settings))
    # Workers leave their records behind when they end without a stop.
    expected = bool(supervisors_in(StateDirectory(home)))
    down = list(environment.check_embedded(local.status(home), expected=expected))
    report.add("embedded servers", *down)
    if down:
        return None
    running = endpoints(settings.model_copy(update={"home": home}))
    assert not running.started
    return running


async def _postgres(settings: Settings, where: Endpoints, report: Report) -> LedgerHealth | None:
    """Checks the server; returns the ledger's health when its schema can be read."""
    connection = await look(where.database_url)
    if isinstance(connection, Refused):
        report.add("PostgreSQL", environment.check_connection(connection, where.database_url))
        return None
    report.add("PostgreSQL", *environment.check_postgres(connection))
    if connection.standing not in {Standing.CURRENT, Standing.EXPANDED}:
        return None
    async with PostgresLedger(where.database_url, connections=1) as ledger:
        return await ledger.inspection.health(stuck_after=STUCK_LEASES * settings.lease_for)
