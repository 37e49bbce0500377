"""The doors of the service over raw sockets: no caller takes the connections, the bodies or the identity of others."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from schemas.access import Role
from schemas.job import JobRequest
from tests.http_service import Door, running_service
from tests.lent_ledger import KeptLedger
from tests.servers import Servers
from worker.http import bodies
from worker.operations.api_keys import KeyRequest, add_key

CEILING_S = 60
PLACES = 12
CONNECTIONS = 200
QUESTION = {"query": "When?", "context": ["At nine."]}
PART = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
LINES = "application/x-ndjson"
LATER = "2090-01-01T00:00:00Z"


class Wire:
    """A connection, and what is sent and read over it byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, content: bytes) -> None:
        self.writer.write(content)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the next answer."""
        async with asyncio.timeout(CEILING_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().splitlines()
            pairs = [line.partition(": ") for line in head[1:] if line]
            headers = {name.lower(): value for name, _, value in pairs}
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def ended(self) -> None:
        """Wait for the other side to end the connection."""
        async with asyncio.timeout(CEILING_S):
            try:
                while await self.reader.read(1_000):
                    pass
            except ConnectionError:
                pass


@asynccontextmanager
async def wire(door: Door, address: str = "127.0.0.1") -> AsyncIterator[Wire]:
    host, port = door.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(address, 0))
    try:
        yield Wire(reader, writer)
    finally:
        # What is not sent would keep the connection, and the end of a service waits for it.
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


def request(
    path: str, *headers: str, method: str = "GET", host: str | None = "Host: localhost", version: str = "1.1"
) -> bytes:
    lines = [f"{method} {path} HTTP/{version}", *([host] if host else []), *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def ask(door: Door, path: str, *headers: str, **options: Any) -> tuple[int, dict[str, str], bytes]:
    async with wire(door) as connection:
        await connection.send(request(path, *headers, **options))
        return await connection.answer()


def bearer(key: str) -> str:
    return f"Authorization: Bearer {key}"


@pytest.fixture(scope="module")
def open_door(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with (
        servers.database() as url,
        running_service(url, servers.redis_url, tmp_path_factory.mktemp("home")) as door,
    ):
        yield door


@pytest.fixture
def door(servers: Servers, database_url: str, tmp_path: Path) -> Iterator[Door]:
    """A service with few places."""
    with running_service(database_url, servers.redis_url, tmp_path, http_max_connections=PLACES) as door:
        yield door


async def key_of(door: Door, name: str, tenant: str, role: Role = Role.SUBMIT, **limits: int) -> str:
    async with KeptLedger(door.database_url) as ledger:
        return (await add_key(ledger, KeyRequest(name, tenant, role, limits), "ada"))[1]


# ---- identity --------------------------------------------------------------------------------------------------------

PROXIED = (
    "X-Forwarded-For: 203.0.113.7", "X-Forwarded-Host: nightdesk.example.com", "X-Forwarded-Proto: https", "X-Forwarded-Anything: 1",
    "Forwarded: for=203.0.113.7", "Via: 1.1 nginx", "X-Real-IP: 203.0.113.7", "CF-Connecting-IP: 203.0.113.7",
    "True-Client-IP: 203.0.113.7", "X-Client-IP: 203.0.113.7", "X_Forwarded_For: 203.0.113.7",
)  # fmt: skip


@pytest.mark.parametrize("header", PROXIED)
async def test_without_keys_a_request_through_a_proxy_is_refused(open_door: Door, header: str) -> None:
    for path in (
        "/v1/batches",
        "/metrics",
        "/openai/v1/files",
        "/openai/v1/models",
        "/view/",
        "/view/login",
        "/openapi.json",
        "/nowhere",
    ):
        status, _, body = await ask(open_door, path, header)
        assert (status, b"nightdesk keys add" in body) == (421, True), path
    status, _, _ = await ask(open_door, "/v1/jobs", header, "Content-Length: 0", method="POST")
    assert status == 421
    assert (await ask(open_door, "/healthz", header))[0] == 200, "a load balancer asks for it"


async def test_without_keys_the_old_protocol_of_proxies_is_refused(open_door: Door) -> None:
    assert (await ask(open_door, "/v1/batches", version="1.0"))[0] == 421
    assert (await ask(open_door, "/v1/batches"))[0] == 200


async def test_with_a_key_a_proxy_may_stand_in_front(door: Door) -> None:
    key = await key_of(door, "front", "front")
    for header in PROXIED:
        assert (await ask(door, "/v1/batches", header, bearer(key)))[0] == 200, header
    assert (await ask(door, "/openapi.json", PROXIED[0]))[0] == 200


@pytest.mark.parametrize("path", ["/v1/batches", "/healthz", "/openapi.json", "/view/", "/openai/v1/files"])
async def test_a_request_has_one_host(open_door: Door, path: str) -> None:
    status, _, body = await ask(open_door, path, host=None)
    assert status == 400, body
    status, _, body = await ask(open_door, path, "Host: localhost")
    assert (status, b"Host" in body) == (400, True)


async def test_no_answer_may_be_taken_for_another_type(open_door: Door) -> None:
    job = open_door.http.post("/v1/jobs", json=QUESTION).json()
    batch, number = job["batch_id"], job["job_id"]
    paths = (
        "/healthz", "/readyz", "/metrics", "/openapi.json", "/nowhere", "/v1/batches", f"/v1/batches/{batch}/results",
        f"/v1/batches/{batch}/results?format=csv", f"/v1/batches/{batch}/report", f"/v1/jobs/{number}/record",
        f"/view/jobs/{number}/record", "/view/", "/view/assets/none", "/openai/v1/files", f"/v1/jobs/{number}/events",
    )  # fmt: skip
    for path in paths:
        async with wire(open_door) as connection:
            await connection.send(request(path))
            async with asyncio.timeout(CEILING_S):
                head = (await connection.reader.readuntil(b"\r\n\r\n")).decode().lower()
            assert head.count("x-content-type-options: nosniff") == 1, path
            assert "text/html" not in head or "content-security-policy: default-src 'none'" in head, path
    assert "nosniff" in (await ask(open_door, "/", "Content-Length: a"))[1]["x-content-type-options"]


# ---- connections -----------------------------------------------------------------------------------------------------


async def test_idle_connections_give_way_to_a_caller(door: Door) -> None:
    key = await key_of(door, "mine", "mine", Role.READ)
    async with AsyncExitStack() as stack:
        for _ in range(CONNECTIONS):
            await stack.enter_async_context(wire(door))
        for _ in range(PLACES):
            assert (await ask(door, "/v1/batches", bearer(key)))[0] == 200
        assert (await ask(door, "/view/", bearer(key)))[0] == 200


async def test_connections_of_one_address_end_none_of_another(door: Door) -> None:
    key = await key_of(door, "mine", "mine", Role.READ)
    async with AsyncExitStack() as stack:
        idle_wire = await stack.enter_async_context(wire(door, "127.0.0.2"))
        await idle_wire.send(request("/v1/batches", bearer(key)))
        assert (await idle_wire.answer())[0] == 200
        for _ in range(CONNECTIONS):
            other = await stack.enter_async_context(wire(door))
            await other.send(request("/v1/batches", bearer("nobody")))
            assert (await other.answer())[0] == 401
        await idle_wire.send(request("/v1/batches", bearer(key)))
        assert (await idle_wire.answer())[0] == 200


async def test_half_a_request_is_idle_too(door: Door) -> None:
    key = await key_of(door, "mine", "mine", Role.READ)
    async with wire(door) as first:
        await first.send(b"GET /v1/batches HTTP/1.1\r\nHost: local")
        wires = [
            await asyncio.open_connection(*door.url.removeprefix("http://").split(":")) for _ in range(CONNECTIONS)
        ]
        for _, writer in wires:
            writer.write(b"GET /v1/batches HTTP/1.1\r\nHo")
        await first.ended()
        assert (await ask(door, "/v1/batches", bearer(key)))[0] == 200
        for _, writer in wires:
            writer.close()


async def waiting_job(door: Door, key: str) -> str:
    body = json.dumps({**QUESTION, "scheduled_at": LATER}).encode()
    headers = (bearer(key), "Content-Type: application/json", f"Content-Length: {len(body)}")
    async with wire(door) as connection:
        await connection.send(request("/v1/jobs", *headers, method="POST") + body)
        status, _, content = await connection.answer()
    assert status == 202, content
    return str(json.loads(content)["job_id"])


async def test_polls_that_wait_count_against_the_share_of_their_key(door: Door) -> None:
    greedy = await key_of(door, "greedy", "greedy")
    job = await waiting_job(door, greedy)
    async with asyncio.TaskGroup() as group:
        polls = [group.create_task(ask(door, f"/v1/jobs/{job}?wait=60", bearer(greedy))) for _ in range(3 * PLACES)]
        # Each poll either waits or is refused: those refused tell that all have come.
        refused = await first_of(polls, 2 * PLACES)
        assert {status for status, _, _ in refused} == {429}
        assert all(headers["retry-after"] for _, headers, _ in refused)
        for name in ("sister", "other"):
            key = await key_of(door, name, "greedy" if name == "sister" else name)
            assert (await ask(door, "/v1/batches", bearer(key)))[0] == 200, name
            assert (await ask(door, "/view/", bearer(key)))[0] == 200, name
        for poll in polls:
            poll.cancel()


async def first_of(tasks: list[asyncio.Task[Any]], count: int) -> list[Any]:
    """The results of the tasks that end first."""
    results: list[Any] = []
    async with asyncio.timeout(CEILING_S):
        for each in asyncio.as_completed(tasks):
            results.append(await each)
            if len(results) == count:
                break
    return results


# ---- work on the loops that all share --------------------------------------------------------------------------------


async def send(door: Door, path: str, key: str, kind: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
    headers = (bearer(key), f"Content-Type: {kind}", f"Content-Length: {len(body)}")
    async with wire(door) as connection:
        await connection.send(request(path, *headers, method="POST") + body)
        return await connection.answer()


async def reachable(door: Door, key: str, batch: str, job: str) -> None:
    """Assert that a caller's export, record and report begin."""
    for path in (f"/v1/batches/{batch}/results", f"/v1/jobs/{job}/record", f"/v1/batches/{batch}/report"):
        async with wire(door) as connection:
            await connection.send(request(path, bearer(key)))
            async with asyncio.timeout(CEILING_S / 2):
                assert b" 200 " in await connection.reader.readline(), path


