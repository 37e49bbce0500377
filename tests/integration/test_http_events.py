"""Events of a job over HTTP, resumed after a break, and the metrics of the service."""

import asyncio
import re
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import orjson
import pytest
import redis

from schemas.states import Step
from tests.builders import make_attempt, make_final
from tests.deadlines import scale_to_load, until
from tests.http_service import Door, running_service
from tests.lent_ledger import KeptLedger
from tests.servers import Servers
from worker.telemetry import metrics
from worker.telemetry.tally import Tally
from worker.token_streams import RedisTokens

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
JOB = {"query": "How long is it?", "context": ["It is two years."], "config": {"stream": True}}


def write_answer(door: Door, redis_url: str, begin: threading.Event, text: threading.Event) -> None:
    """Do the only job as a worker does: lease it, stream its text in two pieces, the second once the first was seen, end it."""

    async def work() -> None:
        tokens = RedisTokens(redis_url, key_prefix="", kept_s=60)
        async with KeptLedger(door.database_url) as ledger:
            (job,) = await ledger.queue.lease(Step.GENERATE, "w", timedelta(minutes=5), 1)
            attempt = make_attempt(job)
            await asyncio.to_thread(begin.wait, scale_to_load(60))
            tokens.start(job, attempt)
            tokens.text(attempt.id, "It is two ")
            await asyncio.to_thread(text.wait, scale_to_load(60))
            tokens.text(attempt.id, "years.")
            tokens.end(attempt.id, whole=True)
            final = make_final(job)
            await ledger.queue.finish([final])
            tokens.final(final.facts)
            await tokens.close()

    asyncio.run(work())


def read_events(
    door: Door, job: str, first: threading.Event, text: threading.Event | None = None, **headers: str
) -> list[tuple[str, str, dict[str, Any]]]:
    """Read events to the end, as their id, name and data; sets one event at the first of them, another at the first text."""
    events: list[tuple[str, str, dict[str, Any]]] = []
    with door.http.stream("GET", f"/v1/jobs/{job}/events", headers=headers, timeout=scale_to_load(60)) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if line.startswith(":"):
                continue
            if line:
                fields[name] = value
                continue
            events.append((fields["id"], fields["event"], orjson.loads(fields["data"])))
            fields = {}
            first.set()
            if text is not None and events[-1][1] == "text":
                text.set()
    return events


def text_of(events: list[tuple[str, str, dict[str, Any]]]) -> str:
    return "".join(data["text"] for _, name, data in events if name == "text")


def test_a_reader_sees_states_and_text_and_resumes_where_it_was(door: Door, servers: Servers) -> None:
    job = door.http.post("/v1/jobs", json=JOB).json()["job_id"]
    first, text = threading.Event(), threading.Event()
    writer = threading.Thread(target=write_answer, args=(door, servers.redis_url, first, text))
    writer.start()
    events = read_events(door, job, first, text)
    writer.join(scale_to_load(60))

    names = [name for _, name, _ in events]
    assert (names[0], names[-1]) == ("state", "state")
    assert text_of(events) == "It is two years."
    assert events[-1][2]["state"] == "completed"
    assert events[-1][2]["final"] is True
    assert names.index("start") < names.index("text") < names.index("end")
    middle = next(at for at, (_, name, _) in enumerate(events) if name == "text")
    resumed = read_events(door, job, first, **{"Last-Event-ID": events[middle][0]})
    assert text_of(events[: middle + 1]) + text_of(resumed) == "It is two years."
    assert resumed[-1][2] == events[-1][2]
    assert read_events(door, job, first, **{"Last-Event-ID": events[-1][0]}) == []
    assert door.http.get(f"/v1/jobs/{job}/events", headers={"Last-Event-ID": "x.y"}).status_code == 422


def test_states_come_without_redis_too(servers: Servers, tmp_path: Path, database_url: str) -> None:
    with running_service(database_url, "redis://127.0.0.1:1/0", tmp_path) as door:
        job = door.http.post("/v1/jobs", json=JOB).json()["job_id"]
        first = threading.Event()
        events: list[Any] = []
        reader = threading.Thread(target=lambda: events.extend(read_events(door, job, first)))
        reader.start()
        assert first.wait(scale_to_load(60))
        httpx2.post(f"{door.url}/v1/jobs/{job}/cancel", timeout=60)
        reader.join(scale_to_load(60))

    assert [data["state"] for _, _, data in events] == ["available", "cancelled"]


async def add_counts(door: Door, workers: int) -> None:
    """Add the counts of some workers as each of them does."""
    async with KeptLedger(door.database_url) as ledger:
        await ledger.metric_totals.prune()
        for _ in range(workers):
            tally = Tally()
            tally.count(metrics.RESCUES, by=3)
            tally.observe(metrics.JOB_SECONDS, 0.3, "llm")
            await ledger.metric_totals.add(tally.take())


def test_metrics_are_those_of_the_page_and_count(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.http.exposition.VALID_S", 0.0)
    job = door.http.post("/v1/jobs", json={"query": "Why?"}).json()["job_id"]
    door.http.get(f"/v1/jobs/{job}")
    door.http.get("/no/such/route/at/all")
    # Two workers add up what they counted.
    asyncio.run(add_counts(door, 2))

    text = door.http.get("/metrics").text
    assert 'nightdesk_http_requests_total{method="GET",route="/v1/jobs/{job_id}",status="200"}' in text
    assert 'nightdesk_http_requests_total{method="GET",route="none",status="404"}' in text
    assert "nightdesk_ledger_up 1.0" in text
    assert re.search(r'nightdesk_jobs\{held_reason="",outcome="",state="available"\} [1-9]', text)
    assert re.search(r'nightdesk_queue_age_seconds\{step="generate"\} [0-9.]+', text)
    assert 'nightdesk_job_seconds_bucket{le="0.5",part="llm"} 2.0' in text
    assert "nightdesk_rescues_total 6.0" in text
    assert "nightdesk_redis_up 1.0" in text
    assert "nightdesk_duties_led 0.0" in text
    assert job not in text
    described = set(re.findall(r"# HELP (nightdesk_\w+)", text))
    assert described == set(re.findall(r"^\| `(nightdesk_\w+)`", PAGE.read_text(), re.MULTILINE))
    assert until(lambda: "nightdesk_http_requests_open 1.0" in door.http.get("/metrics").text, 20)
    # Another test of this file takes the only job there is.
    door.http.post(f"/v1/jobs/{job}/cancel")


def test_a_reader_who_hangs_up_leaves_nothing_behind(door: Door, servers: Servers) -> None:
    job = door.http.post("/v1/jobs", json=JOB).json()["job_id"]
    with redis.Redis.from_url(servers.redis_url) as client:

        def readers() -> int:
            return [each["cmd"] for each in client.client_list()].count("xread")

        for _ in range(3):
            with door.http.stream("GET", f"/v1/jobs/{job}/events") as answer:
                lines = answer.iter_lines()
                assert next(lines).startswith("id: ")
                assert until(lambda: readers() == 1, scale_to_load(20))
            assert until(lambda: readers() == 0, scale_to_load(20)), "the text is still followed"
    assert until(lambda: UUID(job) not in door.service.watch._waiters, scale_to_load(20))
    door.http.post(f"/v1/jobs/{job}/cancel")
