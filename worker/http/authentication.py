"""Decides who calls: the tenant of a request, its role, and whether it may."""

import asyncio
import ipaddress
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fastapi import Request

from schemas.access import Role
from tasks.errors import ConfigurationError, LedgerError, ServiceUnavailable
from worker.http.access_log import WHY, Refusals
from worker.http.problems import Problem
from worker.http.shares import CALLER, Caller, take_share
from worker.ledger.stored_keys import ApiKey, ApiKeys, Use
from worker.operations.api_keys import hash_of

log = logging.getLogger(__name__)

VALID_S = 5.0
"""Seconds that a look at a key is good for: so late a revoked one ends."""

USE_WRITTEN_EACH_S = 60.0
"""Seconds from one note of a key's use to the next, of each process that serves."""

UNKNOWN_KEY = "its key is unknown, revoked or expired"

MOST_KEYS = 1_000
"""Keys remembered at once."""

LONGEST_KEY = 200
BURST_S = 10.0
"""Seconds of a key's pace that may come at once."""

KNOWN_S = 600.0
"""Seconds before the ledger went away in which a key must have been valid, to count as known meanwhile."""

PROXY_HEADERS = frozenset({
    "forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-remote-ip", "x-remote-addr", "x-proxyuser-ip",
    "x-original-host", "x-original-url", "x-original-forwarded-for", "x-host", "x-envoy-external-address",
    "x-azure-clientip", "x-appengine-user-ip", "true-client-ip", "client-ip", "fastly-client-ip", "fly-client-ip",
    "do-connecting-ip", "cf-connecting-ip", "cf-connecting-ipv6", "cf-ray", "cdn-loop", "x-amz-cf-id", "x-amzn-trace-id",
    "x-cloud-trace-context", "proxy-connection",
})  # fmt: skip
"""Headers that only a proxy or a network in front of a service adds, beside all that begin with ``X-Forwarded``."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?")
"""A name or an address, and a port."""


@dataclass(slots=True)
class _Look:
    key: ApiKey
    until: float
    ends_at: float
    """Time, by the monotonic clock, at which the secret is none of the key any more."""
    written_at: float = float("-inf")
    """Time at which its use was last written."""


class Access:
    """The callers of a service that listens on loopback, or anywhere."""

    def __init__(self, keys: ApiKeys, tenant: str, *, loopback: bool) -> None:
        self._keys = keys
        self._local = Caller(tenant, "local", Role.ADMIN)
        self._open = loopback
        """No key ever existed, so whatever runs on this machine may call; until there is one."""
        self._open_until = float("-inf")
        self._looks: OrderedDict[bytes, _Look] = OrderedDict()
        self._answered_at = float("-inf")
        """Time of the ledger's last answer about a key."""
        self._paces: dict[tuple[UUID, float], float] = {}
        self._turn = asyncio.Lock()
        self.refusals = Refusals()

    async def caller(self, request: Request) -> Caller:
        """The caller of a request; raises ``Problem``."""
        if await self.is_open():
            require_local(request)
            return self._local_caller(request)
        secret = _bearer(request)
        caller = None if secret is None else await self.caller_by_hash(request, hash_of(secret))
        if caller is None:
            request.scope[WHY] = "no key" if secret is None else UNKNOWN_KEY
            detail = "send a valid key in the header Authorization: Bearer KEY; 'nightdesk keys add' makes one"
            raise _unauthorized(detail)
        return caller

    def _local_caller(self, request: Request) -> Caller:
        request.scope[CALLER] = self._local
        return self._local

    async def require_direct(self, request: Request) -> None:
        """Refuses what came through a proxy while no key is needed, whatever it asks for; raises ``Problem``."""
        if proxy_sign(request) is None:
            return
        try:
            is_open = await self.is_open()
        except (ServiceUnavailable, LedgerError):
            is_open = self._open
        if is_open:
            require_local(request)

    async def caller_as_known(self, request: Request) -> Caller:
        """The caller of a request; while the ledger is away, as this process last knew the key. Raises ``Problem``.

        Only for what shows nothing that the same key has not seen: a key revoked in the last minutes before is not noticed.
        """
        try:
            return await self.caller(request)
        except (ServiceUnavailable, LedgerError):
            if self._open:
                require_local(request)
                return self._local_caller(request)
            secret = _bearer(request)
            key_hash = b"" if secret is None else hash_of(secret)
            look = self._looks.get(key_hash)
            if look is None or look.until < self._answered_at - KNOWN_S or look.ends_at <= time.monotonic():
                raise
            return self._let_in(request, look.key, key_hash)

    async def caller_by_hash(self, request: Request, key_hash: bytes) -> Caller | None:
        """The caller with a key of this hash; None where there is none. Raises ``Problem`` beyond the key's pace."""
        key = await self._key(key_hash)
        return None if key is None else self._let_in(request, key, key_hash)

    def _let_in(self, request: Request, key: ApiKey, key_hash: bytes) -> Caller:
        caller = request.scope[CALLER] = Caller(key.tenant, key.name, key.role, key_hash, key.submitter)
        self._pace(key)
        return caller

    async def is_valid(self, caller: Caller) -> bool:
        """Tells whether one who was let in may go on: the key was not revoked meanwhile, or still none is needed."""
        if caller.key_hash is None:
            return await self.is_open()
        return await self._key(caller.key_hash) is not None

    async def require_valid(self, caller: Caller) -> None:
        """Refuses one who may not go on; raises ``Problem``."""
        if not await self.is_valid(caller):
            raise _unauthorized("the key was revoked while this request waited, or keys are needed now")

    async def is_open(self) -> bool:
        """Tells whether no key is needed. Once there was one, it stays so that one is."""
        if self._is_due():
            async with self._turn:
                # Another request may have asked meanwhile.
                if self._is_due():
                    self._open = not await self._keys.exist()
                    self._open_until = time.monotonic() + VALID_S
        return self._open

    def _is_due(self) -> bool:
        return self._open and time.monotonic() > self._open_until

    async def _key(self, key_hash: bytes) -> ApiKey | None:
        look = self._looks.get(key_hash)
        if look is None or time.monotonic() > look.until:
            use = await self._keys.by_hash(key_hash)
            now = self._answered_at = time.monotonic()
            if use is None:
                self._looks.pop(key_hash, None)
                return None
            ends_at = float("inf") if use.ends_in_s is None else now + use.ends_in_s
            written_at = look.written_at if look else float("-inf")
            look = self._looks[key_hash] = _Look(use.key, min(now + VALID_S, ends_at), ends_at, written_at)
            while len(self._looks) > MOST_KEYS:
                self._looks.popitem(last=False)
            if now - written_at >= USE_WRITTEN_EACH_S:
                look.written_at = now
                await self._note_use(use)
        return look.key

    async def _note_use(self, use: Use) -> None:
        try:
            await self._keys.note_use(use)
        except (ServiceUnavailable, LedgerError) as error:
            # Whoever may read does so also where nothing can be written: a full disk, a standby.
            log.warning("the last use of the key %s could not be written: %s", use.key.name, error)

    def _pace(self, key: ApiKey) -> None:
        """Lets a key's requests through at its paces, each with a burst; raises ``Problem`` beyond one."""
        now = time.monotonic()
        paces = (
            (key.requests_per_second, 1.0, 1.0, "second"),
            (key.requests_per_minute, 60.0, BURST_S, "minute"),
        )
        after: dict[tuple[UUID, float], float] = {}
        for requests, unit_s, burst_s, word in paces:
            if requests is None:
                continue
            due, apart_s = max(self._paces.get((key.id, unit_s), now), now), unit_s / requests
            if due - now > max(burst_s, apart_s) - apart_s:
                headers = {"Retry-After": str(max(1, round(due - now - burst_s + apart_s)))}
                detail = f"the key {key.name!r} may make {requests} requests a {word}; try again later"
                raise Problem(429, "too-many-requests", "Too many requests", detail, headers=headers)
            after[key.id, unit_s] = due + apart_s
        self._paces |= after


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "unauthorized", "Unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})


