"""Callbacks over HTTP: signed, repeated until they are taken, given up at last, and never sent into a private network."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn
from uuid import UUID

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from schemas.batch import CallbackStatus
from tasks.errors import InputError
from tasks.submit import new_batch
from tests.builders import make_batch
from tests.contract.situations import finished, submit
from tests.lent_ledger import KeptLedger
from tests.postgres import advance_clock
from worker.ledger.callbacks import Bounds
from worker.ledger.postgres import PostgresLedger
from worker.process.callback_delivery import PAUSES, Delivery
from worker.public_address import is_public, refuse_private

pytestmark = pytest.mark.usefixtures("runner")

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw0Yh5zv3kRWs="


@dataclass
class Receiver:
    """A server that answers callbacks with these statuses, and with 204 afterwards."""

    statuses: list[int] = field(default_factory=list)
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""
    came: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, request: web.Request) -> web.Response:
        self.requests.append((dict(request.headers), await request.read()))
        self.came.set()
        status = self.statuses.pop(0) if self.statuses else 204
        return web.Response(status=status, headers={"location": "/elsewhere"} if 300 <= status < 400 else None)


@asynccontextmanager
async def receiver(*statuses: int) -> AsyncIterator[Receiver]:
    receiving = Receiver(list(statuses))
    app = web.Application()
    app.router.add_post("/{path:.*}", receiving.take)
    running = web.AppRunner(app, access_log=None)
    await running.setup()
    site = web.TCPSite(running, "127.0.0.1", 0)
    await site.start()
    receiving.url = f"http://127.0.0.1:{running.addresses[0][1]}/hook?token=secret"
    try:
        yield receiving
    finally:
        await running.cleanup()


async def callback_of(ledger: PostgresLedger, batch_id: UUID) -> CallbackStatus:
    callback = (await ledger.reading.batch_status(batch_id)).callback
    assert callback is not None
    return callback


def delivery(ledger: PostgresLedger, **changes: Any) -> Delivery:
    return Delivery(ledger.callbacks, **{"secret": SECRET, "allow_private": True, **changes})


async def test_a_settled_batch_is_told_with_a_signature(postgres_database_url: str) -> None:
    async with KeptLedger(postgres_database_url) as ledger, receiver() as receiving:
        batch = make_batch(callback_url=receiving.url, name="night")
        await finished(ledger, batch=batch)
        unsettled = make_batch(callback_url=receiving.url)
        await submit(ledger, batch=unsettled)

        await delivery(ledger).deliver()
        advance_clock(postgres_database_url, timedelta(minutes=3))
        await delivery(ledger).deliver()

        ((headers, body),) = receiving.requests
        told = Webhook(SECRET).verify(body, headers)
        assert (told["type"], told["data"]["batch_id"], told["data"]["name"]) == (
            "batch.settled",
            str(batch.id),
            "night",
        )
        assert (told["data"]["states"], told["data"]["cost_usd"]) == ({"completed": 1}, "0.002")
        assert headers["webhook-id"] == f"msg_{batch.id.hex}"
        end = await callback_of(ledger, batch.id)
        assert (end.state, end.tries, end.last_error, end.next_at) == ("delivered", 1, None, None)
        assert "secret" not in end.url
        assert (await callback_of(ledger, unsettled.id)).state == "waiting"


async def test_a_callback_is_signed_by_the_clock_of_the_ledger(postgres_database_url: str) -> None:
    async with KeptLedger(postgres_database_url) as ledger, receiver() as receiving:
        await finished(ledger, batch=make_batch(callback_url=receiving.url))
        advance_clock(postgres_database_url, timedelta(minutes=4))
        await delivery(ledger).deliver()

        ((headers, _),) = receiving.requests
        late = (await ledger.uploads.now()).timestamp() - int(headers["webhook-timestamp"])
        assert 0 <= late < 60


async def test_failed_tries_are_repeated_with_growing_pauses_and_given_up(postgres_database_url: str) -> None:
    async with KeptLedger(postgres_database_url) as ledger, receiver(503, 302) as receiving:
        batch = make_batch(callback_url=receiving.url)
        await finished(ledger, batch=batch)
        await delivery(ledger).deliver()
        first = await callback_of(ledger, batch.id)
        assert (first.state, first.tries, first.last_error) == ("waiting", 1, "the receiver answered 503")
        await delivery(ledger).deliver()
        assert len(receiving.requests) == 1, "not before the pause is over"

        # By another process, after a restart.
        advance_clock(postgres_database_url, PAUSES[0])
        await delivery(ledger).deliver()
        assert (
            await callback_of(ledger, batch.id)
        ).last_error == "the receiver answered 302; redirects are not followed"
        assert len(receiving.requests) == 2
        for tries in (len(PAUSES) - 1, len(PAUSES)):
            receiving.statuses.append(500)
            await ledger._database.rows("UPDATE callback SET tries = %(n)s, next_at = nightdesk_now()", {"n": tries})
            await delivery(ledger).deliver()
            assert len(receiving.requests) == tries - len(PAUSES) + 4
        end = await callback_of(ledger, batch.id)
        assert (end.state, end.tries, end.next_at) == ("given_up", len(PAUSES) + 1, None)


async def test_a_receiver_that_is_gone_is_left_alone(postgres_database_url: str) -> None:
    async with KeptLedger(postgres_database_url) as ledger, receiver(410) as receiving:
        batch = make_batch(callback_url=receiving.url)
        await finished(ledger, batch=batch)
        await delivery(ledger, secret=None).deliver()
        waiting = await callback_of(ledger, batch.id)
        assert (waiting.state, waiting.tries) == ("waiting", 0)
        assert "NIGHTDESK_CALLBACK_SECRET" in (waiting.last_error or "")

        advance_clock(postgres_database_url, timedelta(minutes=1))
        await delivery(ledger).deliver()
        assert (await callback_of(ledger, batch.id)).state == "given_up"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
async def test_nothing_is_sent_into_a_private_network(postgres_database_url: str, host: str) -> None:
    async with KeptLedger(postgres_database_url) as ledger, receiver() as receiving:
        url = receiving.url.replace("127.0.0.1", host)
        batch = make_batch(callback_url=url)
        await finished(ledger, batch=batch)

        await delivery(ledger, allow_private=False).deliver()

        assert receiving.requests == []
        assert "is no public address" in ((await callback_of(ledger, batch.id)).last_error or "").replace("which ", "")
        with pytest.raises(InputError, match="NIGHTDESK_CALLBACK_PRIVATE"):
            refuse_private(url, allowed=False)
        refuse_private(url, allowed=True)


@pytest.mark.parametrize(
    "host", ["2130706433", "127.1", "0", "0x7f.1", "017700000001", "LOCALHOST.", "a.localhost", "[::1]"]
)
def test_other_spellings_of_this_machine_are_refused_at_submission(host: str) -> None:
    with pytest.raises(InputError, match="NIGHTDESK_CALLBACK_PRIVATE"):
        refuse_private(f"https://{host}/", allowed=False)


def test_no_name_is_resolved_at_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: pytest.fail("a name server was asked"))
    refuse_private("https://nightdesk.example/done", allowed=False)


async def test_a_name_that_leads_elsewhere_at_the_connection_is_refused(
    postgres_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with KeptLedger(postgres_database_url) as ledger, receiver() as receiving:
        url = receiving.url.replace("127.0.0.1", "rebound.example")
        refuse_private(url, allowed=False)
        batch = make_batch(callback_url=url)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("127.0.0.1", 443))])
        await finished(ledger, batch=batch)

        await delivery(ledger, allow_private=False).deliver()

        assert receiving.requests == []
        error = (await callback_of(ledger, batch.id)).last_error
        assert error == "rebound.example is 127.0.0.1, which is no public address"


async def test_a_silent_name_server_delays_no_other_work(
    postgres_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of providers, and answers on their way to disk, wait behind none of a tenant's."""
    count, all_asked, answered, asked = 40, threading.Event(), threading.Event(), []

    def wait(host: Any, *_: Any, **__: Any) -> NoReturn:
        asked.append(host)
        if len(asked) == count:
            all_asked.set()
        answered.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    async with KeptLedger(postgres_database_url) as ledger:
        for number in range(count):
            await finished(ledger, batch=make_batch(callback_url=f"https://x{number}.slow.example/"))
        monkeypatch.setattr(socket, "getaddrinfo", wait)
        bounds = Bounds(tries=count, of_tenant=count, of_host=count)
        delivering = asyncio.create_task(delivery(ledger, allow_private=False, bounds=bounds).deliver())
        try:
            async with asyncio.timeout(30):
                assert await asyncio.to_thread(all_asked.wait, 30)
        finally:
            answered.set()
            await delivering


