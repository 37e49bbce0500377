"""Reads the rows of a provider batch's results: one that can't be read is a value that says so, and keeps no other back."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import orjson

from schemas.failure import FailureKind
from tasks.errors import failure_of
from tasks.ports.remote_batches import RemoteResult, UnreadableResult
from worker.providers.failures import Failures

LONGEST_ROW = 64_000_000
"""Bytes of a row: many times the longest answer of a model."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

ReadRow = Callable[[str, dict[str, Any]], RemoteResult]
"""Makes a result of a row with its ``custom_id``."""


async def read_rows(
    pieces: AsyncIterator[bytes], read: ReadRow, failures: Failures
) -> AsyncIterator[RemoteResult | UnreadableResult]:
    """The rows of results that come as pieces of JSON lines; raises ``ProviderError`` for a row without end."""
    number, rest = 0, bytearray(b"")
    async for piece in pieces:
        # By line feeds alone: an answer may hold other ends of lines as they are.
        *lines, last = piece.split(b"\n")
        for line in lines:
            number += 1
            if row := _row(bytes(rest) + line, number, read, failures):
                yield row
            rest.clear()
        rest += last
        if len(rest) > LONGEST_ROW:
            problem = f"wrote results whose row {number + 1} does not end within {LONGEST_ROW:,} bytes"
            raise failures.error(FailureKind.BAD_ANSWER, problem)
    if row := _row(bytes(rest), number + 1, read, failures):
        yield row


def _row(line: bytes, number: int, read: ReadRow, failures: Failures) -> RemoteResult | UnreadableResult | None:
    """The result of one line; None for a blank one."""
    line = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
    if not line.strip():
        return None
    try:
        row = _parse(line)
    except (ValueError, RecursionError):
        what = "an HTML page" if line.lstrip().startswith(b"<") else "no JSON: it is cut or damaged"
        return UnreadableResult(f"row {number} is {what}")
    custom_id = row.get("custom_id") if isinstance(row, dict) else None
    if not isinstance(custom_id, str | int):
        return UnreadableResult(f"row {number} has no custom_id")
    try:
        return read(str(custom_id), row)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"wrote a row of results that holds neither an answer nor an error ({type(error).__name__})"
        return RemoteResult(str(custom_id), failure=failure_of(failures.error(FailureKind.BAD_ANSWER, problem)))


def _parse(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except ValueError:
        # Python's own reader takes what Python's writer makes: NaN, and numbers beyond a double.
        return json.loads(line)
