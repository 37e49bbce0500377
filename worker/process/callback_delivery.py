"""Delivers the callbacks of settled batches, signed as Standard Webhooks has it, until their receiver has taken them."""

import asyncio
import logging
import socket
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from threading import Thread
from time import monotonic
from typing import Any

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver, ResolveResult
from standardwebhooks import Webhook

from schemas.batch import BatchStatus
from tasks.errors import NightdeskError
from worker.cancellation import cancel, is_set_within
from worker.ledger.callbacks import Bounds, Callbacks, DueCallback, cost_text
from worker.public_address import PrivateAddressError, is_public, literal_of

log = logging.getLogger(__name__)

EVERY_S = 2.0
"""Seconds between two looks for callbacks that are due."""

PAUSES = tuple(timedelta(seconds=seconds) for seconds in (5, 60, 300, 1_800, 7_200, 18_000, 36_000, 86_400))
"""Pauses after failed tries, 41 hours in all; after one try more a callback is given up."""

WITHOUT_SECRET = timedelta(minutes=1)

MOST_REMEMBERED = 1_000
"""Tenants whose last turn is remembered."""

TIMEOUT = aiohttp.ClientTimeout(total=15.0)


class Resolver(AbstractResolver):
    """Looks names up for the one connection that uses the result; refuses those that lead to a private network, unless allowed.

    Each has a thread of its own: the loop looks up two names at a time, those of providers too, and a tenant's name server may be silent.
    """

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a name; raises ``PrivateAddressError`` where one of them is not public."""
        answer: Future[Any] = Future()
        # One that is not waited for any more still ends.
        answer.set_running_or_notify_cancel()
        Thread(target=_look_up, args=(answer, host, port, family), name="name of a callback", daemon=True).start()
        results = [
            ResolveResult(
                hostname=host,
                host=address[0],
                port=address[1],
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in await asyncio.wrap_future(answer)
        ]
        for result in results:
            if not self._allow_private and not is_public(result["host"]):
                raise PrivateAddressError(f"{host} is {result['host']}, which is no public address")
        return results

    async def close(self) -> None:
        """Nothing is open."""


def _look_up(answer: "Future[Any]", host: str, port: int, family: socket.AddressFamily) -> None:
    try:
        answer.set_result(
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG)
        )
    except Exception as error:  # noqa: BLE001 - it is raised where the name is needed
        answer.set_exception(error)


@dataclass(slots=True)
class Delivery:
    """Delivers callbacks where this worker leads; each at least once, so that a receiver may see one again by its id."""

    callbacks: Callbacks
    secret: str | None
    allow_private: bool
    leads: Callable[[], bool] = lambda: True
    bounds: Bounds = field(default_factory=Bounds)
    _tries: "dict[asyncio.Task[None], DueCallback]" = field(default_factory=dict)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _served: dict[str, int] = field(default_factory=dict)
    """The last turn of each tenant, oldest first."""
    _turn: int = 0
    _settle_at: float = float("-inf")

    async def run(self) -> None:
        """Delivers what is due until cancelled."""
        try:
            while True:
                if self.leads():
                    await self._round()
                # The end of a try leaves room for another.
                await is_set_within(self._ended, EVERY_S)
                self._ended.clear()
        finally:
            await asyncio.gather(*map(cancel, list(self._tries)), return_exceptions=True)

    async def _round(self) -> None:
        try:
            if (now := monotonic()) >= self._settle_at:
                self._settle_at = now + EVERY_S
                await self.callbacks.settle()
            await self._begin()
        except NightdeskError as error:
            log.warning("callbacks wait for the ledger: %s", error)
        except Exception:
            log.exception("delivering callbacks broke and is tried again")

    async def deliver(self) -> None:
        """Tries all callbacks that are due, until none is."""
        await self.callbacks.settle()
        while await self._begin() or self._tries:
            await asyncio.wait(self._tries, return_when=asyncio.FIRST_COMPLETED)

    async def _begin(self) -> bool:
        """Begins the tries that there is room for; none waits for another. Tells if there were some."""
        due = await self.callbacks.take(self._tries.values(), self._served, self.bounds)
        for callback in due:
            self._turn += 1
            self._served.pop(callback.tenant, None)
            self._served[callback.tenant] = self._turn
            task = asyncio.create_task(self._guarded(callback), name=f"callback of {callback.batch_id}")
            self._tries[task] = callback
            task.add_done_callback(self._end)
        for tenant in list(self._served)[:-MOST_REMEMBERED]:
            del self._served[tenant]
        return bool(due)

    def _end(self, task: "asyncio.Task[None]") -> None:
        del self._tries[task]
        self._ended.set()

    async def _guarded(self, callback: DueCallback) -> None:
        try:
            await self._try(callback)
        except NightdeskError as error:
            log.warning("the callback of batch %s waits for the ledger: %s", callback.batch_id, error)
        except Exception:
            log.exception("the callback of batch %s broke and is tried again", callback.batch_id)

    async def _try(self, callback: DueCallback) -> None:
        if self.secret is None:
            missing = "the workers have no NIGHTDESK_CALLBACK_SECRET to sign it with; set it and restart them"
            await self.callbacks.note(callback.batch_id, missing, WITHOUT_SECRET, tried=False)
            return
        status = await self.callbacks.status(callback.batch_id)
        error, final = await self._post(callback, status, Webhook(self.secret))
        pause = None if error is None or final or callback.tries >= len(PAUSES) else PAUSES[callback.tries]
        await self.callbacks.note(callback.batch_id, error, pause)
        if error is not None:
            outcome = "is given up" if pause is None else f"is tried again in {pause}"
            log.warning("the callback of batch %s %s: %s", callback.batch_id, outcome, error)

    async def _post(self, callback: DueCallback, status: BatchStatus, webhook: Webhook) -> tuple[str | None, bool]:
        """Posts a callback once; returns its error, None without one, and whether no further try makes sense."""
        literal = literal_of(callback.url)
        if not self.allow_private and literal is not None and not is_public(literal):
            return f"{literal} is no public address", False
        body = body_of(callback, status)
        message_id, now = f"msg_{callback.batch_id.hex}", callback.taken_at
        headers = {
            "content-type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": webhook.sign(message_id, now, body.decode()),
        }
        resolver = Resolver(allow_private=self.allow_private)
        # A connection for each try: no name is resolved again behind its back, and no proxy connects elsewhere.
        connector = aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, force_close=True)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=TIMEOUT, trust_env=False) as session,
                session.post(callback.url, data=body, headers=headers, allow_redirects=False) as response,
            ):
                return _error_of(response.status), response.status == HTTPStatus.GONE
        except PrivateAddressError as error:
            return str(error), False
        except TimeoutError:
            return f"no answer within {TIMEOUT.total:.0f} s", False
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return _reason(error), False


def body_of(callback: DueCallback, status: BatchStatus) -> bytes:
    """The body of a callback: the counts and the cost of its batch."""
    data = {
        "batch_id": str(callback.batch_id),
        "name": status.name,
        "key": status.key,
        "tenant": status.tenant,
        "jobs": status.jobs,
        "states": {state.value: jobs for state, jobs in status.states.items()},
        "outcomes": {outcome.value: jobs for outcome, jobs in status.outcomes.items()},
        "cost_usd": cost_text(status.spent_usd),
    }
    return orjson.dumps({"type": "batch.settled", "timestamp": callback.settled_at.isoformat(), "data": data})


def _error_of(status: int) -> str | None:
    if 200 <= status < 300:  # noqa: PLR2004 - success
        return None
    note = "; redirects are not followed" if 300 <= status < 400 else ""  # noqa: PLR2004
    return f"the receiver answered {status}{note}"


def _reason(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error.__cause__, PrivateAddressError) else error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0][:300]
