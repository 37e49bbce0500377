"""The doorbell over Celery and Redis: hints to the queues, results to the result backend, and whether Redis forgot."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import orjson
from celery import Celery, states
from kombu.exceptions import KombuError
from redis import asyncio as redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from schemas.states import Step
from tasks.errors import BrokerUnavailable, ServiceUnavailable
from tasks.ports import FinalJob, HintKey, Leased, PackedFinal, Rendered
from tasks.ports.process import TokenSink
from tasks.results import compact_final
from worker.cancellation import cancel
from worker.ledger.publishing import PostgresOutbox
from worker.process.celery_app import make_app
from worker.process.message_replies import result_key
from worker.scheduling.outbox import publish_results
from worker.settings import CANARY, SUBMIT_QUEUE, Settings
from worker.token_streams import is_refusal

log = logging.getLogger(__name__)

URGENT = 0
BULK = 6
"""Message priorities of kombu's Redis transport: 0 is taken first; its steps are 0, 3, 6 and 9."""

_REFUSED = "Redis refuses the login: correct user and password in NIGHTDESK_REDIS_URL"

PUBLISH_KEYS = 100
"""Results per round trip."""

ANSWER_S = 2.0
"""Seconds that Redis may take for one operation. Each of them may be lost, so none is worth a longer wait."""

REST_S = 2.0
"""Seconds without a further try after a failure: a silent server would delay everything again."""


_READ_RUN = """
local run = tonumber(string.match(redis.call('GET', KEYS[1]) or '', '^{"run":(%d+),'))
"""

_PUBLISH = (
    _READ_RUN
    + """
if run and run > tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
redis.call('PUBLISH', KEYS[1], ARGV[2])
return 1
"""
)
"""Writes a result unless that of a later run exists: a writer that read the ledger before a retry may come after it."""

_WITHDRAW = (
    _READ_RUN
    + """
if run == tonumber(ARGV[1]) then return redis.call('DEL', KEYS[1]) end
return 0
"""
)


