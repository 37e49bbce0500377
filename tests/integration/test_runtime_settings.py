"""A worker that leads removes what is older than its settings allow."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from schemas.states import Step
from tests.acceptance.conftest import questions
from tests.deadlines import scale_to_load, until
from tests.http_service import running_service
from tests.servers import Servers
from worker.process import runtime
from worker.process.celery_app import make_app
from worker.process.main import _fork_servers
from worker.process.pruning import Pruning
from worker.process.runtime import WorkerRuntime
from worker.providers.registry import ConfiguredProviders
from worker.scheduling.urgent_workers import UrgentWorkers
from worker.settings import Settings


@pytest.mark.parametrize(
    ("age", "remaining"),
    [
        ({"prune_content_after_days": 0.000_001}, [("completed", True)]),
        ({"prune_rows_after_days": 0.000_001}, []),
    ],
)
def test_jobs_are_erased_or_deleted_at_their_age(
    age: dict[str, Any],
    remaining: list[tuple[str, bool]],
    database_url: str,
    servers: Servers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime, "Pruning", partial(Pruning, every=timedelta(seconds=0.5)))
    settings = Settings(home=tmp_path, provider="extractive", tick_s=0.2, drain_s=1, **age)
    with running_service(database_url, servers.redis_url, tmp_path / "service") as door:
        door.submit(*questions(1))
    rounds: list[tuple[int, int]] = []
    prune = Pruning.prune

    async def count(self: Pruning) -> tuple[int, int]:
        rounds.append(await prune(self))
        return rounds[-1]

    monkeypatch.setattr(Pruning, "prune", count)
    providers = ConfiguredProviders(settings)
    fork_servers = dict(_fork_servers(settings, ["check"], providers))
    worker = WorkerRuntime(
        settings,
        make_app(settings, servers.redis_url),
        database_url=database_url,
        redis_url=servers.redis_url,
        steps=frozenset({Step.GENERATE, Step.CHECK}),
        urgent_workers=UrgentWorkers(),
        fork_servers=fork_servers,
        dead=lambda: None,
    )
    worker.start(providers)
    try:
        with psycopg.connect(database_url, autocommit=True) as connection:

            def jobs() -> list[tuple[str, bool]]:
                return connection.execute("SELECT state, erased_at IS NOT NULL FROM job").fetchall()

            assert until(lambda: jobs() == remaining, scale_to_load(20)), jobs()
            before = len(rounds)
            assert until(lambda: len(rounds) > before + 1, scale_to_load(20)), "no round"
            assert jobs() == remaining
    finally:
        worker.stop()
