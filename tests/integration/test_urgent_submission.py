"""An urgent job accepted over Redis is hinted at once, by the worker that accepts it."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from schemas.states import Step
from tests.deadlines import scale_to_load
from tests.servers import Servers
from worker.process.celery_app import make_app
from worker.process.intake import Intake
from worker.process.runtime import WorkerRuntime
from worker.providers.registry import ConfiguredProviders
from worker.scheduling.urgent_workers import UrgentWorkers
from worker.settings import Settings

URGENT: dict[str, Any] = {"query": "When does the desk open?", "context": ["The desk opens at nine."], "priority": 1}


@pytest.fixture
def redis_client(servers: Servers) -> Iterator["redis.Redis[bytes]"]:
    with redis.Redis.from_url(servers.redis_url) as client:
        client.flushall()
        yield client


@pytest.fixture
def runtime(
    database_url: str, servers: Servers, tmp_path: Path, redis_client: "redis.Redis[bytes]"
) -> Iterator[WorkerRuntime]:
    """A worker that takes no messages, and whose dispatch does not look again: nothing but the intake wakes a feed."""
    settings = Settings(home=tmp_path, provider="extractive", drain_s=1, tick_s=60)
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
    yield runtime
    runtime.stop()


@pytest.fixture
def intake(runtime: WorkerRuntime, tmp_path: Path) -> Intake:
    return runtime.start(ConfiguredProviders(Settings(home=tmp_path, provider="extractive")))


def submit(intake: Intake) -> str:
    (job_id,) = intake.submit([URGENT], {})["job_ids"]
    return str(job_id)


def test_an_urgent_job_is_hinted_at_once_as_such(
    intake: Intake, runtime: WorkerRuntime, redis_client: "redis.Redis[bytes]"
) -> None:
    runtime.stop_admitting()

    submit(intake)

    message = redis_client.brpop([Step.GENERATE.value], timeout=int(scale_to_load(10)))
    assert message is not None, "no hint came"
    (urgent,), _, _ = json.loads(base64.b64decode(json.loads(message[1])["body"]))
    assert urgent is True
