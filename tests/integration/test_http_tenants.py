"""Keys of the HTTP service: each reaches its own tenant's jobs with its role's rights, and learns of no others."""

import asyncio
import contextlib
import hashlib
import html
import re
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import httpx2
import orjson
import psycopg
import pytest

from schemas.access import Role
from tasks.ports import Opened
from tests.builders import make_attempt
from tests.contract.situations import take_one
from tests.deadlines import until
from tests.http_routes import BROWSER, RULES, routes_of
from tests.http_service import LINES, Door, body_of, running_service
from tests.lent_ledger import KeptLedger
from tests.postgres import everything_in
from tests.servers import Servers
from worker.http import authentication, events
from worker.http.pages.visitors import COOKIE
from worker.ledger.tenant_budgets import TOTAL
from worker.operations.api_keys import KeyRequest, add_key, limit_key

ABSENT = "019d0000-0000-7000-8000-000000000000"
JOB = {"query": "How long is the warranty?", "context": ["The warranty lasts two years."]}


def make_key(database_url: str, name: str, tenant: str, role: Role, **limits: int) -> str:
    async def work() -> str:
        async with KeptLedger(database_url) as ledger:
            return (await add_key(ledger, KeyRequest(name, tenant, role, limits), "ada"))[1]

    return asyncio.run(work())


def revoke(database_url: str, name: str) -> None:
    async def work() -> None:
        async with KeptLedger(database_url) as ledger:
            await ledger.api_keys.revoke(name, "ada")

    asyncio.run(work())


