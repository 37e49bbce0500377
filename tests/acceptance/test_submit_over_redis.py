"""The door over Redis: whatever a message holds gets a clear answer, and none is lost while PostgreSQL is away."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import redis
from celery import Celery, Signature, group
from celery.exceptions import InvalidTaskError
from celery.result import AsyncResult

from tests.acceptance.cli_home import new_home
from tests.acceptance.conftest import System, questions
from tests.celery_client import celery_client, close_client
from tests.deadlines import scale_to_load
from worker import local
from worker.ledger.schema_version import migrate

INPUT_PAGE = Path(__file__).parents[2] / "docs" / "input.md"
JOB: dict[str, Any] = {"query": "When does the desk open?", "context": ["The desk opens at nine."]}
WORKERS_TAKE_AT_ONCE = 16
"""Messages that no worker of these tests takes before it has acknowledged earlier ones."""


def send(app: Celery, *arguments: Any) -> AsyncResult[Any]:
    return app.send_task("nightdesk.submit", args=list(arguments), queue="submit")


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def test_every_bad_job_is_named_and_the_good_ones_are_accepted(system: System, producer: Celery) -> None:
    system.start_worker()
    own = str(uuid4())
    bad = [{"query": ""}, 7, None, "text", [], {**JOB, "job_id": "x"}, {**JOB, "n": 10**30}, {**JOB, "n": nested(400)},
           {**JOB, "query": "\ud800"}, {**JOB, "query": "\x00"}, {**JOB, "priority": 10**30}]  # fmt: skip
    answer = send(producer, [JOB, *bad, {**JOB, "job_id": own}], {"name": "mixed"}).get(timeout=scale_to_load(60))

    assert [error["position"] for error in answer["errors"]] == list(range(1, len(bad) + 1))
    assert all(error["message"] for error in answer["errors"])
    assert [job_id is not None for job_id in answer["job_ids"]] == [True, *[False] * len(bad), True]
    assert answer["job_ids"][-1] == own
    # One job that is no list, and the same own id once more.
    again = send(producer, {**JOB, "job_id": own}).get(timeout=scale_to_load(60))
    assert (again["job_ids"], again["errors"]) == ([own], [])
    system.until_final(2)
    assert system.scalar("SELECT count(*) FROM job") == 2
    # The program of the page, as it stands there.
    (program,) = re.findall(r"```python\n(from celery .*?)```", INPUT_PAGE.read_text(), re.DOTALL)
    namespace: dict[str, Any] = {"REDIS_URL": system.redis_url}
    exec(program, namespace)
    close_client(namespace["app"])
    assert (namespace["result"]["state"], namespace["result"]["query"]) == ("completed", namespace["job"]["query"])


def test_an_invalid_message_is_answered_with_its_error(system: System, producer: Celery) -> None:
    system.start_worker()
    wrong: list[tuple[list[Any], str, str]] = [
        ([[]], "jobs", "there is none"),
        ([], "jobs", "this is null"),
        ([[{**JOB, "context": ["x" * 1_000_001]}]], "jobs", "at most 1,000,000 are taken"),
        ([[JOB], "text"], "batch", "must be an object"),
        ([[JOB], {"max_cost_usd": "much"}], "max_cost_usd", "must be a number"),
        ([[JOB], {"max_cost_usd": 10**40}], "max_cost_usd", ""),
        ([[JOB], {"defaults": {"moode": 1}}], "config.moode", "unknown field"),
        ([[JOB], {"defaults": 5}], "defaults", "must be an object"),
        ([[JOB], {"colour": "red"}], "colour", "unknown field"),
        ([[{"query": "Why?", "belege": ["It is so."]}] * 2], "context", "Left over is 'belege'"),
    ]
    replies = [(send(producer, *arguments), field, text) for arguments, field, text in wrong]
    for result, field, text in replies:
        answer = result.get(timeout=scale_to_load(60))
        assert answer["batch_id"] is None
        error = answer["errors"][0]
        if text != "this is null":
            assert (error["position"], error["field"]) == (None, field)
        assert text in error["message"]
    assert system.scalar("SELECT count(*) FROM batch") == 0
    assert send(producer, [JOB]).get(timeout=scale_to_load(60))["errors"] == []


def orders(app: Celery) -> dict[str, Callable[[], Any]]:
    """Orders as users of Celery put them around a task; each returns the result that they wait for."""

    def task(name: str, *arguments: Any) -> Signature[Any]:
        signature: Signature[Any] = app.signature(f"nightdesk.{name}", args=arguments, immutable=True)
        return signature.set(queue=name if name in {"generate", "check"} else "submit")

    later = app.signature("their.task", immutable=True).set(queue="theirs")
    own = str(uuid4())
    return {
        "link": lambda: task("submit", [JOB]).apply_async(link=later),
        "link_error": lambda: task("submit", [JOB]).apply_async(link_error=later),
        "chain": (task("submit", [JOB]) | later).apply_async,
        "poll": lambda: task("poll", [own]).apply_async(link=later),
        "check": lambda: task("check", JOB).apply_async(),
    }


# Celery's chord leaves a socket of the client to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("protocol", [1, 2])
def test_what_celery_could_do_after_a_task_is_refused_in_words(system: System, producer: Celery, protocol: int) -> None:
    producer.conf.task_protocol = protocol
    system.start_worker()
    for name, order in orders(producer).items():
        if protocol == 1 and name.startswith("chain"):
            # Its messages name what comes next by their callbacks alone.
            continue
        with pytest.raises(InvalidTaskError, match=r"AsyncResult\(job_id\)\.get\(\)"):
            order().get(timeout=scale_to_load(60))
    assert system.scalar("SELECT count(*) FROM job") == 0
    # A group counts nothing on the way: each of its tasks has its own answer.
    jobs = [{**JOB, "query": f"When does desk {number} open?"} for number in range(2)]
    both = group([producer.signature("nightdesk.submit", args=[[job]]).set(queue="submit") for job in jobs])
    assert [answer["errors"] for answer in both.apply_async().get(timeout=scale_to_load(60))] == [[], []]
    system.until_final(2)


def test_another_worker_takes_the_submission_of_a_killed_one(system: System, producer: Celery) -> None:
    first = system.start_worker(visibility_timeout_s=2)
    with psycopg.connect(system.database_url) as connection:
        # The first worker waits here, with the message not acknowledged.
        connection.execute("LOCK TABLE batch IN EXCLUSIVE MODE")
        answer = send(producer, [JOB])
        system.until(
            lambda: system.scalar("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'batch'::regclass"),
            what="a submission that waits",
        )
        os.killpg(first.pid, signal.SIGKILL)
        first.wait(scale_to_load(10))
    system.start_worker(visibility_timeout_s=2)

    assert len(answer.get(timeout=scale_to_load(60))["job_ids"]) == 1
    system.until_final(1)
    assert system.scalar("SELECT count(*) FROM job") == 1


def test_messages_wait_in_redis_while_postgres_is_away(tmp_path: Path) -> None:
    with new_home() as home:
        servers = local.start(home.root)
        migrate(servers.database_url)
        system = System(servers.database_url, servers.redis_url, tmp_path)
        try:
            with celery_client(servers.redis_url) as producer:
                system.start_worker()
                assert send(producer, questions(2)).get(timeout=scale_to_load(60))["errors"] == []
                pid = local.status(home.root).postgres.pid
                assert pid is not None
                os.kill(pid, signal.SIGINT)
                system.until(lambda: not local.status(home.root).postgres.running, what="the end of PostgreSQL")
                waiting = [send(producer, questions(3)) for _ in range(3)]
                system.until(lambda: "reject requeue=True" in system.log(), what="a message that returns to its queue")
                waiting += [send(producer, questions(3)) for _ in range(3)]
                local.start(home.root)

                answers = [result.get(timeout=scale_to_load(90)) for result in waiting]

                assert {len(answer["job_ids"]) for answer in answers} == {3}
                assert len({job_id for answer in answers for job_id in answer["job_ids"]}) == 18
                assert system.scalar("SELECT count(*) FROM batch") == 7
                system.until_final(20)
                assert system.scalar("SELECT count(*) FROM job") == 20
        finally:
            system.stop()


def test_messages_are_taken_while_redis_lets_none_be_acknowledged(system: System, producer: Celery) -> None:
    with redis.Redis.from_url(system.redis_url) as admin:
        admin.acl_setuser(
            "worker", enabled=True, passwords=["+secret"], keys=["*"], channels=["*"], categories=["+@all"]
        )
        try:
            system.start_worker(redis_url=re.sub(r"//.*@", "//worker:secret@", system.redis_url))
            for refused in range(2 * WORKERS_TAKE_AT_ONCE):
                answer = producer.send_task("nightdesk.poll", args=[[]], queue="submit")
                assert answer.get(timeout=scale_to_load(60)) == [], f"after {refused} messages"
                admin.execute_command("ACL", "SETUSER", "worker", "-hdel")
        finally:
            admin.acl_deluser("worker")
