"""Fetches and cancels responses in OpenAI's background by its Responses API."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson

from schemas.failure import Failure, FailureKind
from tasks.errors import ProviderError, failure_of
from tasks.ports.remote_batches import RemoteResponses, RemoteResult
from worker.providers.adapter import SHAPELESS, Adapter, OfAdapter

UNDER_WAY = frozenset({"queued", "in_progress"})
WITHIN_S = 60.0
"""Time limit of a request."""


class OpenAIBackground(OfAdapter, RemoteResponses):
    """See ``tasks.ports.remote_batches.RemoteResponses``. Source: OpenAI's guide to background mode (2026-11)."""

    def __init__(self, adapter: Adapter, usd_of: Callable[[dict[str, Any]], Decimal | None]) -> None:
        super().__init__(adapter)
        self._usd_of = usd_of

    async def check(self, remote_id: str) -> RemoteResult | None:
        """See the port."""
        return await self._fetch(self._client.responses.with_raw_response.retrieve, remote_id)

    async def cancel(self, remote_id: str) -> RemoteResult | None:
        """See the port; a second cancel returns the response as it ended."""
        try:
            return await self._fetch(self._client.responses.with_raw_response.cancel, remote_id)
        except ProviderError as error:
            if error.kind is not FailureKind.INVALID_REQUEST:
                raise
            # It ended before it could be cancelled.
            return await self.check(remote_id)

    async def _fetch(self, request: Any, remote_id: str) -> RemoteResult | None:
        with self._adapter.translating():
            fetched = await request(remote_id, timeout=WITHIN_S)
        response = fetched.http_response
        try:
            return self._result(remote_id, response.content, fetched.headers.get("x-request-id"))
        except SHAPELESS as error:
            raise self._adapter.failures.bad_answer(response, f"an unknown shape ({type(error).__name__})") from None

    def _result(self, remote_id: str, body: bytes, request_id: str | None) -> RemoteResult | None:
        value = orjson.loads(body)
        status = value["status"]
        if status in UNDER_WAY:
            return None
        if status == "cancelled":
            message = f"the response {remote_id} was cancelled before it was done"
            return self._unfinished(remote_id, FailureKind.CANCELLED, message, value)
        code = str((value.get("error") or {}).get("code"))
        if status == "failed" and code.endswith("expired"):
            message = f"the response {remote_id} expired at the provider ({code})"
            return self._unfinished(remote_id, FailureKind.EXPIRED, message, value)
        return RemoteResult(remote_id, 200, body, request_id)

    def _unfinished(self, remote_id: str, kind: FailureKind, message: str, value: dict[str, Any]) -> RemoteResult:
        failure: Failure = failure_of(ProviderError(kind, message))
        return RemoteResult(remote_id, failure=failure, cost_usd=self._usd_of(value))

    async def forget(self, remote_id: str) -> None:
        """See the port."""
        with self._adapter.translating():
            await self._client.responses.delete(remote_id, timeout=WITHIN_S)
