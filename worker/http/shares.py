"""Shares the requests in progress among keys and tenants, so that none takes all places."""

from collections import Counter
from typing import TYPE_CHECKING
from uuid import UUID

from fastapi import Request

from worker.http.problems import RETRY_S, Problem

if TYPE_CHECKING:
    from worker.http.authentication import Caller

SHARE = "nightdesk.share"
"""Key of the scope of a request: the caller whose share it takes."""


class Shares:
    """Counts the requests in progress of each tenant and key: polls that wait and streams are most of them.

    A tenant may have as many as are still free, and a key half as many. So the first tenant has half of the places at most, the next
    one a third, and there is always room for one more.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: Counter[str | UUID] = Counter()
        self._total = 0

    def take(self, caller: "Caller") -> None:
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

    def give_back(self, caller: "Caller") -> None:
        """Ends the count of a request."""
        self._total -= 1
        if caller.submitter is not None:
            for holder in (caller.tenant, caller.submitter.key_id):
                self._counts[holder] -= 1
                if not self._counts[holder]:
                    del self._counts[holder]


def take_share(request: Request, caller: "Caller") -> None:
    """Counts a request against its caller's share until it is answered; raises ``Problem``."""
    if SHARE not in request.scope:
        request.app.state.service.shares.take(caller)
        request.scope[SHARE] = caller


def busy() -> Problem:
    """The answer when all places are taken."""
    detail = "as many requests are in progress as the service takes (NIGHTDESK_HTTP_MAX_CONNECTIONS); try again in some seconds"
    headers = {"Retry-After": str(RETRY_S), "Connection": "close"}
    return Problem(503, "busy", "Busy", detail, headers=headers)
