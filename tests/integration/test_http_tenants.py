"""Keys of the HTTP service: each reaches its own tenant's jobs with its role's rights, and learns of no others."""

import asyncio
import hashlib
import re
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import httpx2
import psycopg
import pytest

from schemas.access import Role
from tests.deadlines import until
from tests.http_service import LINES, Door, body_of, running_service
from tests.postgres import everything_in
from tests.servers import Servers
from worker.http import access, events
from worker.ledger.postgres import PostgresLedger
from worker.operations.api_keys import KeyRequest, add_key

ABSENT = "019d0000-0000-7000-8000-000000000000"
JOB = {"query": "How long is the warranty?", "context": ["The warranty lasts two years."]}


def make_key(database_url: str, name: str, tenant: str, role: Role, pace: int | None = None) -> str:
    async def work() -> str:
        async with PostgresLedger(database_url, connections=1) as ledger:
            return (await add_key(ledger, KeyRequest(name, tenant, role, pace), "ada"))[1]

    return asyncio.run(work())


def revoke(database_url: str, name: str) -> None:
    async def work() -> None:
        async with PostgresLedger(database_url, connections=1) as ledger:
            await ledger.api_keys.revoke(name, "ada")

    asyncio.run(work())


@pytest.fixture(scope="module")
def door(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with servers.database() as url:
        make_key(url, "first", "acme", Role.ADMIN)
        with running_service(url, servers.redis_url, tmp_path_factory.mktemp("home"), loopback=False) as door:
            yield door


def caller(door: Door, name: str, tenant: str, role: Role = Role.ADMIN, pace: int | None = None) -> httpx2.Client:
    key = make_key(door.database_url, name, tenant, role, pace)
    return httpx2.Client(base_url=door.url, timeout=60, headers={"Authorization": f"Bearer {key}"})


def routes_with_ids(door: Door) -> list[tuple[str, str]]:
    """Every route of the native API that takes an id, from its own description."""
    paths: dict[str, dict[str, Any]] = door.http.get("/openapi.json").json()["paths"]
    routes = [
        (method.upper(), path) for path, methods in paths.items() if re.match(r"/v1/.*\{", path) for method in methods
    ]
    assert len(routes) > 7
    # Cancels first: the events of a job end with it.
    return sorted(routes, reverse=True)


def test_no_route_tells_a_tenant_that_another_has_a_job_or_a_batch(door: Door) -> None:
    with caller(door, "owner", "owners") as owner, caller(door, "stranger", "strangers") as stranger:
        batch = owner.post("/v1/batches", content=body_of([{**JOB, "custom_id": "c"}]), headers=LINES).json()
        job = owner.get(f"/v1/batches/{batch['batch_id']}/jobs/c").json()["job_id"]
        for method, path in routes_with_ids(door):
            address = path.replace("{job_id}", job).replace("{batch_id}", batch["batch_id"]).replace("{name}", "c")
            absent = address.replace(job, ABSENT).replace(batch["batch_id"], ABSENT)
            answers = [stranger.request(method, path_of_id) for path_of_id in (address, absent)]
            assert [(answer.status_code, answer.content) for answer in answers] == [
                (404, answers[0].content),
                (404, answers[0].content),
            ], path
            assert {*answers[0].headers} == {*answers[1].headers}
        states = owner.get(f"/v1/batches/{batch['batch_id']}").json()["states"]
        assert states == {"available": 1}, "a stranger's cancel did nothing"
        assert stranger.get("/v1/batches").json()["data"] == []
        assert [each["batch_id"] for each in owner.get("/v1/batches").json()["data"]] == [batch["batch_id"]]
        for method, path in routes_with_ids(door):
            address = path.replace("{job_id}", job).replace("{batch_id}", batch["batch_id"]).replace("{name}", "c")
            assert owner.request(method, address).status_code == 200, path


def test_ids_of_producers_are_each_tenants_own(door: Door) -> None:
    with caller(door, "one", "one") as client, caller(door, "two", "two") as two:
        named = {**JOB, "message_id": "m-1"}
        answers = [
            each.post("/v1/jobs", json=named, headers={"Idempotency-Key": "k"}) for each in (client, two, client)
        ]
        assert [answer.status_code for answer in answers] == [202, 202, 200]
        assert len({answer.json()["job_id"] for answer in answers}) == 2
        own_id = two.post("/v1/jobs", json={**JOB, "job_id": answers[0].json()["job_id"]})
        assert (own_id.status_code, own_id.json()["field"]) == (422, "job_id")


def test_metrics_of_all_tenants_are_for_an_administrator_of_the_operators_tenant(door: Door) -> None:
    own = door.service.settings.tenant
    with (
        caller(door, "reader", own, Role.READ) as reader,
        caller(door, "scraper", own) as scraper,
        caller(door, "stranger-admin", "acme") as stranger,
    ):
        assert reader.get("/metrics").status_code == 403
        assert scraper.get("/metrics").status_code == 200
        refused = stranger.get("/metrics")
        assert (refused.status_code, "NIGHTDESK_TENANT" in refused.json()["detail"]) == (403, True)
        assert "nightdesk_jobs" not in refused.text
    assert door.http.get("/metrics").status_code == 401


def test_a_role_may_do_what_it_says(door: Door) -> None:
    expected = {Role.READ: (403, 200), Role.REVIEW: (403, 200), Role.SUBMIT: (202, 200), Role.ADMIN: (202, 200)}
    for role, statuses in expected.items():
        with caller(door, f"role-{role}", "roles", role) as client:
            answers = client.post("/v1/jobs", json=JOB), client.get("/v1/batches")
            assert tuple(answer.status_code for answer in answers) == statuses, role


def test_a_request_without_a_valid_key_is_refused_alike(door: Door) -> None:
    headers: list[dict[str, str]] = [
        {},
        {"Authorization": "Bearer ndk_wrong"},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "Bearer " + "x" * 5_000},
    ]
    answers = [door.http.get("/v1/batches", headers=each) for each in headers]

    assert {(answer.status_code, answer.content) for answer in answers} == {(401, answers[0].content)}
    assert answers[0].headers["www-authenticate"] == "Bearer"
    assert door.http.get("/healthz").status_code == 200


