"""Goes through all checks in order, as far as what answers allows."""

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path

from tasks.errors import ConfigurationError
from worker import local
from worker.doctor import broker, jobs, limits, place, postgres, workers
from worker.doctor.finding import Finding, Severity
from worker.ledger.health import LedgerHealth, Refused, look
from worker.ledger.invariants import INVARIANTS
from worker.ledger.postgres import PostgresLedger
from worker.ledger.schema_version import Standing
from worker.settings import Settings, load_settings
from worker.wiring import Endpoints, embedded, endpoints

STUCK_LEASES = 2
"""Lease times after which a lease that ran out counts as stuck: a rescue comes within one."""


@dataclass(slots=True)
class Report:
    """What was looked at, and what was found."""

    checked: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def add(self, part: str, *findings: Finding) -> None:
        """Note a part as looked at, with what was found in it."""
        self.checked.append(part)
        self.findings.extend(findings)

    @property
    def worst(self) -> Severity | None:
        """The worst severity; None when nothing was found."""
        order = list(Severity)
        return max((finding.severity for finding in self.findings), key=order.index, default=None)


async def examine(*, invariants: bool = False) -> Report:
    """Look at everything that can be looked at; raises only for a defect of ours.

    With ``invariants`` the whole ledger is read, which takes seconds for each million rows.
    """
    report = Report()
    try:
        settings = load_settings()
        embedded(settings)  # refuses one URL without the other
    except ConfigurationError as error:
        report.add("settings", place.check_settings(error))
        return report
    report.add("settings", *place.check_provider(settings, os.environ))
    where = _where(settings, report)
    if where is None:
        return report
    report.add("spool", *place.check_spool(settings, where.database_url))
    health = await _postgres(settings, where, report)
    if health is not None and invariants:
        async with PostgresLedger(where.database_url, connections=1) as ledger:
            report.add(f"{len(INVARIANTS)} invariants", *jobs.check_invariants(await ledger.violations()))
    await _redis(settings, where, health, report)
    if health is not None:
        lanes = limits.check_lanes(health.lanes)
        moving = (*jobs.check_moving(health), *workers.check_local(health, settings))
        report.add("jobs", *moving, *jobs.check_held(health), *lanes, *jobs.check_money(health))
    return report


def _where(settings: Settings, report: Report) -> Endpoints | None:
    """The servers' URLs; None when they are embedded ones that do not run, which are not started for a look."""
    if not embedded(settings):
        return endpoints(settings)
    home = settings.home.expanduser().absolute()
    report.add("disk", *place.check_disk(home))
    down = list(place.check_embedded(local.status(home)))
    report.add("embedded servers", *down)
    return None if down else _running(settings, home)


def _running(settings: Settings, home: Path) -> Endpoints:
    found = endpoints(settings.model_copy(update={"home": home}))
    assert not found.started
    return found


async def _postgres(settings: Settings, where: Endpoints, report: Report) -> LedgerHealth | None:
    """Check the server; returns how the ledger is when its schema can be read."""
    seen = await look(where.database_url)
    if isinstance(seen, Refused):
        report.add("PostgreSQL", postgres.check_connection(seen, where.database_url))
        return None
    report.add("PostgreSQL", *postgres.check_server(seen))
    if seen.standing is not Standing.CURRENT:
        return None
    async with PostgresLedger(where.database_url, connections=1) as ledger:
        return await ledger.health(stuck_after=STUCK_LEASES * settings.lease_for)


async def _redis(settings: Settings, where: Endpoints, health: LedgerHealth | None, report: Report) -> None:
    told = await asyncio.to_thread(broker.look, where.redis_url)
    if isinstance(told, Finding):
        report.add("Redis", told)
        return
    report.add("Redis", *broker.check_server(told))
    consumers = await asyncio.to_thread(workers.look, settings, where.redis_url)
    unheard = [consumers] if isinstance(consumers, Finding) else workers.check_consumers(consumers, health)
    report.add("workers", *unheard)
    accounts = await asyncio.to_thread(limits.look, where.redis_url, settings.key_prefix)
    report.add("limits", *limits.check_accounts(accounts))
