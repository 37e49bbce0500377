"""Checks what is near: the settings, the provider's key, the embedded servers and the room on their disk."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from tasks.errors import ConfigurationError
from worker import local
from worker.doctor.finding import Finding, Severity
from worker.local import LocalStatus, ServerStatus
from worker.settings import Settings
from worker.wiring import ConfiguredProviders

KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""The variable each SDK reads its key from."""

LEAST_FREE = 1 << 30
"""Bytes; the embedded PostgreSQL may keep up to 1 GiB of write-ahead log (its default ``max_wal_size``)."""


def check_settings(error: ConfigurationError) -> Finding:
    """The settings can't be read."""
    return Finding("settings", Severity.PROBLEM, str(error), "correct the variable, or the file of NIGHTDESK_CONFIG")


def check_provider(settings: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    """The provider of jobs that name none has its key, and can be built."""
    variable = KEYS.get(settings.provider or "")
    if variable is not None and not environment.get(variable):
        yield Finding(
            "provider_key",
            Severity.PROBLEM,
            f"NIGHTDESK_PROVIDER is {settings.provider}, and {variable} is not set here",
            f"set {variable} where the workers run, or NIGHTDESK_PROVIDER=extractive to work without a key",
        )
        return
    try:
        ConfiguredProviders(settings).get(None)
    except ConfigurationError as error:
        yield Finding("provider", Severity.PROBLEM, str(error), "set NIGHTDESK_PROVIDER to one that is configured")


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


def _existing(path: Path) -> Path:
    """The nearest directory above that is there."""
    while not os.access(path, os.F_OK) and path != path.parent:
        path = path.parent
    return path
