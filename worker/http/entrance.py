"""Guards every address alike: one ``Host``, nothing through a proxy while no key is needed, a share of the requests for each key."""

from typing import Any

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from worker.http.authentication import Access
from worker.http.problems import Problem, answer_problem
from worker.http.shares import BYTES, SHARE

PROBES = ("/healthz", "/readyz")
"""Addresses that tell nothing of anybody; a load balancer asks for them."""


class Entrance:
    """Lets requests in, and gives the share of each back at its end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or answers it with a problem."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        service: Any = scope["app"].state.service
        try:
            await _check(request, service.access)
        except Problem as problem:
            answer = await answer_problem(request, problem)
            await answer(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            if SHARE in scope:
                service.shares.give_back(scope[SHARE], scope.get(BYTES, 0))


async def _check(request: Request, access: Access) -> None:
    hosts = len(request.headers.getlist("host"))
    if hosts > 1 or (hosts == 0 and request.scope["http_version"] != "1.0"):
        detail = f"a request has one header Host, not {hosts or 'none'}; send the name and port of this service"
        raise Problem(400, "invalid-http", "Invalid HTTP", detail, headers={"Connection": "close"})
    if request.scope["path"] not in PROBES:
        await access.require_direct(request)