def test_addresses_that_are_not_public() -> None:
    private = (
        "127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 ::1 fe80::1%eth0 fc00::1 "
        "::ffff:10.0.0.1 2002:7f00:1:: 64:ff9b::a9fe:a9fe "
        # Ways to wrap an address that lead to a network's own translator, and what nobody was given.
        "64:ff9b:1::7f00:1 ::127.0.0.1 ::ffff:0:127.0.0.1 fec0::1 5f00::1 3fff::1 2001:db8::1 2001:0:1::1 ff02::1"
    )
    assert [address for address in private.split() if is_public(address)] == []
    public = "8.8.8.8 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808::1"
    assert [address for address in public.split() if not is_public(address)] == []


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://example.org/x", "must be an address that begins with https://"),
        ("https://user:pass@example.org/", "must not hold credentials"),
        ("https:///x", "names a host"),
        ("http://127.0.0.1:99999/", "a port is a number up to 65535"),
        ("http://host:port/x", "a port is a number up to 65535"),
        ("http://[::1/x", "host and port can be read"),
    ],
)
def test_an_address_that_is_none_is_refused(url: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        new_batch({"callback_url": url}, tenant="desk")
    assert caught.value.field == "callback_url"
    assert "pass@" not in str(caught.value)


@asynccontextmanager
async def silent() -> AsyncIterator[tuple[str, asyncio.Semaphore]]:
    """A server that accepts callbacks and never answers: its address, and a semaphore that each of its requests releases."""
    over, came = asyncio.Event(), asyncio.Semaphore(0)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        came.release()
        await over.wait()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", came
    finally:
        over.set()
        server.close()


@asynccontextmanager
async def delivering(ledger: PostgresLedger, **changes: Any) -> AsyncIterator[None]:
    running = asyncio.create_task(delivery(ledger, **changes).run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def settled(ledger: PostgresLedger, url: str, count: int, tenant: str = "default") -> list[UUID]:
    """Batches without an open job, written as they stand once their jobs ended."""
    ids = [make_batch().id for _ in range(count)]
    await ledger._database.rows(
        "WITH b AS (INSERT INTO batch (id, tenant) SELECT unnest(%(ids)s::uuid[]), %(tenant)s RETURNING id)"
        " INSERT INTO callback (batch_id, url) SELECT id, %(url)s FROM b",
        {"ids": ids, "tenant": tenant, "url": url},
    )
    return ids


async def told(receiving: Receiver, batch_id: UUID) -> None:
    async with asyncio.timeout(30):
        while f"msg_{batch_id.hex}" not in {headers["webhook-id"] for headers, _ in receiving.requests}:
            receiving.came.clear()
            await receiving.came.wait()


@pytest.mark.parametrize("same_tenant", [True, False])
async def test_a_silent_receiver_delays_no_other(postgres_database_url: str, *, same_tenant: bool) -> None:
    async with KeptLedger(postgres_database_url) as ledger, receiver() as receiving, silent() as (url, came):
        await settled(ledger, url, 60)
        async with delivering(ledger):
            for _ in range(Bounds().of_host):
                await came.acquire()
            (late,) = await settled(ledger, receiving.url, 1, "default" if same_tenant else "other")
            await told(receiving, late)
        assert came.locked(), "no more tries at the silent host than it may have"


async def test_a_tenant_with_many_silent_hosts_leaves_room_for_others(postgres_database_url: str) -> None:
    async with (
        KeptLedger(postgres_database_url) as ledger,
        receiver() as receiving,
        AsyncExitStack() as stack,
    ):
        hosts = [await stack.enter_async_context(silent()) for _ in range(12)]
        for url, _ in hosts:
            await settled(ledger, url, 4)
        bounds = Bounds(tries=12, of_tenant=8, of_host=4)
        async with delivering(ledger, bounds=bounds):
            for _, came in hosts[:1]:
                await came.acquire()
            (late,) = await settled(ledger, receiving.url, 1, "other")
            await told(receiving, late)


async def test_a_batch_that_is_retried_meanwhile_is_told_once_it_is_settled_again(postgres_database_url: str) -> None:
    async with KeptLedger(postgres_database_url) as ledger, receiver() as receiving:
        (batch_id,) = await settled(ledger, receiving.url, 1)
        await ledger.callbacks.settle()
        count = "INSERT INTO job_count (batch_id, state, unpublished, jobs, folded) VALUES (%(id)s, 'available', false, %(jobs)s, false)"
        await ledger._database.rows(count, {"id": batch_id, "jobs": 1})
        await delivery(ledger).deliver()
        assert receiving.requests == []
        await ledger._database.rows(count, {"id": batch_id, "jobs": -1})
        await delivery(ledger).deliver()
        assert len(receiving.requests) == 1


async def test_the_fold_of_counts_makes_callbacks_of_settled_batches_due_and_no_others(ledger: PostgresLedger) -> None:
    done, ended, open_batch = (make_batch(callback_url="http://receiver.example") for _ in range(3))
    for batch in (done, ended):
        await finished(ledger, batch=batch)
    await submit(ledger, batch=open_batch)
    await ledger._database.rows("UPDATE callback SET next_at = nightdesk_now() + interval '1 hour'")
    await ledger._database.rows(
        "UPDATE callback SET ended_at = nightdesk_now() WHERE batch_id = %(id)s", {"id": ended.id}
    )

    await ledger.duties.fold_counts(1000)

    due = await ledger._database.rows("SELECT batch_id FROM callback WHERE next_at <= nightdesk_now()")
    assert [row.batch_id for row in due] == [done.id]
