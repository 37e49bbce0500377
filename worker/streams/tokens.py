"""Streamed answers in Redis: workers write each job's text to a stream of its own, any number of readers follow it.

One Redis stream a job and run, ``nightdesk:tokens:{job_id}:{run}`` behind the key prefix, kept as long as results are.
Its entries have a ``kind``: ``start`` (an attempt begins: what was shown before no longer holds), ``text``, ``end`` or
``broken`` (the attempt ended), and one ``final``. The ledger stays the truth: what is here may be lost.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from redis import asyncio as redis
from redis.exceptions import RedisError

from tasks.errors import BrokerUnavailable
from tasks.ports import FinalJob, Leased, NewAttempt

log = logging.getLogger(__name__)

TOGETHER_S = 0.05
"""How long texts of all jobs are gathered for one round trip."""

PAUSE_SHARE = 5
"""A pause between round trips is at least so many times as long as the last one took: tokens never crowd out calls."""

AWAY_S = 1.0
"""Between tries while Redis is away."""

LONGEST_STREAM = 50_000
"""Entries after which the oldest go; at 20 a second that is 40 minutes of one answer."""

BLOCK_S = 1.0
"""How long a reader waits for something new before it asks whether the job is over."""

GRACE_S = 1.0
"""How long a reader waits for the rest of a stream whose job is over."""
PAGE = 500
"""Entries read at a time."""


def key_of(prefix: str, job_id: UUID, run: int) -> str:
    """The name of a job's stream; each run has its own, so a retry begins with nothing."""
    return f"{prefix}nightdesk:tokens:{job_id}:{run}"


class Kind(StrEnum):
    """What an entry says."""

    START = "start"
    TEXT = "text"
    END = "end"
    BROKEN = "broken"
    FINAL = "final"


# ---- writing ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Telling:
    """An attempt's text and how much of it is in the stream. All of it is kept until the attempt ends, to begin anew."""

    key: str
    start: dict[str, str]
    pieces: list[str] = field(default_factory=list)
    told: int = 0
    """Pieces that are in the stream."""
    begun: bool = False
    ended: Kind | None = None

    @property
    def due(self) -> bool:
        return not self.begun or self.told < len(self.pieces) or self.ended is not None

    def again(self) -> None:
        """What was told is lost."""
        self.begun, self.told = False, 0


class RedisTokens:
    """``tasks.ports.TokenSink``; belongs to the event loop it is used on.

    Without Redis nothing is told, and nobody waits for it: an attempt that is still under way when it is back is told
    from its start, one that ended meanwhile is not.
    """

    def __init__(self, redis_url: str, *, key_prefix: str, kept_s: float) -> None:
        self._prefix = key_prefix
        self._kept_s = int(kept_s)
        self._redis = redis.Redis.from_url(redis_url, socket_timeout=10, socket_connect_timeout=5)
        self._telling: dict[UUID, _Telling] = {}
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
        self._telling[attempt.id] = _Telling(key_of(self._prefix, job.job_id, attempt.run), entry)
        self._wake()

    def text(self, attempt_id: UUID, piece: str) -> None:
        """See ``tasks.ports.TokenSink``."""
        telling = self._telling.get(attempt_id)
        if telling is not None:
            telling.pieces.append(piece)
            self._wake()

    def end(self, attempt_id: UUID, *, whole: bool) -> None:
        """See ``tasks.ports.TokenSink``."""
        telling = self._telling.get(attempt_id)
        if telling is not None:
            telling.ended = Kind.END if whole else Kind.BROKEN
            self._wake()

    def final(self, job: Leased, final: FinalJob) -> None:
        """See ``tasks.ports.TokenSink``."""
        if job.request.config.stream:
            outcome = final.outcome.value if final.outcome is not None else ""
            entry = {"kind": Kind.FINAL.value, "run": str(job.run), "state": final.state.value, "outcome": outcome}
            self._finals.append((key_of(self._prefix, job.job_id, job.run), entry))
            self._wake()

    def _wake(self) -> None:
        if self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send(), name="tell tokens")

    @property
    def _due(self) -> bool:
        return bool(self._finals) or any(telling.due for telling in self._telling.values())

    async def _send(self) -> None:
        loop, pause_s = asyncio.get_running_loop(), TOGETHER_S
        try:
            while self._due:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._closing.wait()
                began = loop.time()
                told = await self._flush()
                pause_s = max(TOGETHER_S, PAUSE_SHARE * (loop.time() - began)) if told else AWAY_S
                if self._closing.is_set() and not told:
                    return
        except Exception:
            log.exception("streamed answers could not be told")
            self._telling.clear()
        finally:
            self._sending = None

    async def _flush(self) -> bool:
        """Tell what is due in one round trip; False while Redis is away."""
        due = [(attempt_id, telling) for attempt_id, telling in self._telling.items() if telling.due]
        counts = [len(telling.pieces) for _, telling in due]
        ends = [telling.ended for _, telling in due]
        # Never before the end of its answer, which may have to be told anew.
        ending = {telling.key for _, telling in due if telling.ended is not None}
        finals = [final for final in self._finals if final[0] not in ending]
        self._finals = [final for final in self._finals if final[0] in ending]
        places: list[int] = []
        try:
            async with self._redis.pipeline(transaction=False) as pipe:
                for _, telling in due:
                    places.append(len(pipe))
                    self._tell(pipe, telling)
                for key, entry in finals:
                    self._add(pipe, key, entry)
                    pipe.expire(key, self._kept_s)
                answers = await pipe.execute()
        except (RedisError, OSError) as error:
            self._lost(error)
            return False
        if self._away:
            log.warning("Redis is back: streamed answers are told again")
            self._away = False
        for (attempt_id, telling), place, count, ended in zip(due, places, counts, ends, strict=True):
            if answers[place] is None:
                # Redis was emptied meanwhile.
                telling.again()
                continue
            telling.begun, telling.told = True, count
            if ended is not None:
                del self._telling[attempt_id]
        return True

    def _tell(self, pipe: Any, telling: _Telling) -> None:
        """Add the commands; the first of them answers None if the stream that it goes on is not there any more."""
        goes_on = telling.begun
        if not goes_on:
            self._add(pipe, telling.key, telling.start)
            pipe.expire(telling.key, self._kept_s)
        attempt = telling.start["attempt"]
        if text := "".join(telling.pieces[telling.told :]):
            entry = {"kind": Kind.TEXT.value, "attempt": attempt, "text": text}
            self._add(pipe, telling.key, entry, goes_on=goes_on)
        if telling.ended is not None:
            self._add(pipe, telling.key, {"kind": telling.ended.value, "attempt": attempt}, goes_on=goes_on)
            pipe.expire(telling.key, self._kept_s)

    def _add(self, pipe: Any, key: str, entry: Mapping[str, str], *, goes_on: bool = False) -> None:
        pipe.xadd(key, entry, maxlen=LONGEST_STREAM, approximate=True, nomkstream=goes_on)

    def _lost(self, error: Exception) -> None:
        if not self._away:
            log.warning("streamed answers can't be told, which changes nothing else: %s", error)
            self._away = True
        self._finals.clear()
        for attempt_id, telling in list(self._telling.items()):
            telling.again()
            if telling.ended is not None:
                del self._telling[attempt_id]

    async def close(self) -> None:
        """Tell what is due, once, and close the connections."""
        self._closing.set()
        if self._sending is not None:
            await asyncio.wait([self._sending])
        await self._redis.aclose()


