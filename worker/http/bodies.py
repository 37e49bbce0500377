"""Reads the bodies of requests within limits of size and time: into memory, or to disk as they come."""

import asyncio
import tempfile
import time
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from fastapi import Request
from starlette.requests import ClientDisconnect

from worker.http.problems import Problem, invalid
from worker.http.shares import SHARE, take_bytes
from worker.operations.json_lines import UPLOAD_SUFFIX, json_fault, parse_bounded
from worker.operations.unpacked_file import DamagedGzip, TooLarge, UnpackedFile

FORM_BYTES = 10_000
"""Bytes of a form beside its file."""

IDLE_S = 30.0
"""Seconds without a byte of a body after which its sender counts as gone."""

LEAST_BYTES_A_SECOND = 5_000
"""Of a body on the whole, after the first ``IDLE_S``: each byte may come within the bound above, and the body never end."""

DISK_BYTES = 1_000_000
"""Of a body collected before they are written."""

INLINE_BYTES = 200_000
"""Largest body that is read on the loop that answers."""

INLINE_VALUES = 5_000
"""Most values of such a body: some shapes take 10 us each."""

STALE_S = 86_400
"""Age of a file that a killed process left."""

JSON_TYPES = ("application/json",)
LINES_TYPES = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines", "application/json-lines")


def _check_type(request: Request, accepted: tuple[str, ...]) -> None:
    """Refuses other types: a page in a browser can send plain text anywhere, but not these without being asked first."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in accepted:
        detail = f"the body must be sent with Content-Type {accepted[0]}, not {media_type or 'none'!r}"
        raise Problem(415, "unsupported-media-type", "Unsupported media type", detail)


def too_large(most: int) -> Problem:
    """A body beyond its bound."""
    detail = f"the body is larger than the {most:,} bytes that are taken; send less at a time"
    return Problem(413, "too-large", "Too large", detail, headers={"Connection": "close"})


def no_space(error: OSError) -> Problem:
    """A body that the disk does not take."""
    return Problem(507, "no-space", "No space", f"the body can't be stored: {error.strerror}")


def declared_size(request: Request) -> int:
    """The bytes that a body will have, by its header; 0 where that tells none."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isdecimal() else 0


async def pieces_of(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    """A body as it comes; raises ``Problem`` when it is too large or stops coming."""
    if declared_size(request) > most:
        raise too_large(most)
    stream, size, waited_s = request.stream(), 0, 0.0
    clock = asyncio.get_running_loop().time
    try:
        while True:
            asked_at = clock()
            async with asyncio.timeout(min(IDLE_S, IDLE_S + size / LEAST_BYTES_A_SECOND - waited_s)):
                piece = await anext(stream, None)
            # What was written to disk meanwhile is no fault of the sender's.
            waited_s += clock() - asked_at
            if piece is None:
                # Of the slowest that are taken, 200 MB come in eleven hours.
                if SHARE in request.scope:
                    await request.app.state.service.access.require_valid(request.scope[SHARE])
                return
            size += len(piece)
            if size > most:
                raise too_large(most)
            yield piece
    except TimeoutError:
        detail = (
            f"nothing of the body came for {IDLE_S:.0f} s, or less than {LEAST_BYTES_A_SECOND:,} bytes a second on the whole; "
            "send it again"
        )
        raise Problem(408, "timeout", "Timeout", detail, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise Problem(400, "incomplete", "Incomplete", "the connection ended before the body did") from None


async def kept_pieces_of(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    """A body as it comes, of which all is kept until the answer: it counts against the bytes of its tenant."""
    async for piece in pieces_of(request, most):
        take_bytes(request, len(piece))
        yield piece


async def read_body(request: Request, most: int) -> bytes:
    """A whole JSON body."""
    _check_type(request, JSON_TYPES)
    return b"".join([piece async for piece in kept_pieces_of(request, most)])


def is_quick(body: bytes) -> bool:
    """Tells that a job may be read on the loop that answers, by its bytes and, at most, its values: some milliseconds."""
    return len(body) <= INLINE_BYTES and body.count(b",") <= INLINE_VALUES


def parse_json(body: bytes) -> Any:
    """The value of a JSON body."""
    try:
        return parse_bounded(body.removeprefix(BOM_UTF8))
    except orjson.JSONDecodeError as error:
        raise Problem(400, "invalid-json", "Invalid JSON", f"the body: {json_fault(error)}") from None


@asynccontextmanager
async def on_disk(request: Request, folder: Path, most: int, most_lines: int) -> AsyncIterator["StoredBody"]:
    """Writes a body of JSON lines to a file, which is removed afterwards.

    A transaction must never wait for a slow sender, and a large body must never be in memory.
    """
    _check_type(request, LINES_TYPES)
    try:
        file = await asyncio.to_thread(_new_file, folder)
    except OSError as error:
        raise no_space(error) from error
    try:
        body = UnpackedFile(file, most, most_lines)
        await _fill(body, request, most)
        yield StoredBody(file.name, body.size)
    finally:
        await asyncio.to_thread(_close, file)


@dataclass(frozen=True, slots=True)
class StoredBody:
    """A body on disk."""

    name: str
    size: int
    """Unpacked."""


async def _fill(body: UnpackedFile, request: Request, most: int) -> None:
    collected = bytearray()
    try:
        async for piece in pieces_of(request, most):
            collected += piece
            if len(collected) >= DISK_BYTES:
                await _write(body, request, bytes(collected))
                collected.clear()
        await _write(body, request, bytes(collected))
        await asyncio.to_thread(body.end)
    except TooLarge:
        raise too_large(most) from None
    except DamagedGzip as error:
        raise Problem(400, "invalid-gzip", "Invalid gzip", f"the body can't be read: {error}") from None
    except OSError as error:
        raise no_space(error) from error


async def _write(body: UnpackedFile, request: Request, piece: bytes) -> None:
    """Writes a piece in steps, each of which counts for its tenant before the next: none holds a thread for long."""
    while piece:
        size = body.size
        piece = await asyncio.to_thread(body.write, piece)
        take_bytes(request, body.size - size)


def _close(file: Any) -> None:
    # It has what could not be written still, and would write it again.
    with suppress(OSError):
        file.close()


def _new_file(folder: Path) -> Any:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tempfile.NamedTemporaryFile(dir=folder, suffix=UPLOAD_SUFFIX)


def remove_stale(folder: Path) -> None:
    """Removes the bodies that killed processes left."""
    for path in folder.glob(f"*{UPLOAD_SUFFIX}"):
        if time.time() - path.stat().st_mtime > STALE_S:
            path.unlink(missing_ok=True)


def remove_files(stem: Path) -> None:
    """Removes the files whose names begin so."""
    for path in stem.parent.glob(f"{stem.name}*{UPLOAD_SUFFIX}"):
        path.unlink(missing_ok=True)


def json_object(text: str | None, name: str) -> dict[str, Any]:
    """The object that a parameter holds as JSON."""
    if text is None:
        return {}
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise invalid(json_fault(error), name) from None
    if not isinstance(value, dict):
        raise invalid("must be a JSON object", name)
    return value
