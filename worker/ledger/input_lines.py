"""Writes and reads the lines of a batch's input that are no jobs of it: refused ones, and jobs of other batches."""

from collections.abc import AsyncIterator, Iterable
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from tasks.ports import InputLine, Refused, Repeated
from worker.ledger.database import Database
from worker.ledger.pages import walk

MOST_CHARACTERS = {"place": 300, "field": 300, "message": 2_000, "custom_id": 256}
"""Length of each text of a refused line; a longer one is cut. So a line takes a few kilobytes, whatever it quotes."""

_COPY = "COPY input_line (batch_id, position, job_id, place, field, message, custom_id) FROM STDIN"

_PAGE = """
SELECT position, job_id, place, field, message, custom_id FROM input_line
WHERE batch_id = %(batch_id)s AND position > %(after_position)s ORDER BY position LIMIT %(page)s
"""


async def write_input_lines(connection: AsyncConnection[Any], batch_id: UUID, lines: Iterable[InputLine]) -> None:
    """Write lines of a batch in the transaction of its submission, as a stream; no statement where there are none."""
    rows = (_row(batch_id, line) for line in lines)
    first = next(rows, None)
    if first is None:
        return
    async with connection.cursor().copy(_COPY) as copy:
        await copy.write_row(first)
        for row in rows:
            await copy.write_row(row)


def _row(batch_id: UUID, line: InputLine) -> tuple[Any, ...]:
    if isinstance(line, Repeated):
        return (batch_id, line.position, line.job_id, None, None, None, None)
    texts = (_bounded(getattr(line, name), limit) for name, limit in MOST_CHARACTERS.items())
    return (batch_id, line.position, None, *texts)


def _bounded(text: str | None, limit: int) -> str | None:
    """The beginning of a text, with a mark in the place of what PostgreSQL can't store."""
    if text is None:
        return None
    storable = text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
    return storable if len(storable) <= limit else f"{storable[: limit - 1]}…"


async def read_input_lines(db: Database, batch_id: UUID) -> AsyncIterator[InputLine]:
    """Implements ``tasks.ports.Reading.input_lines``."""
    async for rows in walk(db, _PAGE, {"batch_id": batch_id}, {"position": -1}):
        for row in rows:
            if row.job_id is not None:
                yield Repeated(row.position, row.job_id)
            else:
                yield Refused(row.position, row.message, row.field, row.custom_id, row.place)
