"""Keys expire and rotate, and their use, their refusals and their reads can be told: an auditor asks for it."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import psycopg
import pytest
from starlette.requests import HTTPConnection

from schemas.access import Role
from tests.deadlines import until
from tests.http_service import Door, running_service
from tests.lent_ledger import KeptLedger
from tests.servers import Servers
from worker.http import authentication, server
from worker.http.access_log import MOST_ADDRESSES, Refusals
from worker.operations.api_keys import KeyRequest, add_key, rotate_key

DAY = timedelta(days=1)
JOB = {"query": "How long is the warranty?", "context": ["The warranty lasts two years."]}


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at keys are good for no time, so that each request asks the ledger."""
    monkeypatch.setattr(authentication, "VALID_S", -1.0)


@pytest.fixture(scope="module")
def door(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with servers.database() as url:
        new_key(url, "first")
        home = tmp_path_factory.mktemp("home")
        with running_service(url, servers.redis_url, home, loopback=False, access_log=True) as door:
            yield door


def with_ledger(url: str, work: Any) -> Any:
    async def run() -> Any:
        async with KeptLedger(url) as ledger:
            return await work(ledger)

    return asyncio.run(run())


def new_key(url: str, name: str, expires_in: timedelta | None = None, role: Role = Role.SUBMIT) -> str:
    request = KeyRequest(name, "acme", role, expires_in=expires_in)
    return str(with_ledger(url, lambda ledger: add_key(ledger, request, "ada"))[1])


def status(door: Door, secret: str, path: str = "/v1/batches") -> int:
    return door.http.get(path, headers={"Authorization": f"Bearer {secret}"}).status_code


def row(door: Door, name: str, columns: str) -> Any:
    with psycopg.connect(door.database_url) as connection:
        return connection.execute(f"SELECT {columns} FROM api_key WHERE name = %s", (name,)).fetchone()


def change(door: Door, name: str, assignment: str) -> None:
    with psycopg.connect(door.database_url) as connection:
        connection.execute(f"UPDATE api_key SET {assignment} WHERE name = %s", (name,))


def test_an_expired_key_is_refused(door: Door) -> None:
    secret = new_key(door.database_url, "mortal", DAY)
    assert status(door, secret) == 200
    change(door, "mortal", "expires_at = nightdesk_now()")
    assert status(door, secret) == 401


def test_a_rotated_key_has_two_secrets_for_a_while(door: Door) -> None:
    before = new_key(door.database_url, "turning", DAY)
    assert status(door, before) == 200
    (used_at,) = row(door, "turning", "last_used_at")
    _, after = with_ledger(door.database_url, lambda ledger: rotate_key(ledger, "turning", DAY, 2 * DAY))
    assert after != before
    assert status(door, before) == status(door, after) == 200
    last_used_at, previous_used_at, remaining = row(
        door, "turning", "last_used_at, previous_used_at, expires_at - nightdesk_now()"
    )
    assert last_used_at > used_at
    assert previous_used_at >= used_at
    assert remaining > DAY
    change(door, "turning", "previous_until = nightdesk_now()")
    assert (status(door, before), status(door, after)) == (401, 200)
    change(door, "turning", "previous_until = nightdesk_now() + interval '1 day', expires_at = nightdesk_now()")
    assert (status(door, before), status(door, after)) == (401, 401)


def test_a_rotation_ends_with_the_revocation_of_the_key(door: Door) -> None:
    before = new_key(door.database_url, "leaving")
    _, after = with_ledger(door.database_url, lambda ledger: rotate_key(ledger, "leaving", DAY, None))
    with_ledger(door.database_url, lambda ledger: ledger.api_keys.revoke("leaving", "ada"))
    assert (status(door, before), status(door, after)) == (401, 401)


@pytest.mark.parametrize("path", ["/v1/batches", "/v1/nothing", "/view/nothing"])
def test_requests_of_nobody_known_are_logged_once_without_their_key(
    door: Door, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    door.service.access.refusals = Refusals()
    with caplog.at_level(logging.WARNING, "nightdesk.refused"):
        assert {status(door, f"ndk_wrong{number}", path) for number in range(3)} <= {401, 404}
    (record,) = [record for record in caplog.records if record.name == "nightdesk.refused"]
    assert record.getMessage().startswith(f"refused GET {path!r} from 127.0.0.1: ")
    assert "ndk_wrong" not in record.getMessage()


def wire_to(door: Door) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(door.url).port), timeout=60)