async def batch_of(door: Door, key: str) -> str:
    return str(json.loads((await ask(door, "/v1/batches", bearer(key)))[2])["data"][0]["batch_id"])


async def test_a_slow_name_server_delays_nobody(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, other = await key_of(door, "slow", "slow"), await key_of(door, "other", "other")
    job = await waiting_job(door, other)
    batch = await batch_of(door, other)
    answered, resolve = threading.Event(), socket.getaddrinfo

    def wait(host: Any, *arguments: Any, **options: Any) -> Any:
        if host == "x.slow.example":
            answered.wait(CEILING_S)
        return resolve(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", wait)
    address = "/v1/batches?callback_url=https%3A%2F%2Fx.slow.example%2F"
    try:
        async with asyncio.TaskGroup() as group:
            answers = [
                group.create_task(send(door, address, slow, LINES, json.dumps(QUESTION).encode())) for _ in range(3)
            ]
            await reachable(door, other, batch, job)
            async with asyncio.timeout(CEILING_S / 2):
                assert {(await each)[0] for each in answers} == {202}
    finally:
        answered.set()


async def test_orders_that_hang_hold_up_their_tenant_alone(servers: Servers, database_url: str, tmp_path: Path) -> None:
    with running_service(database_url, servers.redis_url, tmp_path) as door:
        greedy, other = await key_of(door, "greedy", "greedy"), await key_of(door, "other", "other")
        await waiting_job(door, greedy)
        locked, job = await batch_of(door, greedy), await waiting_job(door, other)
        batch = await batch_of(door, other)
        waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        async with (
            await psycopg.AsyncConnection.connect(database_url) as holder,
            await psycopg.AsyncConnection.connect(database_url, autocommit=True) as looker,
            asyncio.TaskGroup() as group,
        ):
            await holder.execute("SELECT FROM job WHERE batch_id = %s FOR UPDATE", (locked,))
            await holder.execute("SELECT FROM batch WHERE id = %s FOR UPDATE", (locked,))
            path = f"/v1/batches/{locked}/cancel"
            orders = [group.create_task(send(door, path, greedy, LINES, b"")) for _ in range(24)]
            async with asyncio.timeout(CEILING_S):
                while (await (await looker.execute(waits)).fetchone() or (0,))[0] < 2:
                    await asyncio.wait(orders, timeout=0.05)
            await reachable(door, other, batch, job)
            assert (await send(door, "/v1/batches", other, LINES, json.dumps(QUESTION).encode()))[0] == 202
            await holder.rollback()
            assert {(await order)[0] for order in orders} <= {200, 202}


@pytest.mark.parametrize(
    "fields",
    [
        lambda: {"config": {f"k{number}": 1 for number in range(130_000)}},
        lambda: {"metadata": {"a": [[]] * 130_000}},
        lambda: {"context": [["a"]] * 70_000},
    ],
    ids=["config", "nesting", "sources"],
)
async def test_a_job_of_too_many_values_is_refused_before_they_are_read(
    door: Door, fields: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await key_of(door, "many", "many")
    monkeypatch.setattr(JobRequest, "model_validate", lambda *_: pytest.fail("it was validated"))
    body = json.dumps({**QUESTION, **fields()}).encode()
    for path, kind in (("/v1/jobs", "application/json"), ("/v1/batches", LINES)):
        status, _, answer = await send(door, path, key, kind, body)
        assert (status, b"125,000 JSON values" in answer) == (422, True), answer[:300]


async def test_text_may_hold_any_number_of_commas(door: Door) -> None:
    key = await key_of(door, "prose", "prose")
    text = 'He said, "{[\\,",' * 50_000
    body = json.dumps({"query": "When?", "context": [text]}).encode()
    for path, kind in (("/v1/jobs", "application/json"), ("/v1/batches", LINES)):
        assert (await send(door, path, key, kind, body))[0] == 202


async def test_a_body_that_comes_byte_by_byte_ends(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "IDLE_S", 0.2)
    key = await key_of(door, "slow", "slow")
    for path, kind in (
        ("/v1/jobs", "application/json"),
        ("/v1/batches", "application/x-ndjson"),
        ("/openai/v1/files", "multipart/form-data; boundary=x"),
    ):
        async with wire(door) as connection:
            headers = (bearer(key), f"Content-Type: {kind}", "Content-Length: 100000")
            await connection.send(request(path, *headers, method="POST") + PART)
            answer = asyncio.ensure_future(connection.answer())
            while not (await asyncio.wait({answer}, timeout=0.01))[0]:
                await connection.send(b"-")
            assert answer.result()[0] == 408, path


async def test_slow_bodies_count_against_the_share_of_their_key(door: Door) -> None:
    greedy, other = await key_of(door, "greedy", "greedy"), await key_of(door, "other", "other")
    head = request(
        "/v1/jobs", bearer(greedy), "Content-Type: application/json", "Content-Length: 100000", method="POST"
    )
    async with AsyncExitStack() as stack:
        answers = []
        for _ in range(3 * PLACES):
            connection = await stack.enter_async_context(wire(door))
            await connection.send(head + b"{")
            answers.append(asyncio.ensure_future(connection.answer()))
        refused = await first_of(answers, 2 * PLACES)
        assert {status for status, _, _ in refused} == {429}
        assert (await ask(door, "/v1/batches", bearer(other)))[0] == 200
        for answer in answers:
            answer.cancel()


# ---- what stays ------------------------------------------------------------------------------------------------------


def form_of(size: int) -> bytes:
    purpose = b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    return purpose + PART + b"a" * size + b"\r\n--x--\r\n"


async def test_uploaded_files_that_wait_have_bounds(servers: Servers, database_url: str, tmp_path: Path) -> None:
    with running_service(database_url, servers.redis_url, tmp_path, http_max_stored_bytes=20_000) as door:
        greedy, other = await key_of(door, "greedy", "greedy"), await key_of(door, "other", "other")

        async def upload(key: str, size: int = 6_000) -> tuple[int, Any]:
            status, _, body = await send(
                door, "/openai/v1/files", key, "multipart/form-data; boundary=x", form_of(size)
            )
            return status, json.loads(body)

        answers = await asyncio.gather(*(upload(greedy) for _ in range(6)))
        assert sorted(status for status, _ in answers) == [200, 200, 200, 429, 429, 429]
        message = next(body for status, body in answers if status == 429)["error"]["message"]
        assert "DELETE /openai/v1/files/ID" in message
        assert (await upload(greedy, 30_000))[0] in {413, 429}
        assert (await upload(other))[0] == 200
        file = next(body for status, body in answers if status == 200)["id"]
        assert (await ask(door, f"/openai/v1/files/{file}", bearer(greedy), method="DELETE"))[0] == 200
        assert (await upload(greedy))[0] == 200


async def test_bodies_of_a_tenant_that_come_at_once_have_a_bound_together(
    servers: Servers, database_url: str, tmp_path: Path
) -> None:
    with running_service(database_url, servers.redis_url, tmp_path, http_max_body_bytes=1_000_000) as door:
        greedy, other = await key_of(door, "greedy", "greedy"), await key_of(door, "other", "other")
        head = request(
            "/v1/jobs", bearer(greedy), "Content-Type: application/json", "Content-Length: 900000", method="POST"
        )
        async with AsyncExitStack() as stack:
            answers = []
            for _ in range(3):
                connection = await stack.enter_async_context(wire(door))
                await connection.send(head + b" " * 600_000)
                answers.append(asyncio.ensure_future(connection.answer()))
            assert {status for status, _, _ in await first_of(answers, 2)} == {429}
            assert (await send(door, "/v1/jobs", other, "application/json", json.dumps(QUESTION).encode()))[0] == 202
            for answer in answers:
                answer.cancel()
