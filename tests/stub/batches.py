"""Files and Batches as OpenAI's SDK speaks them, and Message Batches as Anthropic's does: shuffled rows, each kind of failure."""

import asyncio
import hashlib
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import orjson
from aiohttp import web

from tests.stub.answers import ANSWERS

PAGE = 20


@dataclass
class Row:
    custom_id: str
    path: str
    body: dict[str, Any]
    fate: str = "succeeded"
    """``succeeded``, ``errored``, ``expired``, ``canceled``, or ``lost``: in no file."""


@dataclass
class RemoteBatch:
    id: str
    rows: list[Row]
    created_at: float
    ends_at: float
    input_file_id: str = ""
    endpoint: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    cancelled: bool = False
    files: dict[str, str] = field(default_factory=dict)
    """Ids of its output and error files, once it ended."""
    fated: bool = False

    @property
    def ended(self) -> bool:
        return time.monotonic() >= self.ends_at


@dataclass
class BatchStub:
    """The batches of both providers at the stub.

    Attributes:
        ends_after_s: time from the creation of a batch to its end.
        errored: share of the rows that fail; ``expired``: that are not done in time; ``lost``: that are in no file.
        damage: changes the content of files of results before they are sent.
        refuses_content: status with which files of results are refused; 0: they are sent.
        all_errored: every row of a batch fails, so that it has no output file, for this many batches.
        refusals: codes with which the next batches fail in their validation (OpenAI).
        stalls: the next request of each of these kinds (``upload``, ``create``, ``cancel``, ``content``) does its work and is never
            answered; of ``content`` half is; ``arrive`` is a creation that is never looked at.
        stalled: set by such a request.
        creations: ids of the custom ids of every batch created, to see one created twice.
    """

    count: Callable[[str, bytes, bool], None]
    ends_after_s: float = 0.5
    errored: float = 0.0
    expired: float = 0.0
    lost: float = 0.0
    damage: Callable[[bytes], bytes] = bytes
    refuses_content: int = 0
    all_errored: int = 0
    refusals: list[str] = field(default_factory=list)
    stalls: set[str] = field(default_factory=set)
    stalled: threading.Event = field(default_factory=threading.Event)
    creations: Counter[str] = field(default_factory=Counter)
    batches: dict[str, RemoteBatch] = field(default_factory=dict)
    cancels: list[str] = field(default_factory=list)
    reads: Counter[str] = field(default_factory=Counter)
    files: dict[str, bytes] = field(default_factory=dict)
    url: str = ""
    _random: Random = field(default_factory=lambda: Random(11))

    def reset(self) -> None:
        """Forget every batch, and be a provider without failures again."""
        fresh = BatchStub(self.count, url=self.url)
        for name in (
            "ends_after_s",
            "errored",
            "expired",
            "lost",
            "damage",
            "refuses_content",
            "all_errored",
            "refusals",
            "batches",
            "cancels",
            "files",
        ):
            setattr(self, name, getattr(fresh, name))

    def routes(self) -> list[web.RouteDef]:
        """The routes of both providers."""
        return [
            web.post("/v1/files", self.upload),
            web.get("/v1/files/{id}/content", self.content),
            web.post("/v1/batches", self.create),
            web.get("/v1/batches", self.listing),
            web.get("/v1/batches/{id}", partial(self.show, openai_batch)),
            web.post("/v1/batches/{id}/cancel", partial(self.cancel, openai_batch)),
            web.post("/v1/messages/batches", self.create_messages),
            web.get("/v1/messages/batches", self.listing_messages),
            web.get("/v1/messages/batches/{id}", partial(self.show, self.message_batch)),
            web.get("/v1/messages/batches/{id}/results", self.results),
            web.post("/v1/messages/batches/{id}/cancel", partial(self.cancel, self.message_batch)),
        ]

    # ---- OpenAI ----

    async def upload(self, request: web.Request) -> web.Response:
        form = parts_of(await request.read(), request.headers["content-type"])
        assert form["purpose"][1] == b"batch"
        head, content = form["file"]
        file_id = f"file-{len(self.files)}"
        self.files[file_id] = content
        await self._stall("upload")
        fields = {"id": file_id, "object": "file", "bytes": len(self.files[file_id]), "created_at": int(time.time())}
        return web.json_response({**fields, "filename": head["filename"], "purpose": "batch", "status": "processed"})

    async def create(self, request: web.Request) -> web.Response:
        order = await request.json()
        await self._stall("arrive")
        assert order["completion_window"] == "24h"
        lines = self.files[order["input_file_id"]].splitlines()
        rows = [orjson.loads(line) for line in lines]
        assert len(rows) <= 50_000
        assert len({row["body"]["model"] for row in rows}) == 1
        assert all((row["method"], row["url"]) == ("POST", order["endpoint"]) for row in rows)
        batch = self._new(
            f"batch_{len(self.batches)}", [Row(row["custom_id"], row["url"], row["body"]) for row in rows]
        )
        batch.input_file_id, batch.endpoint = order["input_file_id"], order["endpoint"]
        batch.metadata = order.get("metadata") or {}
        if self.refusals:
            batch.files["refused"] = self.refusals.pop(0)
        await self._stall("create")
        return web.json_response(openai_batch(batch))

    async def listing(self, request: web.Request) -> web.Response:
        self.reads["list"] += 1
        return self._page(request.query.get("after"), openai_batch, {"object": "list"})

    async def content(self, request: web.Request) -> web.StreamResponse:
        return await self._lines(request, self.files[request.match_info["id"]])

    # ---- Anthropic ----

    async def create_messages(self, request: web.Request) -> web.Response:
        order = await request.json()
        await self._stall("arrive")
        rows = [Row(row["custom_id"], "/v1/messages", row["params"]) for row in order["requests"]]
        assert len(rows) <= 100_000
        batch = self._new(f"msgbatch_{len(self.batches)}", rows)
        await self._stall("create")
        return web.json_response(self.message_batch(batch))

    async def listing_messages(self, request: web.Request) -> web.Response:
        self.reads["list"] += 1
        return self._page(request.query.get("after_id"), self.message_batch, {})

    async def results(self, request: web.Request) -> web.StreamResponse:
        batch = self.batches[request.match_info["id"]]
        self._decide(batch)
        if batch.id not in self.files:
            rows = [orjson.dumps(message_result(row)) + b"\n" for row in self._shuffled(batch.rows)]
            self.files[batch.id] = b"".join(rows)
        return await self._lines(request, self.files[batch.id])

    def message_batch(self, batch: RemoteBatch) -> dict[str, Any]:
        """The batch as its API shows it: all counts stand at processing until the whole of it ended."""
        self._decide(batch)
        names = ("processing", "succeeded", "errored", "canceled", "expired")
        fates = Counter(row.fate for row in batch.rows) if batch.ended else Counter(processing=len(batch.rows))
        created = datetime.fromtimestamp(batch.created_at, UTC)
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if batch.ended else "canceling" if batch.cancelled else "in_progress",
            "request_counts": {name: fates[name] for name in names},
            "created_at": created.isoformat(),
            "expires_at": (created + timedelta(days=1)).isoformat(),
            "ended_at": created.isoformat() if batch.ended else None,
            "archived_at": None,
            "cancel_initiated_at": created.isoformat() if batch.cancelled else None,
            "results_url": f"{self.url}/v1/messages/batches/{batch.id}/results" if batch.ended else None,
        }

    # ---- both ----

    def _new(self, batch_id: str, rows: list[Row]) -> RemoteBatch:
        ids = [row.custom_id for row in rows]
        assert len(set(ids)) == len(ids)
        self.creations.update(ids)
        batch = RemoteBatch(batch_id, rows, time.time(), time.monotonic() + self.ends_after_s)
        self.batches[batch_id] = batch
        return batch

    async def show(self, form: Callable[[RemoteBatch], dict[str, Any]], request: web.Request) -> web.Response:
        batch = self.batches[request.match_info["id"]]
        self.reads["check"] += 1
        if batch.endpoint:
            self._write_files(batch)
        return web.json_response(form(batch))

    async def cancel(self, form: Callable[[RemoteBatch], dict[str, Any]], request: web.Request) -> web.Response:
        batch = self.batches[request.match_info["id"]]
        self.cancels.append(batch.id)
        if not batch.ended:
            # What it did until now is done, and paid for.
            batch.cancelled = True
            for row in batch.rows[len(batch.rows) // 2 :]:
                row.fate = "canceled"
            batch.ends_at = time.monotonic()
        await self._stall("cancel")
        return web.json_response(form(batch))

    def _page(
        self, after: str | None, show: Callable[[RemoteBatch], dict[str, Any]], kind: dict[str, Any]
    ) -> web.Response:
        newest = list(self.batches.values())[::-1]
        at = next((place + 1 for place, batch in enumerate(newest) if batch.id == after), 0)
        page, more = newest[at : at + PAGE], len(newest) > at + PAGE
        ends = {"first_id": page[0].id if page else None, "last_id": page[-1].id if page else None}
        return web.json_response({**kind, "data": [show(batch) for batch in page], "has_more": more, **ends})

    def _decide(self, batch: RemoteBatch) -> None:
        """Decide once what becomes of each row; what is done is counted and charged."""
        if batch.fated or not batch.ended:
            return
        batch.fated = True
        fails = self.all_errored > 0
        self.all_errored -= fails
        for row in batch.rows:
            draw = self._random.random()
            if row.fate == "succeeded":
                for fate, share in (("errored", self.errored), ("expired", self.expired), ("lost", self.lost)):
                    if 0 <= draw < share:
                        row.fate = fate
                    draw -= share
            if fails:
                row.fate = "errored"
            self.count(row.path, orjson.dumps(row.body), row.fate in {"succeeded", "lost"})

    def _write_files(self, batch: RemoteBatch) -> None:
        if not batch.ended or batch.fated or "refused" in batch.files:
            return
        self._decide(batch)
        kinds = {"output": [row for row in batch.rows if row.fate == "succeeded"]}
        kinds["error"] = [row for row in batch.rows if row.fate in {"errored", "expired"}]
        for kind, rows in kinds.items():
            if rows:
                batch.files[kind] = f"file-{len(self.files)}"
                lines = [orjson.dumps(openai_result(row)) for row in self._shuffled(rows)]
                self.files[batch.files[kind]] = b"\n".join(lines) + b"\n"

    def _shuffled(self, rows: list[Row]) -> list[Row]:
        return self._random.sample(rows, len(rows))

    async def _lines(self, request: web.Request, content: bytes) -> web.StreamResponse:
        if self.refuses_content:
            return web.json_response({"error": {"message": "No such File object"}}, status=self.refuses_content)
        content = self.damage(content)
        response = web.StreamResponse(headers={"content-type": "application/binary"})
        await response.prepare(request)
        if "content" in self.stalls:
            half = content[: len(content) // 2]
            await response.write(half[: half.rfind(b"\n") + 1])
            await self._stall("content")
        await response.write(content)
        await response.write_eof()
        return response

    async def _stall(self, kind: str) -> None:
        if kind in self.stalls:
            self.stalls.discard(kind)
            self.stalled.set()
            await asyncio.Event().wait()


def parts_of(body: bytes, content_type: str) -> dict[str, tuple[dict[str, str], bytes]]:
    """The parts of a form by name, each with the parameters of its disposition.

    The reader of aiohttp warns of itself where a boundary lies across two pieces, and a warning fails the test.
    """
    boundary = b"--" + content_type.partition("boundary=")[2].strip('"').encode()
    parts = {}
    for part in body.split(boundary)[1:-1]:
        head, _, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        parameters = dict(re.findall(r'(\w+)="([^"]*)"', head.decode()))
        parts[parameters["name"]] = parameters, content.removesuffix(b"\r\n")
    return parts


def openai_batch(batch: RemoteBatch) -> dict[str, Any]:
    """The batch as its API shows it."""
    fates = Counter(row.fate for row in batch.rows)
    refused = batch.files.get("refused")
    done = "failed" if refused else "cancelled" if batch.cancelled else "expired" if fates["expired"] else "completed"
    failed = fates["errored"] + fates["expired"]
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.endpoint,
        "input_file_id": batch.input_file_id,
        "completion_window": "24h",
        "status": done if batch.ended else "in_progress",
        "created_at": int(batch.created_at),
        "output_file_id": batch.files.get("output"),
        "error_file_id": batch.files.get("error"),
        "errors": {"object": "list", "data": [{"code": refused, "message": f"refused: {refused}"}]}
        if refused
        else None,
        "request_counts": {"total": len(batch.rows), "completed": fates["succeeded"], "failed": failed},
        "metadata": batch.metadata,
    }


def openai_result(row: Row) -> dict[str, Any]:
    """A row of an output or error file."""
    identity = hashlib.sha256(row.custom_id.encode()).hexdigest()[:12]
    result: dict[str, Any] = {
        "id": f"batch_req_{identity}",
        "custom_id": row.custom_id,
        "response": None,
        "error": None,
    }
    match row.fate:
        case "succeeded":
            body = ANSWERS[row.path](row.body)
            result["response"] = {"status_code": 200, "request_id": f"req_{identity}", "body": body}
        case "errored":
            error = {"message": "The server had an error.", "type": "server_error", "code": None, "param": None}
            result["response"] = {"status_code": 500, "request_id": f"req_{identity}", "body": {"error": error}}
        case _:
            result["error"] = {"code": "batch_expired", "message": "This request could not be executed in time."}
    return result


def message_result(row: Row) -> dict[str, Any]:
    """A row of the results of a message batch."""
    result: dict[str, Any] = {"type": row.fate}
    if row.fate == "succeeded":
        message = ANSWERS[row.path](row.body)
        result["message"] = {**message, "usage": {**message["usage"], "service_tier": "batch"}}
    elif row.fate == "errored":
        error = {"type": "api_error", "message": "Internal server error"}
        result["error"] = {"type": "error", "error": error, "request_id": "req_1"}
    return {"custom_id": row.custom_id, "result": result}
