"""Responses in the background as OpenAI's SDK speaks them: queued, under way, and each kind of end."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson
from aiohttp import web

from tests.stub.answers import ANSWERS

PATH = "/v1/responses"


@dataclass
class BackgroundResponse:
    id: str
    body: bytes
    ends_at: float
    fate: str = "completed"
    """``completed``, ``incomplete``, ``failed``, ``expired`` or ``cancelled``."""
    fated: bool = False

    @property
    def ended(self) -> bool:
        return time.monotonic() >= self.ends_at


@dataclass
class BackgroundStub:
    """The background of the stub.

    Attributes:
        ends_after_s: time from the creation of a response to its end; the first half of it is queued.
        failed: share of the responses that fail; ``incomplete``: that break off; ``expired``: that are not done in time.
        late: share of the cancels that find the response done.
        stalls: the next request of each of these kinds does its work and is never answered: ``create``, ``check``, ``cancel``;
            ``arrive`` is a creation that is never looked at.
        checks_before_stall: answered checks before the one that stalls.
        most_at_once: most checks that were under way together.
        stalled: set by such a request.
        removed: ids of the responses that were removed from the store; ``lose`` does so, too.
    """

    count: Callable[[str, bytes, bool], None]
    ends_after_s: float = 0.5
    failed: float = 0.0
    incomplete: float = 0.0
    expired: float = 0.0
    late: float = 0.0
    refuses: str = ""
    """Message of the 400 with which every creation is refused."""
    check_s: float = 0.0
    """Time that a check takes."""
    stalls: set[str] = field(default_factory=set)
    checks_before_stall: int = 0
    stalled: threading.Event = field(default_factory=threading.Event)
    responses: dict[str, BackgroundResponse] = field(default_factory=dict)
    creations: Counter[bytes] = field(default_factory=Counter)
    cancels: list[str] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)
    checks: int = 0
    most_at_once: int = 0
    _at_once: int = 0
    _random: Random = field(default_factory=lambda: Random(13))

    def routes(self) -> list[web.RouteDef]:
        """The routes beside the creation."""
        return [
            web.get(PATH + "/{id}", self.show),
            web.post(PATH + "/{id}/cancel", self.cancel),
            web.delete(PATH + "/{id}", self.remove),
        ]

    async def create(self, body: bytes) -> web.Response:
        """Take one creation."""
        order = orjson.loads(body)
        await self._stall("arrive")
        assert order["store"] is True
        assert order["background_options"]["completion_window"] in {"2h", "8h"}
        assert not order.get("stream")
        assert order.get("service_tier", "default") == "default"
        if self.refuses:
            error = {"message": self.refuses, "type": "invalid_request_error", "code": None, "param": None}
            return web.json_response({"error": error}, status=400)
        self.creations[body] += 1
        response = BackgroundResponse(f"resp_bg_{len(self.responses)}", body, time.monotonic() + self.ends_after_s)
        self.responses[response.id] = response
        await self._stall("create")
        return web.json_response(self.form(response))

    def form(self, response: BackgroundResponse) -> dict[str, Any]:
        """The response as its API shows it."""
        self._decide(response)
        order = orjson.loads(response.body)
        value = {
            **ANSWERS[PATH](order),
            "id": response.id,
            "background": True,
            "background_options": order["background_options"],
            "store": True,
            "status": response.fate,
        }
        if response.ended and response.fate == "completed":
            return value
        if response.ended and response.fate == "incomplete":
            return value | {"incomplete_details": {"reason": "max_output_tokens"}}
        value |= {"output": [], "usage": None}
        if not response.ended:
            begins = response.ends_at - self.ends_after_s / 2
            return value | {"status": "in_progress" if time.monotonic() >= begins else "queued"}
        if response.fate != "cancelled":
            code = "response_expired" if response.fate == "expired" else "server_error"
            value |= {"status": "failed", "error": {"code": code, "message": "The response could not be completed."}}
        return value

    def _decide(self, response: BackgroundResponse) -> None:
        """Decide once what a response comes to; what was answered is charged."""
        if response.fated or not response.ended:
            return
        response.fated = True
        draw = self._random.random()
        for fate in ("failed", "incomplete", "expired") if response.fate == "completed" else ():
            share = getattr(self, fate)
            if 0 <= draw < share:
                response.fate = fate
            draw -= share
        self.count(PATH, response.body, response.fate in {"completed", "incomplete"})

    async def show(self, request: web.Request) -> web.Response:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            if (response := self._response(request)) is None:
                return _unknown(request)
            self.checks += 1
            await asyncio.sleep(self.check_s)
            if self.checks > self.checks_before_stall and response.ended:
                await self._stall("check")
            return web.json_response(self.form(response))
        finally:
            self._at_once -= 1

    async def cancel(self, request: web.Request) -> web.Response:
        if (response := self._response(request)) is None:
            return _unknown(request)
        self.cancels.append(response.id)
        if not response.ended:
            if self._random.random() >= self.late:
                response.fate = "cancelled"
            response.ends_at = time.monotonic()
        await self._stall("cancel")
        return web.json_response(self.form(response))

    async def remove(self, request: web.Request) -> web.Response:
        if self._response(request) is None:
            return _unknown(request)
        self.removed.add(request.match_info["id"])
        return web.json_response({"id": request.match_info["id"], "object": "response", "deleted": True})

    def _response(self, request: web.Request) -> BackgroundResponse | None:
        name = request.match_info["id"]
        return None if name in self.removed else self.responses.get(name)

    async def _stall(self, kind: str) -> None:
        if kind in self.stalls:
            self.stalls.discard(kind)
            self.stalled.set()
            await asyncio.Event().wait()


def _unknown(request: web.Request) -> web.Response:
    message = f"Response with id '{request.match_info['id']}' not found."
    error = {"message": message, "type": "invalid_request_error", "code": None, "param": None}
    return web.json_response({"error": error}, status=404)
