"""Guards every address alike: one ``Host``, nothing through a proxy while no key is needed, a share of the requests for each key."""

import time
from http import HTTPStatus

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from worker.http.access_log import WHY, note_read
from worker.http.authentication import Access
from worker.http.problems import Problem, answer_problem
from worker.http.shares import BYTES, CALLER, SHARE, busy

PROBES = ("/healthz", "/readyz")
"""Addresses that tell nothing of anybody; a load balancer asks for them."""

ALWAYS = (*PROBES, "/metrics")
"""Addresses that answer under any load: a supervisor must not end a service because it is busy."""

IS_BUSY = "nightdesk.is_busy"
"""Key of the scope of a request that came while as many were in progress as the process holds."""


class Entrance:
    """Lets requests in, counts them, and gives the share of each back at its end; logs the callers' where a setting asks for it."""

    def __init__(self, app: ASGIApp, *, access_log: bool) -> None:
        self._app = app
        self._access_log = access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers it with a problem."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request, service = Request(scope), scope["app"].state.service
        status, began = 500, time.perf_counter()

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self._access_log:
                    note_read(scope, status)
                if CALLER not in scope and status >= HTTPStatus.BAD_REQUEST and scope["path"] not in PROBES:
                    service.access.refusals.note(request, scope.get(WHY, f"answered {status}"))
            await send(message)

        with service.metrics.open_requests.track_inprogress():
            try:
                await _check(request, service.access)
            except Problem as problem:
                answer = await answer_problem(request, problem)
                await answer(scope, receive, note)
            else:
                await self._app(scope, receive, note)
            finally:
                if SHARE in scope:
                    service.shares.give_back(scope[SHARE], scope.get(BYTES, 0))
                service.metrics.note(scope, status, time.perf_counter() - began)


async def _check(request: Request, access: Access) -> None:
    if IS_BUSY in request.scope and request.scope["path"] not in ALWAYS:
        raise busy()
    hosts = len(request.headers.getlist("host"))
    if hosts > 1 or (hosts == 0 and request.scope["http_version"] != "1.0"):
        detail = f"a request has one header Host, not {hosts or 'none'}; send the name and port of this service"
        raise Problem(400, "invalid-http", "Invalid HTTP", detail, headers={"Connection": "close"})
    if request.scope["path"] not in PROBES:
        await access.require_direct(request)
