"""Receives the rows of a query as PostgreSQL copies them out, with few turns of the event loop."""

from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import generators
from psycopg.pq import ExecStatus
from psycopg.waiting import WAIT_R

if TYPE_CHECKING:
    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGconn

_HEADER_BYTES = 19
"""Signature, flags and the length of an extension, which PostgreSQL leaves empty; the first row follows in the same message."""

_TRAILER = b"\xff\xff"


async def copied_rows(connection: psycopg.AsyncConnection[Any], query: str) -> list[memoryview]:
    """The rows of a query without parameters, each in PostgreSQL's binary form: a count of fields, and each behind its length.

    Raises: psycopg.Error.
    """
    rows: list[memoryview] = await connection.wait(_receive(connection.pgconn, query.encode()))
    if rows:
        rows[0] = rows[0][_HEADER_BYTES:]
    return [row for row in rows if row != _TRAILER]


def _receive(pgconn: "PGconn", query: bytes) -> "PQGen[list[memoryview]]":
    """Take whatever has arrived before the next wait for more.

    The reading of the driver waits after each 16 KB, over a turn of the event loop that takes longer than to read them.
    """
    pgconn.send_query(b"COPY (%b) TO STDOUT (FORMAT BINARY)" % query)
    (start,) = yield from generators.execute(pgconn)
    if start.status != ExecStatus.COPY_OUT:
        raise psycopg.errors.error_from_result(start)
    rows: list[memoryview] = []
    length = 0
    while length >= 0:
        length, row = pgconn.get_copy_data(1)
        if length == 0:
            pgconn.consume_input()
            length, row = pgconn.get_copy_data(1)
        if length > 0:
            rows.append(row)
        elif length == 0:
            while not (yield WAIT_R):
                pass
            pgconn.consume_input()
    (end,) = yield from generators.fetch_many(pgconn)
    if end.status != ExecStatus.COMMAND_OK:
        raise psycopg.errors.error_from_result(end)
    return rows
