"""Streamed answers in Redis: workers write each job's text to a stream of its own, any number of readers follow it.

One Redis stream a job and run, ``nightdesk:tokens:{job_id}:{run}`` behind the key prefix, kept as long as results are.
Its entries have a ``kind``: ``start`` (an attempt begins and replaces any earlier text), ``text``, ``end`` or
``broken`` (the attempt ended), and one ``final``. The ledger stays the truth: a stream may be lost.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self
from uuid import UUID

from redis import asyncio as redis
from redis.exceptions import (
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from tasks.errors import BrokerUnavailable
from tasks.ports import FinalFacts, Leased, NewAttempt
from worker.cancellation import is_set_within

log = logging.getLogger(__name__)

COLLECT_S = 0.05
"""Seconds in which the texts of all jobs are collected for one round trip."""

PAUSE_SHARE = 5
"""A pause between round trips is at least so many times as long as the last one took: tokens never crowd out calls."""

AWAY_S = 1.0
"""Seconds between tries while Redis is away."""

LONGEST_STREAM = 50_000
"""Entries after which the oldest go; at 20 a second that is 40 minutes of one answer."""

BLOCK_S = 1.0
"""Seconds that a reader waits for a new entry before it asks whether the job is over."""

GRACE_S = 1.0
"""Seconds that a reader waits for the end of a stream whose job is over."""
PAGE = 500
"""Entries read at a time."""


def _client(redis_url: str, **options: Any) -> redis.Redis:
    # For a connection as well as for an answer: a hundred readers that come at once have to be let in.
    return redis.Redis.from_url(redis_url, socket_timeout=10, socket_connect_timeout=10, **options)


def key_of(prefix: str, job_id: UUID, run: int) -> str:
    """The name of a job's stream; each run has its own, so a retry begins with nothing."""
    return f"{prefix}nightdesk:tokens:{job_id}:{run}"


class Kind(StrEnum):
    """The kind of an entry."""

    START = "start"
    TEXT = "text"
    END = "end"
    BROKEN = "broken"
    FINAL = "final"


# ---- writing ---------------------------------------------------------------------------------------------------


class RedisTokens:
    """``tasks.ports.TokenSink``; belongs to the event loop it is used on.

    Without Redis nothing is written, and no caller waits for it: the text of an attempt that it interrupts ends there.
    """

    def __init__(self, redis_url: str, *, key_prefix: str, kept_s: float) -> None:
        self._prefix = key_prefix
        self._kept_s = int(kept_s)
        self._redis = _client(redis_url)
        self._keys: dict[UUID, str] = {}
        """The streams of the attempts under way."""
        self._entries: list[tuple[str, dict[str, str]]] = []
        """What is to be written, in order."""
        self._texts: dict[UUID, dict[str, str]] = {}
        """The entries that further pieces of an attempt come into."""
        self._sending: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._away = False

    def start(self, job: Leased, attempt: NewAttempt) -> None:
        """See ``tasks.ports.TokenSink``."""
        key = self._keys[attempt.id] = key_of(self._prefix, job.job_id, attempt.run)
        numbers = {"run": str(attempt.run), "round": str(attempt.round), "number": str(attempt.number)}
        self._add(key, Kind.START, attempt=str(attempt.id), **numbers)

    def text(self, attempt_id: UUID, piece: str) -> None:
        """See ``tasks.ports.TokenSink``."""
        if (entry := self._texts.get(attempt_id)) is not None:
            entry["text"] += piece
        elif (key := self._keys.get(attempt_id)) is not None:
            self._texts[attempt_id] = self._add(key, Kind.TEXT, attempt=str(attempt_id), text=piece)

    def end(self, attempt_id: UUID, *, whole: bool) -> None:
        """See ``tasks.ports.TokenSink``."""
        self._texts.pop(attempt_id, None)
        if (key := self._keys.pop(attempt_id, None)) is not None:
            self._add(key, Kind.END if whole else Kind.BROKEN, attempt=str(attempt_id))

    def final(self, job: FinalFacts) -> None:
        """See ``tasks.ports.TokenSink``."""
        outcome = job.outcome.value if job.outcome is not None else ""
        key = key_of(self._prefix, job.job_id, job.run)
        self._add(key, Kind.FINAL, run=str(job.run), state=job.state.value, outcome=outcome)

    def _add(self, key: str, kind: Kind, **values: str) -> dict[str, str]:
        entry = {"kind": kind.value, **values}
        self._entries.append((key, entry))
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send(), name="write tokens")
        return entry

    async def _send(self) -> None:
        loop, pause_s = asyncio.get_running_loop(), AWAY_S if self._away else COLLECT_S
        try:
            while self._entries:
                await is_set_within(self._closing, pause_s)
                began = loop.time()
                await self._flush()
                pause_s = max(COLLECT_S, PAUSE_SHARE * (loop.time() - began))
        except Exception:
            log.exception("streamed answers could not be written")
            self._drop()
        finally:
            self._sending = None

    async def _flush(self) -> None:
        """Writes all entries in one round trip; while Redis is away they are dropped."""
        entries: list[tuple[str, Any]] = self._entries
        self._entries = []
        self._texts.clear()
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                for key, entry in entries:
                    # Of a Redis that was emptied meanwhile no reader gets the rest of a text.
                    continues = entry["kind"] not in {Kind.START, Kind.FINAL}
                    pipe.xadd(key, entry, maxlen=LONGEST_STREAM, approximate=True, nomkstream=continues)
                    if entry["kind"] != Kind.TEXT:
                        pipe.expire(key, self._kept_s)
                errors = [reply for reply in await pipe.execute(raise_on_error=False) if isinstance(reply, Exception)]
            for error in errors:
                if not is_refusal(error):
                    raise error
                log.warning("a text can't be written: %s", error)
        except (RedisError, OSError) as error:
            if not self._away:
                log.warning("streamed answers can't be written, which changes nothing else: %s", error)
            self._away = True
            self._drop()
            return
        if self._away:
            log.warning("Redis is back: streamed answers are written again")
            self._away = False

    def _drop(self) -> None:
        self._keys.clear()
        self._entries.clear()
        self._texts.clear()

    async def close(self) -> None:
        """Writes what is due, once, and closes the connections."""
        self._closing.set()
        if self._sending is not None:
            await asyncio.wait([self._sending])
        await self._redis.aclose()


