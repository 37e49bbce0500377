"""Finds out who will answer jobs: the workers that run say so themselves; where none runs, the settings here are all there is."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from schemas.states import Step
from tasks.errors import LedgerUnavailable, SchemaMismatch
from worker import local
from worker.ledger.postgres import PostgresLedger
from worker.providers.registry import ConfiguredProviders, Installation
from worker.providers.worker_report import report_of, reported
from worker.settings import Settings, worker_name
from worker.wiring import endpoints


class Answerer(NamedTuple):
    """The settings, and the keys that are there, of a process that answers jobs."""

    settings: Settings
    environment: Mapping[str, str] | None = None
    """Where keys are, or seem to be; None: in the environment of this process."""

    @property
    def providers(self) -> ConfiguredProviders:
        """Its providers; those of another process can be described, and not called."""
        return ConfiguredProviders(self.settings, self.environment)


class Answerers(NamedTuple):
    """The processes that may answer, each kind once."""

    kinds: Sequence[Answerer]
    here: bool = True
    """The one kind has the settings of this process."""
    certain: bool = True
    """No process of another kind takes the jobs."""
    why: str = ""
    """The reason for which a claim about them holds, for people; empty: this command starts them, or they agree with it."""

    @property
    def first(self) -> Answerer:
        """The kind to reckon with."""
        return self.kinds[0]

    @property
    def catalog(self) -> Installation:
        """The models that they serve."""
        return Installation(self.first.settings, same_for_workers=self.certain, environment=self.first.environment)


_BY_REPORT = "as the workers that run say"
_DIFFER = "the workers that run differ, and whichever takes a job answers it"
_UNREADABLE = "by the settings here; workers of another version run, and theirs decide"
_UNASKED = "by the settings here; the ledger can't be asked for its workers"
_WITHOUT_WORKERS = "by the settings here; no worker runs, and the settings of those that start decide"


def answerers_of(settings: Settings, reports: Sequence[Mapping[str, Any] | None], *, starts: bool) -> Answerers:
    """The answerers by the reports of the workers that run.

    Args:
        settings: of this process.
        reports: of each worker that takes the jobs; None for one that reports nothing.
        starts: this command starts workers where none run.
    """
    own = Answerer(settings)
    if not reports:
        # Embedded servers have no workers but those of this machine, and most are started from the same settings.
        return Answerers([own], certain=starts or settings.embedded(), why="" if starts else _WITHOUT_WORKERS)
    distinct = [report for number, report in enumerate(reports) if report not in reports[:number]]
    if distinct == [report_of(settings)]:
        return Answerers([own])
    views = [None if report is None else reported(settings, report) for report in distinct]
    kinds = [Answerer(*view) for view in views if view is not None]
    if len(kinds) < len(views):
        return Answerers([own], certain=False, why=_UNREADABLE)
    alone = len(kinds) == 1
    return Answerers(kinds, here=False, certain=alone, why=_BY_REPORT if alone else _DIFFER)


async def find_answerers(settings: Settings, step: Step, *, starts: bool) -> Answerers:
    """The answerers of jobs that begin with a step, by a look at the ledger; nothing is started for it."""
    try:
        return answerers_of(settings, await _reports(settings, step), starts=starts)
    except LedgerUnavailable:
        # The command itself says so when it comes to the ledger.
        return Answerers([Answerer(settings)], certain=False, why=_UNASKED)


async def _reports(settings: Settings, step: Step) -> list[Mapping[str, Any] | None]:
    if settings.embedded() and not local.status(settings.home.absolute()).running:
        return []
    try:
        async with PostgresLedger(endpoints(settings).database_url, connections=1) as ledger:
            workers = await ledger.fleet.reports(step)
    except SchemaMismatch:
        # Nobody works on a ledger of another version, or on an empty one.
        return []
    return [report for name, report in workers if not _has_died(name)]


def _has_died(name: str) -> bool:
    """Tells of a worker of this machine that was killed a moment ago; of others the ledger tells a little later."""
    host, _, pid = name.rpartition(":")
    if f"{host}:" != worker_name().removesuffix(str(os.getpid())) or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except OSError as error:
        # A process of another user may not be asked, and is there.
        return isinstance(error, ProcessLookupError)
    return False