async def forget(redis_url: str, key_prefix: str, runs: Mapping[UUID, int]) -> None:
    """Delete the streams of jobs.

    Args:
        redis_url: where they are.
        key_prefix: as the workers have it.
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
    """One entry of a stream; ``place`` is where it stands, to go on from."""

    place: str
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
            redis_url, decode_responses=True, socket_timeout=10, socket_connect_timeout=5
        )

    async def follow(
        self, job_id: UUID, run: int, *, after: str = "0", over: Callable[[], Awaitable[bool]] | None = None
    ) -> AsyncIterator[Token]:
        """What a run of a job has told and tells, in order; ends after its ``final``.

        Args:
            job_id: the job.
            run: of the job; readers of another run see nothing of it.
            after: the place of the last entry seen; from the start unless given.
            over: whether the ledger says that the job is final. Jobs that are cancelled or expire, and those whose
                stream is gone, tell nothing more; without this a reader of theirs waits until it is cancelled.

        Raises: BrokerUnavailable.
        """
        loop, key = asyncio.get_running_loop(), key_of(self._prefix, job_id, run)
        unended = final = False
        deadline: float | None = None
        while True:
            if deadline is None and over is not None and await over():
                deadline = loop.time() + (GRACE_S if after != "0" else 0)
            wait_s = BLOCK_S if deadline is None else deadline - loop.time()
            found = await self._read(key, after, wait_s)
            for token in found:
                after = token.place
                final = final or token.kind is Kind.FINAL
                unended = token.kind is Kind.START or (unended and token.kind not in {Kind.END, Kind.BROKEN})
                yield token
            if final and not unended:
                return
            if final and deadline is None:
                # Another process may still be telling the end of the answer that this one has checked.
                deadline = loop.time() + GRACE_S
            if not found and deadline is not None and loop.time() >= deadline:
                return

    async def _read(self, key: str, after: str, wait_s: float) -> list[Token]:
        try:
            # 0 would wait for ever.
            found: Any = await self._redis.xread({key: after}, count=PAGE, block=max(1, round(wait_s * 1000)))
        except (RedisError, OSError) as error:
            raise BrokerUnavailable(f"Redis can't be reached: {error}") from error
        return [_token(place, fields) for _, entries in found or () for place, fields in entries]

    async def __aenter__(self) -> Self:
        """Connects when first used."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._redis.aclose()


def _token(place: str, fields: Mapping[str, str]) -> Token:
    numbers = {name: int(fields[name]) for name in ("run", "round", "number") if name in fields}
    return Token(
        place=place,
        kind=Kind(fields["kind"]),
        text=fields.get("text", ""),
        attempt=UUID(fields["attempt"]) if "attempt" in fields else None,
        state=fields.get("state"),
        outcome=fields.get("outcome") or None,
        **numbers,
    )
