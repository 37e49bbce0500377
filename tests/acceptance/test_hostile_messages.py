"""Hostile messages on the queue: a worker takes each, executes nothing from it, and continues."""

import base64
import json
import os
import pickle
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from celery import Celery
from celery.result import AsyncResult

from tests.acceptance.conftest import System
from tests.celery_client import celery_client
from tests.deadlines import scale_to_load

JOB: dict[str, Any] = {"query": "When does the desk open?", "context": ["The desk opens at nine."]}
SECOND: dict[str, Any] = {"query": "Who sent this?", "context": ["A callback sent this."]}


class Payload:
    """A pickle that executes something when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def signature(task: str, *args: Any) -> dict[str, Any]:
    """As Celery writes what comes after a task."""
    return {"task": task, "args": list(args), "kwargs": {}, "options": {"queue": "submit"}, "subtask_type": None,
            "immutable": True}  # fmt: skip


def publish(app: Celery, body: Any, *, kind: str = "application/json", encoding: str = "utf-8", **headers: Any) -> None:
    """Put a message on the queue as it is; ``body`` is bytes, or what JSON can say."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    message = {
        "body": base64.b64encode(data).decode(),
        "content-type": kind,
        "content-encoding": encoding,
        "headers": {"lang": "py", "task": "nightdesk.submit", "id": str(uuid4()), **headers},
        "properties": {
            "correlation_id": str(uuid4()), "reply_to": str(uuid4()), "delivery_mode": 2, "priority": 0,
            "delivery_info": {"exchange": "", "routing_key": "submit"}, "body_encoding": "base64",
            "delivery_tag": str(uuid4()),
        },
    }  # fmt: skip
    with app.connection_for_write() as connection:
        connection.default_channel.client.lpush("submit", json.dumps(message))


def hostile(mark: Path) -> list[tuple[Any, dict[str, Any]]]:
    """Bodies with the rest of their message; none of them is a submission that can be accepted."""
    pickled = pickle.dumps(([Payload(mark)], {}, {}))
    yaml = f"!!python/object/apply:os.mkdir ['{mark}']".encode()
    deep = b"[" * 50_000 + b"]" * 50_000
    nothing: Any = [[], {}, {}]
    return [
        (pickled, {"kind": "application/x-python-serialize", "encoding": "binary"}),
        (pickled, {"kind": "application/x-python-serialize", "encoding": "utf-8"}),
        (pickled, {"kind": "application/json", "encoding": "binary"}),
        (yaml, {"kind": "application/x-yaml"}),
        (b"\x00\x01", {"kind": "application/x-msgpack", "encoding": "binary"}),
        (b"text", {"kind": "text/plain"}),
        (b"<x/>", {"kind": "no such type"}),
        (nothing, {"encoding": "no such encoding"}),
        (b"\xff\xfe\xff", {}),
        (b"{", {}),
        (b"", {}),
        (deep, {}),
        (b"[[" + deep + b"], {}, {}]", {}),
        ([[[{**JOB, "query": "x" * 2_000_000}]], {}, {}], {}),
        (nothing, {"task": "os.system"}),
        (nothing, {"task": "celery.map"}),
        (nothing, {"task": "celery.backend_cleanup"}),
        ([["group", signature("nightdesk.submit", [SECOND])], {}, {}], {"task": "celery.chord_unlock"}),
        ([[signature("nightdesk.submit", [SECOND]), [[[SECOND]]]], {}, {}], {"task": "celery.starmap"}),
        (nothing, {"task": None}),
        (nothing, {"task": ["nightdesk.submit"]}),
        (nothing, {"id": None}),
        (nothing, {"id": {"not": "text"}}),
        (nothing, {"eta": "yesterday"}),
        (nothing, {"expires": [1]}),
        (nothing, {"timelimit": "long"}),
        ([[[JOB]], {}, {}], {"expires": "2001-01-01T00:00:00+00:00"}),
        ({"args": 5, "kwargs": 7}, {}),
        ([1, 2], {}),
        ([[[JOB]], {"jobs": 1, "__class__": "x"}, {}], {}),
        ([[], {"nobody": "knows"}, {}], {}),
        ([["x", "y", "z", "too many"], {}, {}], {}),
        (5, {}),
        (None, {}),
    ]


def answer(app: Celery, job: dict[str, Any]) -> Any:
    return app.send_task("nightdesk.submit", args=[[job]], queue="submit").get(timeout=scale_to_load(60))


@pytest.fixture
def producer(system: System) -> Any:
    with celery_client(system.redis_url) as app:
        yield app


def test_no_message_executes_or_ends_anything(system: System, producer: Celery, tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    worker = system.start_worker()
    assert answer(producer, JOB)["errors"] == []

    messages = hostile(mark)
    for body, rest in messages:
        publish(producer, body, **rest)
    with producer.connection_for_write() as connection:
        connection.default_channel.client.lpush("submit", "no message", "{", "5", "null", "[]", "{}", b"\xff", "")
    # Messages are taken in their order: this one is answered after all of them.
    assert answer(producer, JOB)["errors"] == []

    system.until_final(2)
    assert worker.poll() is None
    assert not mark.exists()
    assert system.scalar("SELECT count(*) FROM job") == 2


@pytest.mark.parametrize("where", ["body", "headers"])
def test_callbacks_and_chains_of_a_message_are_not_run(system: System, producer: Celery, where: str) -> None:
    system.start_worker()
    after = signature("nightdesk.submit", [SECOND])
    canvas = {"callbacks": [after], "errbacks": [after], "chain": [after], "chord": after, "group": str(uuid4())}
    own, failing = str(uuid4()), str(uuid4())
    embed, headers = (canvas, {}) if where == "body" else ({}, canvas)

    publish(producer, [[[JOB]], {}, embed], **headers, id=own)
    publish(producer, [[], {"nobody": "knows"}, embed], **headers, id=failing)

    result: AsyncResult[Any] = AsyncResult(own, app=producer)
    assert result.get(timeout=scale_to_load(60))["errors"] == []
    assert answer(producer, {**JOB, "query": "And when does it close?"})["errors"] == []
    system.until_final(2)
    assert system.scalar("SELECT count(*) FROM job_request WHERE head ->> 'query' = %s", SECOND["query"]) == 0
    assert system.scalar("SELECT count(*) FROM job") == 2


def test_a_message_with_an_eta_delays_no_other_message(system: System, producer: Celery) -> None:
    system.start_worker()
    for _ in range(30):
        producer.send_task("nightdesk.submit", args=[[SECOND]], queue="submit", countdown=86_400)

    assert answer(producer, JOB)["errors"] == []
    system.until_final(1)
    assert system.scalar("SELECT count(*) FROM job") == 1