class CeleryDoorbell:
    """``tasks.ports.Doorbell``; belongs to the event loop it is used on."""

    def __init__(self, app: Celery, redis_url: str, settings: Settings) -> None:
        self._app = app
        self._prefix = settings.key_prefix
        self._tenant_prefixes = settings.tenant_prefixes
        self._expires_s = int(settings.results_kept_s)
        self._redis = redis.Redis.from_url(
            redis_url,
            socket_timeout=ANSWER_S,
            socket_connect_timeout=ANSWER_S,
            socket_keepalive=True,
            health_check_interval=10,
            # A connection of before a restart is made again; a silent one is not waited for again.
            retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
        )
        self._publish = self._redis.register_script(_PUBLISH)
        self._withdraw = self._redis.register_script(_WITHDRAW)
        self._resting_until = float("-inf")
        # Celery's producer blocks; one thread is enough for some hundred messages a second.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="doorbell")
        self._is_loaded = False

    async def hint(self, step: Step, *, urgent: bool = False) -> None:
        """Sends a hint message."""
        async with self._answering("workers could not be woken over Redis"):
            if not self._is_loaded:
                # It says at once what is wrong; Celery would try again until the time is over.
                await self._redis.ping()
                await asyncio.wrap_future(self._thread.submit(self._load))
            # A send that did not begin in time is cancelled; one that did ends by its own socket timeout.
            async with asyncio.timeout(ANSWER_S):
                await asyncio.wrap_future(self._thread.submit(self._send, step, urgent))

    @asynccontextmanager
    async def _answering(self, problem: str) -> AsyncIterator[None]:
        """Translates errors of Redis, and refuses at once for a while after one."""
        clock = asyncio.get_running_loop().time
        if clock() < self._resting_until:
            raise BrokerUnavailable(f"{problem}: Redis did not answer a moment ago")
        try:
            yield
        except (RedisError, KombuError, OSError) as error:
            self._resting_until = clock() + REST_S
            reason = _REFUSED if isinstance(error, AuthenticationError) else str(error) or "no answer in time"
            raise BrokerUnavailable(f"{problem}: {reason}") from error

    def _load(self) -> None:
        """Imports what the first send needs, up to seconds on a busy machine that Redis is not to blame for."""
        _ = self._app.amqp.router
        with self._app.connection_for_write() as connection:
            _ = connection.transport_cls  # its modules; nothing connects yet
        self._is_loaded = True

    def _send(self, step: Step, urgent: bool) -> None:  # noqa: FBT001 - passed by position to a thread
        self._app.send_task(
            f"nightdesk.{step.value}",
            args=[urgent],
            queue=step.value,
            priority=URGENT if urgent else BULK,
            ignore_result=True,
            # Dispatch hints again; a send that retries by itself would block the thread for all others.
            retry=False,
        )

    async def unread_submissions(self) -> int:
        """The number of messages in the queue ``submit``, of the first priority."""
        async with self._redis.pipeline(transaction=False) as pipe:
            for prefix in ("", *self._tenant_prefixes.values()):
                pipe.llen(f"{self._prefix}{prefix}{SUBMIT_QUEUE}")
            return sum(await self._execute(pipe))

    async def publish(self, results: Sequence[Rendered]) -> dict[UUID, Exception]:
        """Writes results as Celery's backend would: the key of the task, and a message to its waiting callers.

        Not by ``store_result``: that makes two round trips a result, and refuses to replace a success when a job
        runs again.
        """
        refused: dict[UUID, Exception] = {}
        for at in range(0, len(results), PUBLISH_KEYS):
            page = results[at : at + PUBLISH_KEYS]
            async with self._redis.pipeline(transaction=False) as pipe:
                for job_id, run, result, tenant in page:
                    await self._publish(
                        keys=[self._key(job_id, tenant)],
                        args=[run, self._meta(job_id, run, result), self._expires_s],
                        client=pipe,
                    )
                answers = await self._execute(pipe, refusals=True)
            errors = {
                row[0]: answer for row, answer in zip(page, answers, strict=True) if isinstance(answer, Exception)
            }
            if errors and (len(errors) == len(page) > 1 or not all(is_refusal(error) for error in errors.values())):
                raise BrokerUnavailable(f"results could not be published: {next(iter(errors.values()))}")
            refused |= errors
        return refused

    async def withdraw(self, results: Sequence[tuple[UUID, int]]) -> None:
        """Deletes published results of these runs."""
        if results:
            async with self._redis.pipeline(transaction=False) as pipe:
                for job_id, run in results:
                    for key in self._keys(job_id):
                        await self._withdraw(keys=[key], args=[run], client=pipe)
                await self._execute(pipe)

    def _keys(self, job_id: UUID) -> list[bytes]:
        """The keys of a job whose tenant is not at hand."""
        return [self._key(job_id, tenant) for tenant in (None, *self._tenant_prefixes)]

    def _key(self, job_id: UUID, tenant: str | None) -> bytes:
        if (prefix := self._tenant_prefixes.get(tenant or "")) is not None:
            return result_key(f"{self._prefix}{prefix}", job_id).encode()
        # The backend itself puts the global key prefix before it.
        backend: Any = self._app.backend
        key: bytes = backend.get_key_for_task(str(job_id))
        return key

    def _meta(self, job_id: UUID, run: int, result: bytes) -> bytes:
        """The backend's envelope around a result that is JSON already; the scripts find the run at its beginning.

        A failed job is a success of its task, which only reports the outcome: ``get()`` returns, it never raises or hangs.
        """
        return orjson.dumps(
            {
                "run": run,
                "status": states.SUCCESS,
                "result": orjson.Fragment(result),
                "traceback": None,
                "children": [],
                "date_done": self._app.now().isoformat(),
                "task_id": str(job_id),
            }
        )

    async def forget(self, job_ids: Sequence[UUID]) -> None:
        """Deletes published results."""
        if job_ids:
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.delete(*(key for job_id in job_ids for key in self._keys(job_id)))
                await self._execute(pipe)

    async def lost_its_data(self) -> bool:
        """Tells whether the canary is missing or from before a restart.

        A restart counts although its data may be whole: with an append-only file up to a second of results is gone,
        with snapshots minutes. Publishing again is harmless.
        """
        run_id, canary = await self._canary()
        return canary != run_id

    async def remember(self) -> None:
        """Sets the canary: from now on the server counts as having our results."""
        run_id, _ = await self._canary()
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.set(f"{self._prefix}{CANARY}", run_id)
            await self._execute(pipe)

    async def _canary(self) -> tuple[bytes, bytes | None]:
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.info("server")
            # Not GET, which is refused where a producer wrote a list there.
            pipe.mget(f"{self._prefix}{CANARY}")
            info, (canary,) = await self._execute(pipe)
        return info["run_id"].encode(), canary

    async def _execute(self, pipe: Pipeline, *, refusals: bool = False) -> list[Any]:
        async with self._answering("Redis can't be reached"):
            answers: list[Any] = await pipe.execute(raise_on_error=not refusals)
        return answers

    async def close(self) -> None:
        """Closes the connections without a wait for a send to a silent Redis."""
        await self._redis.aclose()
        self._thread.shutdown(wait=False, cancel_futures=True)