def is_refusal(reply: object) -> bool:
    """Tells whether a reply of Redis is an error of this key or value alone, not of the state of the whole server."""
    return isinstance(reply, ResponseError) and not isinstance(
        reply, OutOfMemoryError | ReadOnlyError | NoPermissionError | BusyLoadingError
    )


async def forget(redis_url: str, key_prefix: str, runs: Mapping[UUID, int]) -> None:
    """Deletes the streams of jobs.

    Args:
        redis_url: of the workers.
        key_prefix: of the workers.
        runs: the last run of each job; its earlier ones are deleted, too.

    Raises: BrokerUnavailable.
    """
    keys = [key_of(key_prefix, job_id, run) for job_id, last in runs.items() for run in range(1, last + 1)]
    client = _client(redis_url)
    try:
        if keys:
            await client.delete(*keys)
    except (RedisError, OSError) as error:
        raise BrokerUnavailable(f"Redis can't be reached: {error}") from error
    finally:
        await client.aclose()


# ---- reading ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Token:
    """One entry of a stream; ``entry_id`` is its position, to continue after it."""

    entry_id: str
    kind: Kind
    text: str = ""
    attempt: UUID | None = None
    run: int | None = None
    round: int | None = None
    number: int | None = None
    state: str | None = None
    outcome: str | None = None


class TokenReader:
    """Follows the streams of any number of jobs; an asynchronous context."""

    def __init__(self, redis_url: str, *, key_prefix: str) -> None:
        self._prefix = key_prefix
        # One connection for each reader: whoever lets them in bounds them, fairly.
        self._redis = _client(redis_url, decode_responses=True, max_connections=sys.maxsize)

    async def follow(
        self, job_id: UUID, run: int, *, after: str = "0", over: Callable[[], Awaitable[bool]] | None = None
    ) -> AsyncIterator[Token]:
        """Yields the entries of a run of a job, old and new, in order; ends after its ``final``.

        Args:
            job_id: the job.
            run: of the job; each run has a stream of its own.
            after: the id of the last entry that the caller has; by default from the start.
            over: tells whether the job is final in the ledger. Jobs that are cancelled or expire, and jobs without
                their stream, write nothing more; without this a reader of theirs waits until it is cancelled.

        Raises: BrokerUnavailable.
        """
        loop, key = asyncio.get_running_loop(), key_of(self._prefix, job_id, run)
        unended = final = False
        deadline: float | None = None
        while True:
            if deadline is None and over is not None and await over():
                deadline = loop.time() + (GRACE_S if after != "0" else 0)
            wait_s = BLOCK_S if deadline is None else deadline - loop.time()
            tokens = await self._read(key, after, wait_s)
            for token in tokens:
                after = token.entry_id
                final = final or token.kind is Kind.FINAL
                unended = token.kind is Kind.START or (unended and token.kind not in {Kind.END, Kind.BROKEN})
                yield token
            if final and not unended:
                return
            if final and deadline is None:
                # Another process may still write the end of the answer.
                deadline = loop.time() + GRACE_S
            if not tokens and deadline is not None and loop.time() >= deadline:
                return

    async def _read(self, key: str, after: str, wait_s: float) -> list[Token]:
        try:
            # 0 would wait without end.
            streams: Any = await self._redis.xread({key: after}, count=PAGE, block=max(1, round(wait_s * 1000)))
        except (RedisError, OSError) as error:
            raise BrokerUnavailable(f"Redis can't be reached: {error}") from error
        return [_token(entry_id, fields) for _, entries in streams or () for entry_id, fields in entries]

    async def __aenter__(self) -> Self:
        """Returns the reader, which connects at its first use."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the connections."""
        await self._redis.aclose()


def _token(entry_id: str, fields: Mapping[str, str]) -> Token:
    numbers = {name: int(fields[name]) for name in ("run", "round", "number") if name in fields}
    return Token(
        entry_id=entry_id,
        kind=Kind(fields["kind"]),
        text=fields.get("text", ""),
        attempt=UUID(fields["attempt"]) if "attempt" in fields else None,
        state=fields.get("state"),
        outcome=fields.get("outcome") or None,
        **numbers,
    )
