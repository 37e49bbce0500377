"""A worker's orderly end: whatever breaks in it, answers are written, leases kept meanwhile, and everything is closed."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from schemas.states import Step
from tests.servers import Servers
from worker.process.celery_app import make_app
from worker.process.journal import LedgerJournal
from worker.process.runtime import WorkerRuntime
from worker.providers.registry import ConfiguredProviders
from worker.scheduling.urgent_workers import UrgentWorkers
from worker.settings import Settings


def renewer_lives() -> bool:
    return any(thread.name == "lease renewer" for thread in threading.enumerate())


@pytest.fixture
def lived(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """True if the renewer was alive when the journal had written everything."""
    lived: list[bool] = []
    close = LedgerJournal.close

    async def noted(journal: LedgerJournal) -> None:
        await close(journal)
        lived.append(renewer_lives())

    monkeypatch.setattr(LedgerJournal, "close", noted)
    return lived


@pytest.fixture
def runtime(database_url: str, servers: Servers, tmp_path: Path, lived: list[bool]) -> Iterator[WorkerRuntime]:
    settings = Settings(home=tmp_path, provider="extractive", drain_s=1)
    runtime = WorkerRuntime(
        settings,
        make_app(settings, servers.redis_url),
        database_url=database_url,
        redis_url=servers.redis_url,
        steps=frozenset({Step.GENERATE}),
        urgent_workers=UrgentWorkers(),
        fork_servers={},
        dead=lambda: None,
    )
    runtime.start(ConfiguredProviders(settings))
    yield runtime
    if not runtime._loop.is_closed():
        runtime.stop()


def test_a_step_that_can_not_be_drained_keeps_nothing_from_being_closed(
    runtime: WorkerRuntime, lived: list[bool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(within: timedelta) -> int:
        raise RuntimeError("a defect of ours")

    monkeypatch.setattr(runtime._feeds[Step.GENERATE], "drain", broken)

    assert runtime.stop() == 0

    assert len(lived) == 1, "the journal is closed"
    assert not renewer_lives()
    assert runtime._loop.is_closed()
    assert "could not be drained" in caplog.text


def test_leases_are_renewed_until_the_last_answer_is_written(runtime: WorkerRuntime, lived: list[bool]) -> None:
    runtime.stop()

    assert lived == [True]
    assert not renewer_lives()
