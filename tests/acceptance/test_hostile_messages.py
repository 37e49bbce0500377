"""Hostile messages on the queue: a worker takes each, executes nothing from it, and continues."""

import base64
import bz2
import json
import os
import pickle
import zlib
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
from celery import Celery
from celery.exceptions import InvalidTaskError
from celery.result import AsyncResult

from tests.acceptance.conftest import System
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
    good = json.dumps([[[SECOND]], {}, {}]).encode()
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
        # Good ones, were they not so large that the memory of the worker would not do for others of their kind.
        (good + b" " * 8_000_000, {}),
        (zlib.compress(good + b" " * 20_000_000), {"compression": "application/x-gzip"}),
        (bz2.compress(good + b" " * 2_000_000), {"compression": "application/x-bz2"}),
    ]


def answer(app: Celery, job: dict[str, Any], **options: Any) -> Any:
    return app.send_task("nightdesk.submit", args=[[job]], queue="submit", **options).get(timeout=scale_to_load(60))


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
    assert answer(producer, JOB, compression="gzip")["errors"] == []

    system.until_final(2)
    assert worker.poll() is None
    assert "Connection to broker lost" not in system.log(), "junk costs no connection"
    assert JOB["context"][0] not in system.log()
    assert not mark.exists()
    assert system.scalar("SELECT count(*) FROM job") == 2


def test_no_broadcast_ends_or_changes_a_worker(system: System, producer: Celery) -> None:
    worker = system.start_worker()
    assert answer(producer, JOB)["errors"] == []
    control: Any = producer.control
    (node,) = control.ping(limit=1, timeout=scale_to_load(60))
    for command in (
        lambda: control.cancel_consumer("submit"),
        lambda: control.rate_limit("nightdesk.submit", "1/h"),
        lambda: control.time_limit("nightdesk.submit", hard=0.001),
        lambda: control.add_consumer("evil"),
        lambda: control.pool_shrink(100),
        control.pool_restart,
        lambda: control.autoscale(0, 0),
        control.enable_events,
        lambda: control.revoke("known-before", terminate=True),
        lambda: control.broadcast("hello", {"from_node": "x", "revoked": {"known-before": 1}}),
        lambda: control.broadcast("memdump"),
        lambda: control.broadcast("election", {"id": "1", "topic": "x", "action": "y"}),
        # A search of minutes where the worker matched it.
        lambda: control.broadcast("ping", pattern=r"(\w|\w\w|@|-)*!", matcher="pcre"),
        control.shutdown,
        lambda: control.broadcast("shutdown", destination=list(node)),
    ):
        command()
    with redis.Redis.from_url(system.redis_url) as client:
        for junk in ("", "no message", "{", "5", "null", "[]", "{}", b"\xff", '{"body": "x"}', '{"properties": {}}'):
            assert client.publish("/0.celery.pidbox", junk) == 1, "the worker still listens on the same connection"
    # Messages of one connection come in their order: these are answered after all of them.
    inspect = control.inspect(limit=1, timeout=scale_to_load(60))
    assert list(inspect.ping()) == list(node)
    assert {queue["name"] for queue in inspect.active_queues()[next(iter(node))]} == {"generate", "check", "submit"}
    assert inspect.stats()
    assert inspect.registered()
    assert inspect.active()
    assert not inspect.revoked()[next(iter(node))]
    # No answer comes, so that a short wait for it is as good as a long one.
    assert control.inspect(limit=1, timeout=0.5).conf() is None
    again = producer.send_task("nightdesk.submit", args=[[JOB]], queue="submit", task_id="known-before")
    assert again.get(timeout=scale_to_load(60))["errors"] == []
    assert worker.poll() is None
    assert "Connection to broker lost" not in system.log()


def test_junk_that_waits_for_its_acknowledgement_is_in_nobodys_way(system: System, producer: Celery) -> None:
    with redis.Redis.from_url(system.redis_url) as client:
        junk = ("no message", "5", "[]", "{}", "[1, 2, 3]", '[{}, "", ""]', b"\xff")
        client.hset("unacked", mapping={f"junk-{number}": text for number, text in enumerate(junk)})
        client.zadd("unacked_index", {f"junk-{number}": 1 for number, _ in enumerate(junk)})
    worker = system.start_worker()
    assert answer(producer, JOB)["errors"] == []
    with redis.Redis.from_url(system.redis_url) as client:
        system.until(lambda: not client.hkeys("unacked"), what="no junk")
    assert worker.poll() is None


@pytest.mark.parametrize("where", ["body", "headers"])
def test_callbacks_and_chains_of_a_message_are_refused_and_not_run(
    system: System, producer: Celery, where: str
) -> None:
    system.start_worker()
    after = signature("nightdesk.submit", [SECOND])
    canvas: dict[str, Any] = {
        "callbacks": [after],
        "errbacks": [after],
        "chain": [after],
        "chord": after,
        "group": str(uuid4()),
    }
    own, failing = str(uuid4()), str(uuid4())
    no_parts: dict[str, Any] = {}
    embed, headers = (canvas, no_parts) if where == "body" else (no_parts, canvas)

    publish(producer, [[[JOB]], {}, embed], **headers, id=own)
    publish(producer, [[], {"nobody": "knows"}, embed], **headers, id=failing)

    for message in (own, failing):
        with pytest.raises(
            InvalidTaskError, match="runs no link, link_error, chain, chord: nothing of this message was done"
        ):
            AsyncResult(message, app=producer).get(timeout=scale_to_load(60))
    assert answer(producer, {**JOB, "query": "And when does it close?"})["errors"] == []
    system.until_final(1)
    assert system.scalar("SELECT count(*) FROM job") == 1


def test_a_message_with_an_eta_delays_no_other_message(system: System, producer: Celery) -> None:
    system.start_worker()
    for _ in range(30):
        producer.send_task("nightdesk.submit", args=[[SECOND]], queue="submit", countdown=86_400)

    assert answer(producer, JOB)["errors"] == []
    system.until_final(1)
    assert system.scalar("SELECT count(*) FROM job") == 1


def test_a_poll_is_answered_by_a_reply_that_has_a_bound(system: System, producer: Celery) -> None:
    system.start_worker()
    # Packed, the claims of this answer are a hundredth of a result of 1.6 MB.
    accepted = answer(producer, {"context": ["The fee is 7."], "response": "- Fee [1][1][1]\n" * 1_800})
    system.until_final(1)

    reply = producer.send_task("nightdesk.poll", args=[accepted["job_ids"] * 1_000], queue="submit")
    results = reply.get(timeout=scale_to_load(60))

    assert len(results) == 1_000
    assert results[0]["state"] == "completed"
    assert "another message" in results[-1]["error"]
    assert len(json.dumps(results)) < 15_000_000