@pytest.fixture(scope="module")
def door(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with servers.database() as url:
        make_key(url, "first", "acme", Role.ADMIN)
        with running_service(url, servers.redis_url, tmp_path_factory.mktemp("home"), loopback=False) as door:
            yield door


def caller(door: Door, name: str, tenant: str, role: Role = Role.ADMIN, **limits: int) -> httpx2.Client:
    key = make_key(door.database_url, name, tenant, role, **limits)
    return httpx2.Client(base_url=door.url, timeout=60, headers={"Authorization": f"Bearer {key}"})


def test_every_route_has_its_rule(door: Door) -> None:
    app: Any = door.server.config.app
    assert routes_of(app) == RULES.keys(), "tell in tests/http_routes.py which right a new route needs"


def fill(value: Any, ids: dict[str, str]) -> Any:
    """An address or a request with ids in place of their names."""
    if isinstance(value, str):
        for name, each in ids.items():
            value = re.sub(rf"\{{{name}(:path)?\}}", each, value)
        return value
    return {key: fill(each, ids) for key, each in value.items()} if isinstance(value, dict) else value


def send(client: httpx2.Client, route: str, ids: dict[str, str], address: str = "") -> httpx2.Response:
    method, _, path = route.partition(" ")
    client.cookies = {COOKIE: BROWSER}
    return client.request(method, fill(address or path, ids), **fill(RULES[route].request, ids))


ABSENT_HEX = ABSENT.replace("-", "")
ABSENT_IDS = {
    "job_id": ABSENT, "batch_id": ABSENT, "file": f"file-{ABSENT_HEX}", "spare": f"file-{ABSENT_HEX}", "batch": f"batch_{ABSENT_HEX}",
    "response": f"resp_{ABSENT_HEX}", "name": "c", "number": "1", "path": "none", "word": "pause",
}  # fmt: skip


def names_an_id(*values: Any) -> bool:
    return any(
        fill(value, {"job_id": "", "batch_id": "", "file": "", "spare": "", "batch": "", "response": ""}) != value
        for value in values
    )


def ids_of(owner: httpx2.Client) -> dict[str, str]:
    """Ids of everything that a tenant may have: a job, a batch, two files that wait, and the batch of another."""
    batch = owner.post("/v1/batches", content=body_of([{**JOB, "custom_id": "c"}]), headers=LINES).json()["batch_id"]
    job = owner.get(f"/v1/batches/{batch}/jobs/c").json()["job_id"]
    line = {"custom_id": "o", "method": "POST", "url": "/v1/answers", "body": JOB}
    files = [
        owner.post(
            "/openai/v1/files", files={"file": ("a", orjson.dumps(line))}, data={"purpose": "batch"}
        ).json()["id"]
        for _ in range(3)
    ]  # fmt: skip
    order = {"input_file_id": files[0], "endpoint": "/v1/answers", "completion_window": "24h"}
    return {
        **ABSENT_IDS, "job_id": job, "batch_id": batch, "response": f"resp_{UUID(job).hex}", "file": files[1], "spare": files[2],
        "batch": owner.post("/openai/v1/batches", json=order).json()["id"],
    }  # fmt: skip


def _order(route: str) -> tuple[int, bool]:
    return ("POST", "GET", "HEAD", "DELETE").index(route.partition(" ")[0]), not route.endswith("/retry")


def test_no_route_tells_a_tenant_that_another_has_something(door: Door) -> None:
    with caller(door, "owner", "owners") as owner, caller(door, "stranger", "strangers") as stranger:
        ids = ids_of(owner)
        # Orders first, a cancel after a retry: the events of a job end with it. A file goes last.
        requests = [
            (route, address)
            for route in sorted(RULES, key=_order)
            for address in ("", *RULES[route].queries)
            if RULES[route].right is not None and names_an_id(address or route, RULES[route].request)
        ]
        assert len(requests) > 25
        for route, address in requests:
            other, absent = [send(stranger, route, each, address) for each in (ids, ABSENT_IDS)]
            contents = [
                re.sub(
                    "|".join(map(re.escape, (each[name] for name in each if name not in {"name", "number", "word"}))),
                    "",
                    text,
                )
                for each, text in ((ids, other.text), (ABSENT_IDS, absent.text))
            ]
            assert (other.status_code, contents[0]) == (absent.status_code, contents[1]), (route, address)
            assert other.status_code in {404, 400} or not RULES[route].finds, (route, other.text)
            assert {*other.headers} == {*absent.headers}, route
        states = owner.get(f"/v1/batches/{ids['batch_id']}").json()["states"]
        assert states == {"available": 1}, "a stranger's cancel did nothing"
        for page in ("/v1/batches", "/openai/v1/batches", "/openai/v1/files"):
            assert stranger.get(page).json()["data"] == []
        for route, address in requests:
            assert send(owner, route, ids, address).status_code < 400 or not RULES[route].finds, (route, address)


def test_every_route_needs_its_right(door: Door) -> None:
    with contextlib.ExitStack() as stack:
        own = door.service.settings.tenant
        clients = {role: stack.enter_context(caller(door, f"rule-{role}", own, role)) for role in Role}
        for route, rule in RULES.items():
            statuses = {role: send(client, route, ABSENT_IDS).status_code for role, client in clients.items()}
            refused = {role for role, status in statuses.items() if status == 403}
            if rule.right is not None:
                assert refused == {role for role in Role if not role.includes(rule.right)}, (route, statuses)
            assert max(statuses.values()) < 500, (route, statuses)
            without_key = send(door.http, route, ABSENT_IDS).status_code
            assert rule.right is None or without_key in {401, 303}, (route, without_key)


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
    monkeypatch.setattr(authentication, "VALID_S", 0.2)
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
    monkeypatch.setattr(authentication, "VALID_S", 0.1)
    monkeypatch.setattr(events, "KEY_LOOK_S", 0.1)
    monkeypatch.setattr(events, "BEAT_S", 30)
    answers: list[httpx2.Response] = []
    with caller(door, "keeper", "leaver") as keeper, caller(door, "leaver", "leaver") as leaver:
        job = leaver.post("/v1/jobs", json=JOB).json()["job_id"]
        with leaver.stream("GET", f"/v1/jobs/{job}/events", timeout=60) as stream:
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
    with caller(door, "slow", "acme", requests_per_minute=6) as slow, caller(door, "quick", "acme") as quick:
        answers = [slow.get("/v1/batches") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 429, 429]
        assert 0 < int(answers[1].headers["retry-after"]) <= 10
        assert [quick.get("/v1/batches").status_code for _ in range(3)] == [200] * 3


def test_a_key_is_bounded_by_the_second_too(door: Door) -> None:
    with caller(door, "brisk", "acme", requests_per_second=1, requests_per_minute=600) as brisk:
        answers = [brisk.get("/healthz"), *(brisk.get("/v1/batches") for _ in range(3))]
        assert [answer.status_code for answer in answers][:3] == [200, 200, 429]
        assert (answers[2].headers["retry-after"], "1 requests a second" in answers[2].json()["detail"]) == ("1", True)


LIMITED = [
    ({"jobs_waiting": 2}, "2 jobs that are not final", 60),
    ({"jobs_per_minute": 2}, "2 jobs a minute", 60),
    ({"jobs_per_day": 2}, "2 jobs a day (UTC)", 86_400),
]


@pytest.mark.parametrize(("limits", "words", "longest_s"), LIMITED)
def test_a_key_submits_no_more_jobs_than_it_may(door: Door, limits: dict[str, int], words: str, longest_s: int) -> None:
    (name,) = limits
    with caller(door, name, "limited", **limits) as client, caller(door, f"free-{name}", "limited") as free:
        lines = body_of([JOB, JOB, JOB])
        refused = client.post("/v1/batches", content=lines, headers=LINES)
        assert (refused.status_code, refused.headers["content-type"]) == (429, "application/problem+json")
        assert refused.json()["type"] == "urn:nightdesk:problem:key-limit"
        assert words in refused.json()["detail"]
        assert 0 < int(refused.headers["retry-after"]) <= longest_s
        assert client.get("/v1/batches").json()["data"] == free.get("/v1/batches").json()["data"]
        first = client.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": name})
        assert first.status_code == 202, "nothing of what was refused counts"
        assert client.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": name}).status_code == 200
        assert client.post("/v1/jobs", json=JOB).status_code == 202, "a job that is known does not count"
        order = client.post("/openai/v1/responses", json={"input": "Why?", "sources": [], "background": True})
        assert (order.status_code, order.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert free.post("/v1/batches", content=lines, headers=LINES).status_code == 202, "another key of the tenant"
        client.post(f"/v1/jobs/{first.json()['job_id']}/cancel")
        assert client.post("/v1/jobs", json=JOB).status_code == (202 if name == "jobs_waiting" else 429)


def test_a_batch_says_for_which_money_of_its_key_it_waits(door: Door) -> None:
    async def spend(batch_id: UUID) -> None:
        async with KeptLedger(door.database_url) as ledger:
            await limit_key(ledger, "poor", {}, {TOTAL: Decimal("0.10")}, "ada")
            (view,) = [view async for view in ledger.reading.batch_views(batch_id)]
            attempt = make_attempt(await take_one(ledger, view.job_id), reserved_usd=Decimal("0.25"))
            assert await ledger.attempts.open_attempts([attempt]) == [Opened.ON_HOLD]

    with caller(door, "poor", "poor") as client:
        batch_id = client.post("/v1/jobs", json=JOB).json()["batch_id"]
        asyncio.run(spend(UUID(batch_id)))
        status = client.get(f"/v1/batches/{batch_id}").json()
        (budget,) = status["budgets"]
        assert status["held"] == {"key_budget": 1}
        assert (budget["key"], budget["period"], budget["max_cost_usd"], budget["used_up"]) == (
            "poor",
            "total",
            "0.1",
            True,
        )
        with caller(door, "poor-reader", "poor", role=Role.READ) as reader:
            assert reader.get(f"/v1/batches/{batch_id}").json()["budgets"] == [budget]
        client.cookies = {COOKIE: BROWSER}
        page = client.get(f"/view/batches/{batch_id}")
        text = html.unescape(page.text)
        assert "The key poor may spend 0.1 USD in all and has no room for the next call (0 USD spent)" in text
        assert "nightdesk keys limit poor --max-cost-usd USD" in text


def test_the_first_key_closes_a_service_that_was_open(
    servers: Servers, tmp_path_factory: pytest.TempPathFactory, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "VALID_S", 0.2)
    with running_service(database_url, servers.redis_url, tmp_path_factory.mktemp("home")) as door:
        assert door.http.get("/v1/batches").status_code == 200
        make_key(database_url, "first", "acme", Role.READ)
        assert until(lambda: door.http.get("/v1/batches").status_code == 401, 20)
        revoke(database_url, "first")
        assert door.http.get("/v1/batches").status_code == 401
