"""A pooler between the ledger and PostgreSQL: options that do not arrive, and prepared statements of other sessions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from struct import Struct
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from schemas.states import Step
from tests.contract.situations import finish, generate, submit_many, take
from worker.ledger.database import Database
from worker.ledger.postgres import PostgresLedger

_HEAD = Struct(">II")
PLAIN = b"N"
STARTUP = 196_608
"""Version of the protocol in a startup message; other numbers ask for encryption."""

_REFUSAL = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: options\0\0"


async def _startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[bytes]:
    """The parameters of a startup message, names and values in turn."""
    while True:
        length, code = _HEAD.unpack(await reader.readexactly(_HEAD.size))
        body = await reader.readexactly(length - _HEAD.size)
        if code == STARTUP:
            return body.rstrip(b"\0").split(b"\0")
        writer.write(PLAIN)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65_536):
        writer.write(piece)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def without_options(database_url: str, *, refuse: bool) -> AsyncIterator[str]:
    """The URL of a server that drops the options of a connection, as a pooler does, or refuses a connection that has some."""
    parts = urlsplit(database_url)

    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.get_running_loop().create_task(serve(reader, writer)))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parameters = await _startup(reader, writer)
        pairs = dict(zip(parameters[::2], parameters[1::2], strict=True))
        if pairs.pop(b"options", None) is not None and refuse:
            writer.write(b"E" + (len(_REFUSAL) + 4).to_bytes(4, "big") + _REFUSAL)
            writer.close()
            return
        above, below = await asyncio.open_connection(parts.hostname, parts.port)
        body = b"".join(name + b"\0" + value + b"\0" for name, value in pairs.items()) + b"\0"
        below.write(_HEAD.pack(len(body) + _HEAD.size, STARTUP) + body)
        try:
            await asyncio.gather(_pass(reader, below), _pass(above, writer), return_exceptions=True)
        finally:
            below.close()
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    place = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}"
    try:
        yield urlunsplit(parts._replace(netloc=place))
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("refuse", [False, True])
def test_where_options_do_not_arrive_nothing_is_prepared(
    database_url: str, caplog: pytest.LogCaptureFixture, *, refuse: bool
) -> None:
    async def work() -> None:
        async with (
            without_options(database_url, refuse=refuse) as through,
            PostgresLedger(through, connections=3, repeats=True) as ledger,
        ):
            receipt = await submit_many(ledger, 3)
            for job in await take(ledger, receipt.job_ids):
                await generate(ledger, job)
            for job in await take(ledger, receipt.job_ids, Step.CHECK):
                await finish(ledger, job)
            assert await ledger.inspection.violations() == []
            for _ in range(3):
                (row,) = await ledger._database.rows(
                    "SELECT count(*) AS n, current_setting('TimeZone') AS zone FROM pg_prepared_statements"
                )
                assert (row.n, row.zone) == (0, "UTC")

    asyncio.run(work())
    messages = [record.message for record in caplog.records if "through a pooler" in record.message]
    assert len(messages) == 1
    assert "ALTER ROLE" in messages[0]


SELECT = "SELECT %(x)s::int AS x"


async def _foreign_statements(database: Database) -> None:
    """Leave the statements of another session in the connection."""
    async with database.connection() as connection:
        for number in range(20):
            await connection.execute(f"PREPARE _pg3_{number} AS SELECT 'other'".encode(), prepare=False)


async def _lost_statements(database: Database) -> None:
    """Leave what was prepared in the connection of another session."""
    await database.rows(SELECT, {"x": 1})
    async with database.connection() as connection:
        await connection.execute(b"/* as another */ DEALLOCATE ALL", prepare=False)


@pytest.mark.parametrize("meet", [_foreign_statements, _lost_statements])
def test_statements_of_another_session_end_the_preparing(
    database_url: str, meet: Callable[[Database], Awaitable[None]]
) -> None:
    async def work() -> list[Any]:
        database = Database(database_url, size=1, repeats=True)
        await database.open()
        try:
            await meet(database)
            return await database.rows(SELECT, {"x": 7})
        finally:
            await database.close()

    assert [row.x for row in asyncio.run(work())] == [7]


def test_a_direct_connection_prepares_its_statements(database_url: str) -> None:
    async def work() -> int:
        async with PostgresLedger(database_url, connections=1, repeats=True) as ledger:
            (row,) = await ledger._database.rows("SELECT count(*) AS n FROM pg_prepared_statements")
            return int(row.n)

    assert asyncio.run(work()) > 0
