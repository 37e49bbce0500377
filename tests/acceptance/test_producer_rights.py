"""A producer with the Redis user that docs/security.md gives: it submits and reads its results, and can do no more."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
from celery import Celery
from celery.exceptions import NotRegistered
from celery.result import AsyncResult
from kombu.exceptions import OperationalError
from redis.exceptions import NoPermissionError

from tests.acceptance.conftest import System, questions
from tests.celery_client import celery_client
from tests.deadlines import scale_to_load

DOCUMENTED = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
PREFIX = "nightdesk-1:"


def rights(prefix: str = PREFIX) -> str:
    match = re.search(r"\nuser producer on >PASSWORD ([^\n]+)\n", DOCUMENTED)
    assert match is not None
    return match[1].replace(PREFIX, prefix)


def url_of(system: System, user: str, password: str) -> str:
    return re.sub(r"//.*@", f"//{user}:{password}@", system.redis_url)


@pytest.fixture
def producer_url(system: System) -> Iterator[str]:
    with redis.Redis.from_url(system.redis_url) as admin:
        admin.execute_command("ACL", "SETUSER", "producer", "reset", "on", ">secret", *rights().split())
        admin.execute_command("ACL", "LOG", "RESET")
        yield url_of(system, "producer", "secret")
        admin.execute_command("ACL", "DELUSER", "producer")


@pytest.fixture
def producer(producer_url: str) -> Iterator[Celery]:
    with celery_client(producer_url, global_keyprefix=PREFIX) as app:
        yield app


def test_a_producer_submits_and_reads_with_the_documented_rights(system: System, producer: Celery) -> None:
    system.start_worker(key_prefix=PREFIX)
    for priority in (0, 6):
        job = questions(7)[priority]
        reply = producer.send_task("nightdesk.submit", args=[[job]], queue="submit", priority=priority)
        (job_id,) = reply.get(timeout=scale_to_load(60))["job_ids"]
        result: AsyncResult[Any] = AsyncResult(job_id, app=producer)
        assert result.get(timeout=scale_to_load(60))["state"] == "completed"
        poll = producer.send_task("nightdesk.poll", args=[[job_id]], queue="submit").get(timeout=scale_to_load(60))
        assert poll[0]["job_id"] == job_id
    with redis.Redis.from_url(system.redis_url) as admin:
        refused = [(entry["reason"], entry["object"]) for entry in admin.acl_log() if entry["username"] == "producer"]
        assert refused == []


def test_a_producer_can_neither_forge_nor_stop_nor_list(system: System, producer: Celery, producer_url: str) -> None:
    worker = system.start_worker(key_prefix=PREFIX)
    reply = producer.send_task("nightdesk.submit", args=[questions(1)], queue="submit")
    (job_id,) = reply.get(timeout=scale_to_load(60))["job_ids"]
    result: AsyncResult[Any] = AsyncResult(job_id, app=producer)
    true = result.get(timeout=scale_to_load(60))
    key = f"{PREFIX}celery-task-meta-{job_id}"
    other_key = f"{PREFIX}celery-task-meta-{uuid4()}"
    with redis.Redis.from_url(producer_url) as client:
        for command in (
            ("SET", key, "FORGED"),
            ("SETEX", other_key, 60, "FORGED"),
            ("DEL", key),
            ("PUBLISH", key, "FORGED"),
            ("EVAL", "return redis.call('SET', KEYS[1], 'FORGED')", 1, key),
            ("PUBLISH", f"{PREFIX}/0.celery.pidbox", "{}"),
            ("LPUSH", f"{PREFIX}generate", "{}"),
            ("LRANGE", f"{PREFIX}submit", 0, -1),
            ("RPOP", f"{PREFIX}submit"),
            ("HSET", f"{PREFIX}unacked", "x", "y"),
            ("GET", f"{PREFIX}nightdesk:canary"),
            ("KEYS", "*"),
            ("SCAN", 0),
            ("PSUBSCRIBE", f"{PREFIX}*"),
            ("CLIENT", "LIST"),
            ("CONFIG", "GET", "*"),
            ("FLUSHALL",),
        ):
            with pytest.raises(NoPermissionError):
                client.execute_command(*command)
    with pytest.raises(OperationalError, match="publish"):
        producer.control.broadcast("shutdown")
    assert AsyncResult(job_id, app=producer).get() == true
    assert worker.poll() is None


@pytest.fixture
def tenants(system: System) -> Iterator[dict[str, Celery]]:
    """Producers of two tenants, each with the documented rights below the prefix of its tenant."""
    with redis.Redis.from_url(system.redis_url) as admin, ExitStack() as stack:
        apps = {}
        for tenant in ("acme", "bolt"):
            prefix = f"{PREFIX}{tenant}:"
            admin.execute_command("ACL", "SETUSER", tenant, "reset", "on", ">secret", *rights(prefix).split())
            stack.callback(admin.execute_command, "ACL", "DELUSER", tenant)
            apps[tenant] = stack.enter_context(celery_client(url_of(system, tenant, "secret"), global_keyprefix=prefix))
        yield apps


def test_tenants_with_prefixes_neither_read_nor_forge_nor_submit_for_each_other(
    system: System, tenants: dict[str, Celery]
) -> None:
    system.start_worker(key_prefix=PREFIX, tenant_prefixes='{"acme": "acme:", "bolt": "bolt:"}')
    ids: dict[str, str] = {}
    for number, (tenant, app) in enumerate(tenants.items()):
        reply = app.send_task("nightdesk.submit", args=[[questions(2)[number]]], queue="submit", priority=6 * number)
        (ids[tenant],) = reply.get(timeout=scale_to_load(60))["job_ids"]
    for tenant, app in tenants.items():
        assert AsyncResult(ids[tenant], app=app).get(timeout=scale_to_load(60))["state"] == "completed"
        polled = app.send_task("nightdesk.poll", args=[list(ids.values())], queue="submit").get(
            timeout=scale_to_load(60)
        )
        assert [result and result["job_id"] for result in polled] == [
            ids[tenant] if name == tenant else None for name in ids
        ]
        mixed = app.send_task("nightdesk.poll", args=[["nope", ids[tenant], 7]], queue="submit").get(
            timeout=scale_to_load(60)
        )
        assert [mixed[0], mixed[1]["state"], mixed[2]] == [
            {"job_id": "nope", "error": "this is not a job id"},
            "completed",
            {"job_id": "7", "error": "this is not a job id"},
        ]
    assert dict(system.rows("SELECT tenant, id::text FROM job")) == ids
    acme, bolt = tenants["acme"], ids["bolt"]
    with redis.Redis.from_url(url_of(system, "acme", "secret")) as client:
        for command in (
            ("GET", f"{PREFIX}bolt:celery-task-meta-{bolt}"),
            ("LPUSH", f"{PREFIX}bolt:submit", "{}"),
            ("LPUSH", f"{PREFIX}submit", "{}"),
            ("SUBSCRIBE", f"{PREFIX}bolt:celery-task-meta-{bolt}"),
        ):
            with pytest.raises(NoPermissionError):
                client.execute_command(*command)
    # Whatever a message says of its way, its tenant is that of the queue it was in; so is the place of its answer.
    message_id = str(uuid4())
    later = {**questions(3)[2], "custom_id": "told"}
    with acme.connection_for_write() as connection:
        channel: Any = connection.default_channel
        channel.client.lpush("submit", wire([later], message_id, routing_key="bolt:submit"))
        channel.client.lpush("submit", wire([later], bolt, routing_key="bolt:submit", task="no.such.task"))
    message = AsyncResult(message_id, app=acme).get(timeout=scale_to_load(60))
    assert message["errors"] == []
    assert system.scalar("SELECT tenant FROM job WHERE custom_id = 'told'") == "acme"
    with pytest.raises(NotRegistered):
        AsyncResult(bolt, app=acme).get(timeout=scale_to_load(60))
    assert AsyncResult(bolt, app=tenants["bolt"]).get()["job_id"] == bolt


def wire(jobs: list[dict[str, Any]], message_id: str, *, routing_key: str, task: str = "nightdesk.submit") -> str:
    """A message as it lies in Redis."""
    body = b64encode(json.dumps([[jobs], {}, {}]).encode()).decode()
    headers = {"lang": "py", "task": task, "id": message_id}
    properties = {
        "correlation_id": message_id, "delivery_mode": 2, "body_encoding": "base64", "delivery_tag": str(uuid4()),
        "delivery_info": {"exchange": "", "routing_key": routing_key}, "priority": 0,
    }  # fmt: skip
    return json.dumps({"body": body, "content-type": "application/json", "content-encoding": "utf-8", "headers": headers,
                       "properties": properties})  # fmt: skip