def refusal(door: Door, caplog: pytest.LogCaptureFixture, send: Callable[[], Any]) -> str:
    """The one line about what is sent."""
    door.service.access.refusals = Refusals()
    with caplog.at_level(logging.WARNING):
        send()
        assert until(lambda: "nightdesk.refused" in {record.name for record in caplog.records}, 30)
    (record,) = caplog.records
    return record.getMessage()


@pytest.mark.parametrize(
    ("garbage", "status"),
    [(b"\x16\x03\x01\x02\x00\x01\x00", 400), (b"GET / HTTP/1.1\r\nX: " + b"x" * server.HEADER_BYTES + b"\r\n\r\n", 431)],
    ids=["TLS", "large headers"],
)  # fmt: skip
def test_what_is_no_request_is_logged_once(
    door: Door, garbage: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    def send() -> None:
        for _ in range(3):
            with wire_to(door) as wire:
                wire.sendall(garbage)
                assert wire.recv(100).startswith(b"HTTP/1.1 %d " % status)

    assert refusal(door, caplog, send) == f"refused unreadable HTTP from 127.0.0.1: answered {status}"


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1\r\nX: ", b"GET / HTTP/1.1\r\n", b"GET /healthz HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: "])  # fmt: skip
def test_a_header_without_an_end_is_not_read_on(door: Door, head: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The parser collects it, each piece anew: a hundred megabytes held all requests for ten seconds."""

    def send() -> None:
        with wire_to(door) as wire, contextlib.suppress(ConnectionError):
            wire.sendall(head)
            while True:
                wire.sendall(b"x" * 100_000)

    assert refusal(door, caplog, send) == "refused unreadable HTTP from 127.0.0.1: answered 431"


def test_no_line_is_written_for_an_upgrade_that_is_not_made(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    """A line for each, of whoever has no key, fills the disk."""
    headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
    with caplog.at_level(logging.WARNING):
        assert httpx2.get(f"{door.url}/healthz", headers=headers, timeout=60).status_code == 200
    assert caplog.records == []


def test_headers_that_come_too_slowly_are_logged(
    door: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with wire_to(door) as wire:
        wire.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
        assert wire.recv(1_000).startswith(b"HTTP/1.1 200 ")
        monkeypatch.setattr(server, "HEADERS_S", 0.0)
        assert "headers did not end" in refusal(door, caplog, lambda: wire.sendall(b"GET / HTTP/1.1\r\nX: "))


def test_requests_beyond_all_that_are_held_are_refused_and_logged(
    servers: Servers,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(server, "NEWCOMERS", 0)
    new_key(database_url, "reader")
    with (
        running_service(database_url, servers.redis_url, tmp_path, loopback=False, http_max_connections=1) as door,
        contextlib.ExitStack() as wires,
    ):
        # Nobody's key can be looked up.
        with psycopg.connect(database_url) as connection:
            connection.execute("LOCK TABLE api_key")
            for _ in range(2):
                wire = wires.enter_context(socket.create_connection(("127.0.0.1", urlsplit(door.url).port)))
                wire.sendall(b"GET /v1/batches HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ndk_x\r\n\r\n")
            assert until(lambda: len(door.server.server_state.tasks) == 2, 30)
            with caplog.at_level(logging.WARNING, "nightdesk.refused"):
                answer = door.http.get("/v1/batches")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert door.http.get("/healthz").status_code == 200
        (record,) = [record for record in caplog.records if record.name == "nightdesk.refused"]
        assert "answered 503" in record.getMessage()


def test_refusals_of_an_address_are_counted_until_its_next_line(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = Refusals(lambda: now)

    def refuse(address: str) -> None:
        scope = {"type": "http", "client": (address, 1), "method": "GET", "path": "/v1/a\nb", "headers": [], "server": ("h", 1), "query_string": b"", "scheme": "http"}  # fmt: skip
        log.note(HTTPConnection(scope), "no key")

    with caplog.at_level(logging.WARNING, "nightdesk.refused"):
        for _ in range(5):
            refuse("192.0.2.1")
        refuse("192.0.2.2")
        now = 61.0
        refuse("192.0.2.1")
    messages = [record.getMessage() for record in caplog.records]
    assert [message.count("more since") for message in messages] == [0, 0, 1]
    assert "4 more since" in messages[2]
    assert all("\n" not in message for message in messages)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "nightdesk.refused"):
        for number in range(2 * MOST_ADDRESSES):
            refuse(f"address {number}")
        # One of the two before has had its line in this minute.
        assert len(caplog.records) == MOST_ADDRESSES - 1
        now = 122.0
        refuse("192.0.2.3")
    assert "1,001 of other addresses" in caplog.records[-1].getMessage()


def test_reads_are_logged_with_key_tenant_route_and_ids(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    secret = new_key(door.database_url, "reader")
    bearer = {"Authorization": f"Bearer {secret}"}
    job = door.http.post("/v1/jobs", json=JOB, headers=bearer).json()["job_id"]
    with caplog.at_level(logging.INFO, "nightdesk.access"):
        assert status(door, secret, f"/v1/jobs/{job}/record") == 200
        assert status(door, "ndk_none", f"/v1/jobs/{job}/record") == 401
    (record,) = [record for record in caplog.records if record.name == "nightdesk.access"]
    fields = {name: getattr(record, name) for name in ("key", "tenant", "route", "path", "status", "method")}
    assert fields == {
        "key": "reader",
        "tenant": "acme",
        "route": "/v1/jobs/{job_id}/record",
        "path": f"/v1/jobs/{job}/record",
        "status": 200,
        "method": "GET",
    }
    assert secret not in record.getMessage()


def test_without_the_setting_no_read_is_logged(
    servers: Servers, database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = new_key(database_url, "reader")
    with (
        caplog.at_level(logging.INFO, "nightdesk.access"),
        running_service(database_url, servers.redis_url, tmp_path, loopback=False) as door,
    ):
        assert status(door, secret) == 200
    assert not [record for record in caplog.records if record.name == "nightdesk.access"]


LINE = b'{"query": "How long is it?", "context": ["It is two years."]}\n'


def revoke(door: Door, name: str) -> None:
    with_ledger(door.database_url, lambda ledger: ledger.api_keys.revoke(name, "ada"))


def test_a_body_that_a_revoked_key_began_is_refused_whole(door: Door) -> None:
    def body() -> Iterator[bytes]:
        yield LINE * 1_000
        assert until(lambda: bool(door.service.shares._total), 20), "the key is known"
        revoke(door, "gone")
        yield LINE

    headers = {"Authorization": f"Bearer {new_key(door.database_url, 'gone')}", "Content-Type": "application/x-ndjson"}
    answer = door.http.post("/v1/batches?name=cut", content=body(), headers=headers)

    assert (answer.status_code, "revoked" in answer.json()["detail"]) == (401, True)
    with psycopg.connect(door.database_url) as connection:
        assert connection.execute("SELECT count(*) FROM batch WHERE name = 'cut'").fetchone() == (0,)


def test_what_a_revoked_key_still_fetches_breaks_off(door: Door) -> None:
    headers = {"Authorization": f"Bearer {new_key(door.database_url, 'fetcher')}"}
    # More than the buffers of a connection hold.
    form = {"file": ("lines.jsonl", LINE * 500_000, "application/jsonl")}
    file = door.http.post("/openai/v1/files", files=form, data={"purpose": "batch"}, headers=headers)
    with door.http.stream("GET", f"/openai/v1/files/{file.json()['id']}/content", headers=headers) as stream:
        pieces = stream.iter_raw()
        assert LINE.startswith(next(pieces)[: len(LINE)])
        revoke(door, "fetcher")
        with pytest.raises(httpx2.RemoteProtocolError, match="incomplete"):
            sum(map(len, pieces))
