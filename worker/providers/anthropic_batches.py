"""Makes calls in Anthropic's Message Batches."""

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import orjson

from schemas.failure import FailureKind
from tasks.errors import failure_of
from tasks.ports.remote_batches import (
    Candidates,
    Intent,
    RemoteCall,
    RemoteCalls,
    RemoteResult,
    RemoteStatus,
    UnreadableResult,
)
from worker.providers.adapter import OfAdapter
from worker.providers.result_rows import read_rows

PATH = "/v1/messages/batches"
PAGE = 100
TRANSFER_S = 600.0
CLOCKS_APART_S = 3_600.0
"""Greatest difference between the clocks of the ledger and of Anthropic."""


class AnthropicBatches(OfAdapter, RemoteCalls):
    """See ``tasks.ports.remote_batches.RemoteCalls``. Limits: Anthropic's guide to batch processing (2026-11)."""

    max_calls = 100_000
    max_bytes = 256_000_000

    async def create(self, intent: Intent, calls: AsyncIterator[RemoteCall]) -> str:  # noqa: ARG002 - it takes no metadata
        """See the port. The bodies go as they stand: the SDK's own method would read and write each anew."""
        rows = [b'{"custom_id":"%s","params":%s}' % (str(call.attempt_id).encode(), call.body) async for call in calls]
        content = b'{"requests":[' + b",".join(rows) + b"]}"
        options = {"headers": {"content-type": "application/json"}, "timeout": TRANSFER_S, "follow_redirects": False}
        with self._adapter.translating():
            batch = await self._client.post(
                PATH, cast_to=anthropic.types.messages.MessageBatch, content=content, options=options
            )
        return str(batch.id)

    async def check(self, remote_id: str) -> RemoteStatus:
        """See the port. The counts are 0 until the whole batch ended."""
        with self._adapter.translating():
            batch = await self._client.messages.batches.retrieve(remote_id)
        counts = batch.request_counts
        detail = {"status": batch.processing_status, **counts.model_dump()}
        return RemoteStatus(batch.processing_status == "ended", detail, results=counts.succeeded + counts.errored)

    async def collect(self, remote_id: str) -> AsyncIterator[RemoteResult | UnreadableResult]:
        """See the port. The SDK's own reader ends at the first row that is no JSON."""
        async for row in read_rows(self._pieces(remote_id), self._result, self._adapter.failures):
            yield row

    async def _pieces(self, remote_id: str) -> AsyncIterator[bytes]:
        batches = self._client.messages.batches.with_streaming_response
        with self._adapter.translating():
            async with batches.results(remote_id, timeout=TRANSFER_S) as response:
                async for piece in response.iter_bytes():
                    yield piece

    def _result(self, custom_id: str, row: dict[str, Any]) -> RemoteResult:
        result = row["result"]
        match result["type"]:
            case "succeeded":
                return RemoteResult(custom_id, body=orjson.dumps(result["message"]))
            case "errored":
                return self._errored(custom_id, result["error"])
            case "expired" | "canceled" as ended:
                kind = FailureKind.EXPIRED if ended == "expired" else FailureKind.CANCELLED
                problem = f"did not make a call: it was {ended} with its batch"
            case unknown:
                kind, problem = FailureKind.BAD_ANSWER, f"wrote a result of an unknown type: {unknown}"
        return RemoteResult(custom_id, failure=failure_of(self._adapter.failures.error(kind, problem)))

    @staticmethod
    def _errored(custom_id: str, body: dict[str, Any]) -> RemoteResult:
        """A failed row says the type of its error alone; the status is that of a single call."""
        kind = (body.get("error") or {}).get("type")
        return RemoteResult(custom_id, STATUS.get(str(kind), 500), orjson.dumps(body), body.get("request_id"))

    async def cancel(self, remote_id: str) -> None:
        """See the port."""
        with self._adapter.translating():
            await self._client.messages.batches.cancel(remote_id)

    async def find(self, intent: Intent, taken_ids: frozenset[str], attempt_ids: frozenset[str]) -> Candidates:
        """See the port. Nothing in the list names the intent: its time and count do, and in the end its results."""
        oldest = intent.intended_at.timestamp() - CLOCKS_APART_S
        running: list[str] = []
        with self._adapter.translating():
            # The newest first.
            async for batch in self._client.messages.batches.list(limit=PAGE):
                if batch.created_at.timestamp() < oldest:
                    break
                counts = batch.request_counts
                total = counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired
                if batch.id in taken_ids or total != intent.calls:
                    continue
                if batch.processing_status != "ended":
                    running.append(batch.id)
                elif await self._has(batch.id, attempt_ids):
                    return Candidates([batch.id])
        return Candidates(open=running)

    async def _has(self, remote_id: str, attempt_ids: frozenset[str]) -> bool:
        async for result in self.collect(remote_id):
            # Every row of it is of one intent, so the first one that can be read decides.
            if isinstance(result, RemoteResult):
                return result.custom_id in attempt_ids
        return False


STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""HTTP status of each type of error (Anthropic's reference, "Errors")."""
