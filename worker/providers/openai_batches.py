"""Makes calls in batches of OpenAI's Files and Batches APIs, and of servers that have them too."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from typing import IO, Any

import httpx2
import orjson

from schemas.failure import Failure, FailureKind
from tasks.errors import ProviderError, failure_of
from tasks.ports.remote_batches import (
    Candidates,
    Intent,
    RemoteCall,
    RemoteCalls,
    RemoteResult,
    RemoteStatus,
    UnreadableResult,
)
from worker.providers.adapter import Adapter, OfAdapter
from worker.providers.result_rows import read_rows

INTENT = "nightdesk_intent"
"""Key of a batch's metadata that holds the id of its intent."""

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
PAGE = 100
UPLOAD_S = 600.0
"""Seconds without progress after which a transfer of a file is given up."""
IN_MEMORY = 8_000_000
"""Bytes of a file from which on it is written to disk before it is sent."""

_ROW_FAILURES = {"batch_expired": FailureKind.EXPIRED, "batch_cancelled": FailureKind.CANCELLED}
_UNDONE = {"expired": FailureKind.EXPIRED, "cancelled": FailureKind.CANCELLED}
"""Of a batch with this status a call that is in neither file was not made."""

_REFUSALS = {
    "token_limit_exceeded": FailureKind.RATE_LIMITED,
    "rate_limit_exceeded": FailureKind.RATE_LIMITED,
    "insufficient_quota": FailureKind.QUOTA,
    "billing_hard_limit_reached": FailureKind.QUOTA,
    "model_not_found": FailureKind.NOT_FOUND,
}
"""Codes with which a whole batch fails in its validation, before any call: too many tokens wait, or no money."""


class OpenAIBatches(OfAdapter, RemoteCalls):
    """See ``tasks.ports.remote_batches.RemoteCalls``. Limits: OpenAI's guide to batches (2026-11)."""

    max_calls = 50_000
    max_bytes = 200_000_000

    def __init__(self, adapter: Adapter) -> None:
        super().__init__(adapter)
        self._url = f"/v1{adapter.path}".encode()

    async def create(self, intent: Intent, calls: AsyncIterator[RemoteCall]) -> str:
        """See the port; a file without a batch costs nothing."""
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as file:
            async for call in calls:
                file.write(self._row(call))
            file.seek(0)
            file_id = await self._upload(intent, file)
        with self._adapter.translating():
            batch = await self._client.batches.create(
                input_file_id=file_id,
                endpoint=self._url.decode(),
                completion_window="24h",
                metadata={INTENT: str(intent.id)},
            )
        return str(batch.id)

    def _row(self, call: RemoteCall) -> bytes:
        head = b'{"custom_id":"%s","method":"POST","url":"%s","body":' % (str(call.attempt_id).encode(), self._url)
        return head + call.body + b"}\n"

    async def _upload(self, intent: Intent, file: IO[bytes]) -> str:
        # Read in a thread: of 200 MB the loop would stand still.
        content = await asyncio.to_thread(file.read)
        try:
            uploaded = await self._client.files.create(
                file=(f"nightdesk-{intent.id}.jsonl", content, "application/jsonl"), purpose="batch", timeout=UPLOAD_S
            )
        except Exception as error:  # noqa: BLE001 - the SDKs let errors of three libraries through
            failed = self._adapter.translate(error)
            if failed.kind is FailureKind.UNKNOWN_OUTCOME:
                raise self._adapter.failures.error(
                    FailureKind.UNAVAILABLE, f"did not take the file of a batch: {failed}"
                ) from None
            raise failed from None
        return str(uploaded.id)

    async def check(self, remote_id: str) -> RemoteStatus:
        """See the port."""
        batch = await self._retrieve(remote_id)
        counts = batch.request_counts.model_dump() if batch.request_counts is not None else {}
        detail = {"status": batch.status, **counts}
        refused = None
        if batch.status == "failed":
            errors = (batch.errors.data if batch.errors is not None else None) or []
            codes = [str(error.code) for error in errors]
            kind = next((_REFUSALS[code] for code in codes if code in _REFUSALS), FailureKind.INVALID_REQUEST)
            words = "; ".join(f"{error.code}: {error.message}" for error in errors[:3]) or "without a reason"
            refused = failure_of(self._adapter.failures.error(kind, f"refused the batch {remote_id}: {words}"))
        undone = _UNDONE.get(batch.status, FailureKind.UNKNOWN_OUTCOME)
        results = sum(filter(None, map(counts.get, ("completed", "failed"))))
        return RemoteStatus(batch.status in ENDED, detail, refused, undone, results)

    async def _retrieve(self, remote_id: str) -> Any:
        with self._adapter.translating():
            return await self._client.batches.retrieve(remote_id)

    async def collect(self, remote_id: str) -> AsyncIterator[RemoteResult | UnreadableResult]:
        """See the port. Answers are in one file and errors in another; either may be absent."""
        batch = await self._retrieve(remote_id)
        failed: ProviderError | None = None
        for file_id in filter(None, (batch.output_file_id, batch.error_file_id)):
            try:
                async for row in read_rows(self._pieces(file_id), self._result, self._adapter.failures):
                    yield row
            except ProviderError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    async def _pieces(self, file_id: str) -> AsyncIterator[bytes]:
        timeout = httpx2.Timeout(UPLOAD_S, connect=10.0)
        with self._adapter.translating():
            async with self._client.files.with_streaming_response.content(file_id, timeout=timeout) as response:
                async for piece in response.iter_bytes():
                    yield piece

    def _result(self, custom_id: str, row: dict[str, Any]) -> RemoteResult:
        error, response = row.get("error"), row.get("response") or {}
        if error and not response.get("body"):
            return RemoteResult(custom_id, failure=self._failure(error))
        status, request_id = int(response["status_code"]), response.get("request_id")
        return RemoteResult(custom_id, status, orjson.dumps(response["body"]), request_id)

    def _failure(self, error: dict[str, Any]) -> Failure:
        code = str(error.get("code"))
        kind = _ROW_FAILURES.get(code, FailureKind.OVERLOADED)
        return failure_of(self._adapter.failures.error(kind, f"did not make a call ({code}): {error.get('message')}"))

    async def cancel(self, remote_id: str) -> None:
        """See the port."""
        with self._adapter.translating():
            await self._client.batches.cancel(remote_id)

    async def find(
        self,
        intent: Intent,
        taken_ids: frozenset[str],
        attempt_ids: frozenset[str],  # noqa: ARG002 - metadata name the intent
    ) -> Candidates:
        """See the port; the metadata of a batch name its intent."""
        oldest = intent.intended_at.timestamp() - CLOCKS_APART_S
        matches: list[str] = []
        with self._adapter.translating():
            # The newest first.
            async for batch in self._client.batches.list(limit=PAGE):
                if batch.created_at < oldest:
                    break
                if batch.id not in taken_ids and (batch.metadata or {}).get(INTENT) == str(intent.id):
                    matches.append(batch.id)
        return Candidates(matches)


CLOCKS_APART_S = 3_600.0
"""Greatest difference between the clocks of the ledger and of a provider."""
