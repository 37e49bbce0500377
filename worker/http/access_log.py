"""Logs what is no request, refused requests of nobody known, and, where the setting asks for it, who read what, each with the address."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.requests import HTTPConnection
from starlette.types import Scope

from worker.http.problems import REQUEST_ID
from worker.http.shares import CALLER

refusals = logging.getLogger("nightdesk.refused")
reads = logging.getLogger("nightdesk.access")

WHY = "nightdesk.why"
"""Key of the scope of a request without a valid key: what is wrong with it."""

EACH_S = 60.0
"""Seconds from one line about an address to its next, which counts the refusals between."""
MOST_ADDRESSES = 1_000
"""Addresses with a line in the last minute; beyond, refusals of others are only counted: what a proxy says can be made up."""
_LONGEST = 200
"""Characters of a path, or of what a proxy says of its client, in a line."""


class Refusals:
    """Logs refused requests of nobody known, at most one line an address and minute: whoever tries keys fills no disk."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._unnamed = 0
        """Refusals without a line since the last one, of addresses beyond the most."""

    def note(self, request: HTTPConnection, why: str) -> None:
        """Logs a refused request, or counts it."""
        what = f"{request.scope.get('method', '')} {request.url.path!r:.200}"
        self.tell(what, address_of(request), why, request.scope.get(REQUEST_ID))

    def tell(self, what: str, address: str, why: str, request_id: str | None) -> None:
        """Logs what an address sent, or counts it."""
        now = self._clock()
        told_at, untold = self._lines.get(address, (float("-inf"), 0))
        if now - told_at < EACH_S:
            self._lines[address] = told_at, untold + 1
            return
        self._lines.pop(address, None)
        if len(self._lines) >= MOST_ADDRESSES:
            (oldest_at, _) = next(iter(self._lines.values()))
            if now - oldest_at < EACH_S:
                self._unnamed += 1
                return
            self._lines.popitem(last=False)
        more = f"; {untold:,} more since the last line about it" if untold else ""
        if self._unnamed:
            more += f"; {self._unnamed:,} of other addresses that have no line"
            self._unnamed = 0
        refusals.warning(
            "refused %s from %s: %s%s", what, address, why, more,
            extra={"address": address, "untold": untold, "request_id": request_id},
        )  # fmt: skip
        self._lines[address] = now, 0


def address_of(request: HTTPConnection) -> str:
    """The address of the other side, and behind a proxy also what that says of its client, which anybody can send."""
    address = request.client.host if request.client else "an unknown address"
    forwarded = request.headers.get("x-forwarded-for") or request.headers.get("forwarded")
    return f"{address} (for {forwarded[:_LONGEST]!r})" if forwarded else address


def note_read(scope: Scope, status: int) -> None:
    """Logs an answered request of a caller: key, tenant, address, route, ids, status."""
    if (caller := scope.get(CALLER)) is None:
        return
    request = HTTPConnection(scope)
    fields = {
        "key": caller.name,
        "tenant": caller.tenant,
        "address": address_of(request),
        "method": scope["method"],
        "path": request.url.path[:_LONGEST],
        "query": request.url.query[:_LONGEST],
        "route": getattr(scope.get("route"), "path", "none"),
        "status": status,
        "request_id": scope.get(REQUEST_ID),
    }
    words = "key %(key)s of %(tenant)s from %(address)s: %(method)s %(path)s %(query)s %(status)s (%(request_id)s)"
    reads.info(words, fields, extra=fields)