@asynccontextmanager
async def ring(settings: Settings, redis_url: str) -> AsyncIterator[CeleryDoorbell]:
    """A doorbell for a command."""
    doorbell = CeleryDoorbell(make_app(settings, redis_url), redis_url, settings)
    try:
        yield doorbell
    finally:
        await doorbell.close()


# ---- hints and results of a worker -----------------------------------------------------------------------------------

PUBLISH_ROOM = 500
"""Most results that wait for Redis, of up to 64 KB each: the sweep publishes further ones."""

GATHER_S = 0.02
"""Seconds in which hints and results come together for one send."""

SWEEP_WAIT_S = 2.0
"""Seconds of a stopping worker for hints and results to Redis: the other workers' sweeps send the remaining ones."""


class Sender:
    """Sends the hints and the results of a worker; nothing waits for them, and the sweeps send what is left."""

    def __init__(
        self, doorbell: CeleryDoorbell, outbox: PostgresOutbox, tokens: TokenSink, local_is_served: Callable[[], bool]
    ) -> None:
        self._doorbell = doorbell
        self._outbox = outbox
        self._tokens = tokens
        self._local_is_served = local_is_served
        self._finals: list[Rendered] = []
        self._hints: set[HintKey] = set()
        self._sending: dict[Callable[[], Awaitable[None]], asyncio.Task[None]] = {}

    def final(self, final: FinalJob | PackedFinal) -> None:
        """Publishes the result of a job that became final here."""
        job = final.facts
        if job.streams:
            self._tokens.final(job)
        if len(self._finals) < PUBLISH_ROOM:
            # The compact result waits for Redis, not the request with its sources.
            result = final.result if isinstance(final, PackedFinal) else compact_final(final)
            self._finals.append(Rendered(job.job_id, job.run, result, job.tenant))
            self._begin(self._publish)

    def to_check(self, job: Leased) -> None:
        """Hints the check of a job whose answer is committed."""
        self.hint(HintKey(job.request.config.check_step, job.priority > 0))

    def hint(self, key: HintKey) -> None:
        """Hints a job whose step may begin."""
        self._hints.add(key)
        self._begin(self._send_hints)

    def _begin(self, send: Callable[[], Awaitable[None]]) -> None:
        if send not in self._sending:
            self._sending[send] = asyncio.create_task(self._go_on(send), name=send.__name__)

    async def _go_on(self, send: Callable[[], Awaitable[None]]) -> None:
        """Sends what came until nothing does; what can't be sent is left to the sweep."""
        await asyncio.sleep(GATHER_S)
        try:
            await send()
        except ServiceUnavailable as error:
            log.info("hints or results are left to the sweep: %s", error)
        except Exception:
            log.exception("hints or results could not be sent; the sweep will")
        finally:
            del self._sending[send]

    async def _publish(self) -> None:
        while self._finals:
            results, self._finals = self._finals, []
            await publish_results(self._outbox, self._doorbell, results)

    async def _send_hints(self) -> None:
        while self._hints:
            step, urgent = self._hints.pop()
            # Without a worker that has the model, messages for it would stay in Redis without end.
            if step is not Step.LOCAL or self._local_is_served():
                await self._doorbell.hint(step, urgent=urgent)

    async def close(self) -> None:
        """Sends what waits, for a short time."""
        if self._sending:
            _, late = await asyncio.wait(self._sending.values(), timeout=SWEEP_WAIT_S)
            for task in late:
                await cancel(task)
