"""Checks what is near: the settings, the provider's key, the embedded servers and the room on their disk."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from tasks.errors import ConfigurationError
from tasks.ports import Turn
from worker import local
from worker.doctor.finding import Finding, Severity
from worker.local import LocalStatus, ServerStatus
from worker.process.spool import left_behind, spool_folder
from worker.settings import Settings
from worker.wiring import ConfiguredProviders

LEAST_FREE = 1 << 30
"""Bytes; the embedded PostgreSQL may keep up to 1 GiB of write-ahead log (its default ``max_wal_size``)."""


def check_settings(error: ConfigurationError) -> Finding:
    """The settings can't be read."""
    return Finding("settings", Severity.PROBLEM, str(error), "correct the variable, or the file of NIGHTDESK_CONFIG")


def check_provider(settings: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    """The provider of jobs that name none, all that have settings and the fallbacks can be built: have their keys."""
    try:
        providers = ConfiguredProviders(settings, environment)
    except ConfigurationError as error:
        yield Finding("provider", Severity.PROBLEM, str(error), "correct NIGHTDESK_FALLBACKS")
        return
    fallbacks = (Turn.parse(text).provider for text in settings.fallbacks)
    for name in dict.fromkeys((providers.default, *settings.providers, *fallbacks)):
        try:
            providers.get(name)
        except ConfigurationError as error:
            remedy = "correct NIGHTDESK_PROVIDERS, or set its key where the workers run"
            if name == providers.default:
                remedy = "correct it where the workers run; NIGHTDESK_PROVIDER=extractive works without a key"
            yield Finding("provider", Severity.PROBLEM, f"{error} (looked for here, not in the workers)", remedy)


def check_embedded(status: LocalStatus) -> Iterator[Finding]:
    """The embedded servers run and answer."""
    for name, server in (("PostgreSQL", status.postgres), ("Valkey", status.valkey)):
        if not server.answering:
            yield Finding(
                "embedded",
                Severity.UNREACHABLE,
                f"the embedded {name} of {status.home} {_what_of(server)}",
                f"start it with 'nightdesk up'; its log is {server.log}",
            )


def _what_of(server: ServerStatus) -> str:
    return f"runs (process {server.pid}) but does not answer yet" if server.running else "does not run"


def check_disk(home: Path, free: int | None = None) -> Iterator[Finding]:
    """The embedded servers have room to write; ``free`` bytes, or what the file system of their data says."""
    data = _existing(local.status(home).postgres.data)
    free = shutil.disk_usage(data).free if free is None else free
    if free < LEAST_FREE:
        yield Finding(
            "disk",
            Severity.WARNING,
            f"only {free / (1 << 20):,.0f} MiB are free where the embedded servers keep their data ({data})",
            "make room, or move NIGHTDESK_HOME to a larger disk after 'nightdesk down': a PostgreSQL without room stops",
        )


def check_spool(settings: Settings, database_url: str) -> Iterator[Finding]:
    """No worker that is gone left answers in the spool of this home."""
    folder = spool_folder(settings.home.expanduser().absolute(), database_url)
    if waiting := left_behind(folder):
        yield Finding(
            "spool",
            Severity.WARNING,
            f"{waiting} files with answers that came while PostgreSQL was away wait in {folder}",
            "start a worker with this NIGHTDESK_HOME: it writes them first; until then their calls count as unknown",
        )


def _existing(path: Path) -> Path:
    """The nearest directory above that is there."""
    while not os.access(path, os.F_OK) and path != path.parent:
        path = path.parent
    return path
