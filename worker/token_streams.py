"""Streamed answers in Redis: workers write each job's text to a stream of its own, any number of readers follow it.

One Redis stream a job and run, ``nightdesk:tokens:{job_id}:{run}`` behind the key prefix, kept as long as results are.
Its entries have a ``kind``: ``start`` (an attempt begins and replaces any earlier text), ``text``, ``end`` or
``broken`` (the attempt ended), and one ``final``. The ledger stays the truth: a stream may be lost.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class _Answer:
    """An attempt's text, kept until the attempt ends, and the part of it that is in the stream."""

    key: str
    start: dict[str, str]
    pieces: list[str] = field(default_factory=list)
    in_stream: int = 0
    """Number of its pieces in the stream."""
    started: bool = False
    """True if its start is in the stream."""
    ended: Kind | None = None

    @property
    def due(self) -> bool:
        return not self.started or self.in_stream < len(self.pieces) or self.ended is not None

    def restart(self) -> None:
        """Notes that the stream lost its entries."""
        self.started, self.in_stream = False, 0


class RedisTokens:
    """``tasks.ports.TokenSink``; belongs to the event loop it is used on.

    Without Redis nothing is written, and no caller waits for it: an attempt that is still under way when it is back is
    written from its start, one that ended meanwhile is not.
    """

    def __init__(self, redis_url: str, *, key_prefix: str, kept_s: float) -> None:
        self._prefix = key_prefix
        self._kept_s = int(kept_s)
        self._redis = redis.Redis.from_url(redis_url, socket_timeout=10, socket_connect_timeout=5)
        self._answers: dict[UUID, _Answer] = {}
        self._finals: list[tuple[str, dict[str, str]]] = []
        self._sending: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._away = False

    def start(self, job: Leased, attempt: NewAttempt) -> None:
        """See ``tasks.ports.TokenSink``."""
        entry = {
            "kind": Kind.START.value, "attempt": str(attempt.id), "run": str(attempt.run), "round": str(attempt.round),
            "number": str(attempt.number),
        }  # fmt: skip
        self._answers[attempt.id] = _Answer(key_of(self._prefix, job.job_id, attempt.run), entry)
        self._wake()

    def text(self, attempt_id: UUID, piece: str) -> None:
        """See ``tasks.ports.TokenSink``."""
        answer = self._answers.get(attempt_id)
        if answer is not None:
            answer.pieces.append(piece)
            self._wake()

    def end(self, attempt_id: UUID, *, whole: bool) -> None:
        """See ``tasks.ports.TokenSink``."""
        answer = self._answers.get(attempt_id)
        if answer is not None:
            answer.ended = Kind.END if whole else Kind.BROKEN
            self._wake()

    def final(self, job: FinalFacts) -> None:
        """See ``tasks.ports.TokenSink``."""
        outcome = job.outcome.value if job.outcome is not None else ""
        entry = {"kind": Kind.FINAL.value, "run": str(job.run), "state": job.state.value, "outcome": outcome}
        self._finals.append((key_of(self._prefix, job.job_id, job.run), entry))
        self._wake()

    def _wake(self) -> None:
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send(), name="write tokens")

    @property
    def _due(self) -> bool:
        return bool(self._finals) or any(answer.due for answer in self._answers.values())

    async def _send(self) -> None:
        loop, pause_s = asyncio.get_running_loop(), COLLECT_S
        try:
            while self._due:
                await is_set_within(self._closing, pause_s)
                began = loop.time()
                reachable = await self._flush()
                pause_s = max(COLLECT_S, PAUSE_SHARE * (loop.time() - began)) if reachable else AWAY_S
                if self._closing.is_set() and not reachable:
                    return
        except Exception:
            log.exception("streamed answers could not be written")
            self._answers.clear()
        finally:
            self._sending = None

    async def _flush(self) -> bool:
        """Writes the due texts in one round trip; False while Redis is away."""
        due = [(attempt_id, answer) for attempt_id, answer in self._answers.items() if answer.due]
        counts = [len(answer.pieces) for _, answer in due]
        ends = [answer.ended for _, answer in due]
        # Never before the end of its answer, which may have to be written again.
        ending = {answer.key for _, answer in due if answer.ended is not None}
        finals = [final for final in self._finals if final[0] not in ending]
        self._finals = [final for final in self._finals if final[0] in ending]
        positions: list[int] = []
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                for _, answer in due:
                    positions.append(len(pipe))
                    self._write(pipe, answer)
                for key, entry in finals:
                    self._add(pipe, key, entry)
                    pipe.expire(key, self._kept_s)
                replies: list[Any] = await pipe.execute(raise_on_error=False)
            if error := next((each for each in replies if isinstance(each, Exception) and not is_refusal(each)), None):
                raise error
        except (RedisError, OSError) as error:
            self._lost(error)
            return False
        if self._away:
            log.warning("Redis is back: streamed answers are written again")
            self._away = False
        for (attempt_id, answer), position, count, ended in zip(due, positions, counts, ends, strict=True):
            if is_refusal(replies[position]):
                log.warning("the text of the attempt %s can't be written: %s", attempt_id, replies[position])
                del self._answers[attempt_id]
                continue
            if replies[position] is None:
                # Redis was emptied meanwhile.
                answer.restart()
                continue
            answer.started, answer.in_stream = True, count
            if ended is not None:
                del self._answers[attempt_id]
        return True

    def _write(self, pipe: Any, answer: _Answer) -> None:
        """Adds the commands; the reply to the first is None if the stream that it continues does not exist any more."""
        continues = answer.started
        if not continues:
            self._add(pipe, answer.key, answer.start)
            pipe.expire(answer.key, self._kept_s)
        attempt = answer.start["attempt"]
        if text := "".join(answer.pieces[answer.in_stream :]):
            entry = {"kind": Kind.TEXT.value, "attempt": attempt, "text": text}
            self._add(pipe, answer.key, entry, continues=continues)
        if answer.ended is not None:
            self._add(pipe, answer.key, {"kind": answer.ended.value, "attempt": attempt}, continues=continues)
            pipe.expire(answer.key, self._kept_s)

    def _add(self, pipe: Any, key: str, entry: Mapping[str, str], *, continues: bool = False) -> None:
        pipe.xadd(key, entry, maxlen=LONGEST_STREAM, approximate=True, nomkstream=continues)

    def _lost(self, error: Exception) -> None:
        if not self._away:
            log.warning("streamed answers can't be written, which changes nothing else: %s", error)
            self._away = True
        self._finals.clear()
        for attempt_id, answer in list(self._answers.items()):
            answer.restart()
            if answer.ended is not None:
                del self._answers[attempt_id]

    async def close(self) -> None:
        """Writes the due texts, once, and closes the connections."""
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
    client = redis.Redis.from_url(redis_url, socket_timeout=10, socket_connect_timeout=5)
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
        self._redis = redis.Redis.from_url(
            redis_url,
            decode_responses=True,
            socket_timeout=10,
            socket_connect_timeout=5,
            # One for each reader: whoever lets them in bounds them, fairly.
            max_connections=sys.maxsize,
        )

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
