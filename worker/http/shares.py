"""Shares the requests in progress among keys and tenants, so that none takes all places."""

from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

from fastapi import Request

from schemas.access import Role
from tasks.ports import Submitter
from worker.http.problems import RETRY_S, Problem

CALLER = "nightdesk.caller"
"""Key of the scope of a request: the caller, once the key is known, whether or not it may do what it asks for."""

SHARE = "nightdesk.share"
"""Key of the scope of a request: the caller whose share it takes."""

BYTES = "nightdesk.bytes"
"""Key of the scope of a request: the bytes that are kept of its body, or of its answer."""

STREAM_BYTES = 32_000_000
"""That an export counts for: a slow reader has it keep a large result, and what is made of it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The one who sent a request."""

    tenant: str
    name: str
    """Stands in the events of the ledger."""
    role: Role
    key_hash: bytes | None = field(default=None, repr=False)
    """None: no key was needed."""
    submitter: Submitter | None = None
    """The key with its limits on jobs; None: no key was needed."""


class Shares:
    """Counts the requests in progress of each tenant and key: polls that wait and streams are most of them.

    A tenant may have as many as are still free, and a key half as many. So the first tenant has half of the places at most, the next
    one a third, and there is always room for one more.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes: Counter[str] = Counter()
        self._counts: Counter[str | UUID] = Counter()
        self._total = 0

    def take(self, caller: Caller) -> None:
        """Counts a request; raises ``Problem`` beyond the share. A key always has room for one."""
        if caller.submitter is None:
            if self._total >= self._most:
                raise busy()
            self._total += 1
            return
        free = self._most - self._total - 1
        tenant, key = self._counts[caller.tenant] + 1, self._counts[caller.submitter.key_id] + 1
        if key > 1 and (tenant > free or 2 * key > free):
            detail = (
                f"the key {caller.name!r} has {key - 1:,} requests in progress and its tenant {tenant - 1:,}: that is their share of "
                "NIGHTDESK_HTTP_MAX_CONNECTIONS. Let some end, polls that wait or streams, and try again"
            )
            headers = {"Retry-After": str(RETRY_S)}
            raise Problem(429, "too-many-in-progress", "Too many requests in progress", detail, headers=headers)
        self._counts.update((caller.tenant, caller.submitter.key_id))
        self._total += 1

    def take_bytes(self, caller: Caller, size: int) -> None:
        """Counts bytes in memory or on disk; raises ``Problem`` where its tenant's requests hold too many together.

        A tenant always has room for one answer, however large.
        """
        if (before := self._bytes[caller.tenant]) and before + size > self._most_bytes:
            detail = (
                f"what this tenant sends and reads at the moment holds more than {self._most_bytes:,} bytes together "
                "(NIGHTDESK_HTTP_MAX_BODY_BYTES); one after another"
            )
            headers = {"Retry-After": str(RETRY_S), "Connection": "close"}
            raise Problem(429, "too-much-in-progress", "Too much in progress", detail, headers=headers)
        self._bytes[caller.tenant] += size

    def give_back(self, caller: Caller, size: int) -> None:
        """Ends the count of a request, and of the bytes of its body."""
        self._total -= 1
        self._bytes[caller.tenant] -= size
        if not self._bytes[caller.tenant]:
            del self._bytes[caller.tenant]
        if caller.submitter is not None:
            for holder in (caller.tenant, caller.submitter.key_id):
                self._counts[holder] -= 1
                if not self._counts[holder]:
                    del self._counts[holder]


def take_share(request: Request, caller: Caller) -> None:
    """Counts a request against its caller's share until it is answered; raises ``Problem``."""
    if SHARE not in request.scope:
        request.app.state.service.shares.take(caller)
        request.scope[SHARE] = caller


def take_bytes(request: Request, size: int) -> None:
    """Counts bytes that are kept of a request's body, or answer, until that is read; raises ``Problem``."""
    if SHARE in request.scope:
        request.app.state.service.shares.take_bytes(request.scope[SHARE], size)
        request.scope[BYTES] = request.scope.get(BYTES, 0) + size


def busy() -> Problem:
    """The answer when all places are taken."""
    detail = "as many requests are in progress as the service takes (NIGHTDESK_HTTP_MAX_CONNECTIONS); try again in some seconds"
    headers = {"Retry-After": str(RETRY_S), "Connection": "close"}
    return Problem(503, "busy", "Busy", detail, headers=headers)