def _bearer(request: Request) -> str | None:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" and 0 < len(secret) <= LONGEST_KEY else None


async def check_reach(keys: ApiKeys, host: str) -> bool:
    """Tells whether no key is needed on an address; raises ``ConfigurationError`` where anybody could then do anything."""
    if await keys.exist():
        return False
    if not is_loopback(host):
        raise ConfigurationError(
            f"{host} is reached from other machines, and there is no key yet: make one with 'nightdesk keys add NAME', "
            "or leave --host out"
        )
    return True


def proxy_sign(request: Request) -> str | None:
    """The first sign that a request came through a proxy, and so perhaps from anywhere; None where there is none."""
    for name in request.headers:
        plain = name.replace("_", "-")
        if plain in PROXY_HEADERS or plain.startswith("x-forwarded"):
            return f"the header {name}"
    # Clients on this machine speak 1.1; a proxy that sends no header of its own often does not.
    return "HTTP/1.0" if request.scope.get("http_version") == "1.0" else None


def require_local(request: Request) -> None:
    """Refuses what may come from elsewhere: through a proxy, under another name of this machine, from a page in a browser."""
    if sign := proxy_sign(request):
        detail = (
            f"this request came through a proxy ({sign}), and without keys this service answers programs on its own machine "
            "alone: make a key with 'nightdesk keys add NAME', and send it in the header Authorization: Bearer KEY"
        )
        raise Problem(421, "misdirected", "Misdirected request", detail)
    # As it was sent: the framework puts its own address in place of a host that it can't read.
    host = ", ".join(request.headers.getlist("host"))
    match = _HOST.fullmatch(host)
    if match is None or not is_loopback(match[1]):
        detail = f"without keys this service answers only under a loopback address or localhost, not {host[:100]!r}"
        raise Problem(421, "misdirected", "Misdirected request", detail)
    origin = request.headers.get("origin")
    if origin is not None and origin != f"{request.scope['scheme']}://{host}":
        raise Problem(403, "foreign-origin", "Forbidden", "without keys no other page may call this service")


def is_loopback(host: str) -> bool:
    """Tells whether a name or an address leads to this machine alone."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_right(caller: Caller, right: Role) -> None:
    """Refuses a caller whose role does not include a right; raises ``Problem``."""
    if not caller.role.includes(right):
        detail = f"the key {caller.name!r} has the role {caller.role.value}, and this needs {right.value}"
        raise Problem(403, "forbidden", "Forbidden", detail)


def requires(right: Role, *, as_known: bool = False) -> Callable[[Request], Coroutine[Any, Any, Caller]]:
    """A dependency of routes: the caller, who has this right; ``as_known`` also while the ledger is away."""

    async def caller_of(request: Request) -> Caller:
        access: Access = request.app.state.service.access
        caller: Caller | None = request.scope.get(CALLER)
        if caller is None:
            caller = await (access.caller_as_known(request) if as_known else access.caller(request))
        require_right(caller, right)
        # The figures of the service are read under any load.
        if not as_known:
            take_share(request, caller)
        return caller

    return caller_of
