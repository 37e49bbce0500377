"""The route of events: the states and the text of a job while it runs, as server-sent events that can be resumed."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header
from fastapi.responses import StreamingResponse

from tasks.errors import BrokerUnavailable, LedgerError, NotFound, ServiceUnavailable
from worker.cancellation import cancel
from worker.http.dependencies import OwnJob, Reader, ServiceOf
from worker.http.documents import problems
from worker.http.problems import invalid
from worker.http.service import Service
from worker.http.shares import Caller
from worker.ledger.tenancy import JobVersion
from worker.token_streams import Token

log = logging.getLogger(__name__)

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

BEAT_S = 15.0
"""Seconds of silence after which a comment is sent: proxies cut off what is silent for a minute."""

KEY_LOOK_S = 5.0
"""Seconds of silence after which the key of a reader is asked for again, as it is before each event."""

LOOK_S = 30.0
TEXT_END_S = 3.0
"""Seconds that the end of the text may take once the job is final."""

ROOM = 200
"""Events that wait for a slow reader; then the text waits in Redis."""


@dataclass(slots=True)
class Position:
    """The place of a reader, as the id of its last event: run, entry of the text, version of the job."""

    run: int = 0
    entry: str = "0"
    tag: str = ""

    @classmethod
    def parse(cls, text: str) -> "Position":
        """Reads an id; raises ``Problem``."""
        run, _, rest = text.partition(".")
        entry, _, tag = rest.partition(".")
        parts = entry.split("-")
        if not run.isdecimal() or not all(part.isdecimal() for part in parts) or len(parts) > 2:  # noqa: PLR2004
            raise invalid("is no id of an event of this service; begin without one", "Last-Event-ID")
        return cls(int(run), entry, tag)

    def of(self, version: JobVersion) -> "Position":
        """The place in the events of a job: the beginning of its text where this is a place of another run."""
        return self if self.run == version.run else Position(version.run, tag=self.tag)

    def __str__(self) -> str:
        return f"{self.run}.{self.entry}.{self.tag}"


@router.get(
    "/{job_id}/events",
    responses={200: {"content": {"text/event-stream": {}}}, **problems(404)},
)
async def events(
    service: ServiceOf,
    caller: Reader,
    version: OwnJob,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=100)] = None,
) -> StreamingResponse:
    """Each change of a job's state, and its text while it is written where the job has `stream: true`; ends with the job."""
    position = Position.parse(last_event_id) if last_event_id else Position()
    stream = _Events(service, caller, version, position)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream.lines(), headers=headers, media_type="text/event-stream")


class _Events:
    """The events of one job for one reader."""

    def __init__(self, service: Service, caller: Caller, version: JobVersion, position: Position) -> None:
        self._service = service
        self._caller = caller
        self._version = version
        self._position = position.of(version)
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(ROOM)
        self._final = version.final

    async def lines(self) -> AsyncIterator[bytes]:
        """The events as they are sent, for as long as their reader may call."""
        text = asyncio.create_task(self._follow_text(), name="text of a job")
        states = asyncio.create_task(self._follow_states(text), name="states of a job")
        sent_at = time.monotonic()
        try:
            while (event := await self._next_event()) is not None and await self._may_read():
                if not event and time.monotonic() - sent_at >= BEAT_S:
                    event = b": still here\n\n"
                if event:
                    yield event
                    sent_at = time.monotonic()
        finally:
            # The server cancels whatever this waits for, once its reader hung up: the tasks would go on.
            self._service.go_on(cancel(states))
            self._service.go_on(cancel(text))

    async def _next_event(self) -> bytes | None:
        """The next event; empty after a silence, None at the end."""
        try:
            async with asyncio.timeout(KEY_LOOK_S):
                return await self._queue.get()
        except TimeoutError:
            return b""

    async def _may_read(self) -> bool:
        try:
            return await self._service.access.is_valid(self._caller)
        except (ServiceUnavailable, LedgerError) as error:
            # The reader comes back with the id of its last event.
            log.warning("the events of job %s end early: %s", self._version.job_id, error)
            return False

    async def _follow_states(self, text: "asyncio.Task[None]") -> None:
        watch, tenancy, version = self._service.watch, self._service.ledger.tenancy, self._version
        tag = self._position.tag
        try:
            while not watch.closed.is_set():
                self._final = version.final
                if version.final:
                    # The last state comes after the last piece of the text.
                    await asyncio.wait([text], timeout=TEXT_END_S)
                if version.tag != tag:
                    tag = self._position.tag = version.tag
                    await self._send("state", _state(version))
                if version.final:
                    return
                await watch.change(version.job_id, version.tag, LOOK_S)
                version = await tenancy.job(version.job_id, self._caller.tenant)
        except (ServiceUnavailable, LedgerError, NotFound) as error:
            # The reader comes back with the id of its last event.
            log.warning("the events of job %s end early: %s", version.job_id, error)
        finally:
            await self._queue.put(None)

    async def _follow_text(self) -> None:
        version, after = self._version, self._position.entry
        tokens = self._service.tokens.follow(version.job_id, version.run, after=after, over=self._is_over)
        try:
            async for token in tokens:
                self._position.entry = token.entry_id
                await self._send(token.kind.value, _token(token))
        except BrokerUnavailable as error:
            log.warning("the text of job %s can't be followed: %s", version.job_id, error)

    async def _is_over(self) -> bool:
        return self._final

    async def _send(self, name: str, data: dict[str, Any]) -> None:
        line = b"id: %s\nevent: %s\ndata: %s\n\n"
        await self._queue.put(line % (str(self._position).encode(), name.encode(), orjson.dumps(data)))


def _state(version: JobVersion) -> dict[str, Any]:
    return {
        "state": version.state.value,
        "run": version.run,
        "outcome": version.outcome,
        "held_reason": version.held_reason,
        "final": version.final,
    }


def _token(token: Token) -> dict[str, Any]:
    fields = {"text": token.text or None, "run": token.run, "round": token.round, "number": token.number}
    return {name: value for name, value in fields.items() if value is not None}