def test_a_key_ends_soon_after_it_is_revoked_and_is_nowhere_in_the_ledger(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "VALID_S", 0.2)
    with caller(door, "short", "acme") as client:
        secret = client.headers["authorization"].removeprefix("Bearer ")
        job = client.post("/v1/jobs", json=JOB).json()["job_id"]
        client.post(f"/v1/jobs/{job}/cancel")
        revoke(door.database_url, "short")
        assert until(lambda: client.get("/v1/batches").status_code == 401, 20)
    everything = everything_in(door.database_url)
    assert secret not in everything
    assert "http:short" in everything
    with psycopg.connect(door.database_url) as connection:
        rows = connection.execute("SELECT hash FROM api_key WHERE name = 'short'").fetchall()
    assert rows == [(hashlib.sha256(secret.encode()).digest(),)]


def test_a_revoked_key_ends_its_events_and_its_wait(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "VALID_S", 0.1)
    monkeypatch.setattr(events, "KEY_LOOK_S", 0.1)
    monkeypatch.setattr(events, "BEAT_S", 5)
    answers: list[httpx2.Response] = []
    with caller(door, "keeper", "leaver") as keeper, caller(door, "leaver", "leaver") as leaver:
        job = leaver.post("/v1/jobs", json=JOB).json()["job_id"]
        with leaver.stream("GET", f"/v1/jobs/{job}/events", timeout=20) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("id: ")
            poll = threading.Thread(target=lambda: answers.append(leaver.get(f"/v1/jobs/{job}?wait=30", timeout=60)))
            poll.start()
            assert until(lambda: len(door.service.watch._waiters[UUID(job)]) == 2, 20)
            revoke(door.database_url, "leaver")
            # The stream ends by itself, although nothing happens to the job.
            assert not any(line.startswith(":") for line in lines), "still open after a silence"
        assert keeper.get(f"/v1/jobs/{job}").json()["state"] == "available"
        keeper.post(f"/v1/jobs/{job}/cancel")
        poll.join(60)
    (answer,) = answers
    assert (answer.status_code, "revoked" in answer.json()["detail"]) == (401, True)


def test_a_key_has_its_own_pace(door: Door) -> None:
    with caller(door, "slow", "acme", pace=6) as slow, caller(door, "quick", "acme") as quick:
        answers = [slow.get("/v1/batches") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 429, 429]
        assert 0 < int(answers[1].headers["retry-after"]) <= 10
        assert [quick.get("/v1/batches").status_code for _ in range(3)] == [200] * 3


def test_the_first_key_closes_a_service_that_was_open(
    servers: Servers, tmp_path_factory: pytest.TempPathFactory, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "VALID_S", 0.2)
    with running_service(database_url, servers.redis_url, tmp_path_factory.mktemp("home")) as door:
        assert door.http.get("/v1/batches").status_code == 200
        make_key(database_url, "first", "acme", Role.READ)
        assert until(lambda: door.http.get("/v1/batches").status_code == 401, 20)
        revoke(database_url, "first")
        assert door.http.get("/v1/batches").status_code == 401
