"""Workers of urgent jobs alone: they take nothing else, the others leave these to them, and do them where they can't."""

import os
import signal
from typing import Any

from celery import Celery

from tests.acceptance.conftest import System, questions
from tests.deadlines import scale_to_load

URGENT_ROW = "SELECT count(*) FROM worker WHERE steps = '{urgent}'"


def send(app: Celery, jobs: list[dict[str, Any]]) -> None:
    receipt = app.send_task("nightdesk.submit", args=[jobs], queue="submit").get(timeout=scale_to_load(60))
    assert all(receipt["job_ids"])


def urgent(count: int) -> list[dict[str, Any]]:
    return [{**job, "priority": 1} for job in questions(count)]


def test_each_worker_does_its_own_jobs(system: System, producer: Celery) -> None:
    of_urgent = system.start_worker("urgent")
    system.until(lambda: system.scalar(URGENT_ROW), what="a beat")
    # Its first beat tells it of the other, before it takes anything.
    system.start_worker()
    send(producer, questions(20))
    done_there = "SELECT count(*) FROM job WHERE finished_at IS NOT NULL AND priority > 0 AND worker LIKE %s"

    def is_done_there() -> bool:
        # One that waited for half a second on a busy machine is anyone's.
        send(producer, urgent(1))
        system.until(lambda: not system.scalar("SELECT count(*) FROM job WHERE finished_at IS NULL AND priority > 0"))
        return bool(system.scalar(done_there, f"%:{of_urgent.pid}"))

    system.until(is_done_there, what="an urgent job done by the worker for them")
    system.until(lambda: not system.scalar("SELECT count(*) FROM job WHERE finished_at IS NULL"))
    assert system.scalar("SELECT count(*) FROM job WHERE priority = 0 AND worker LIKE %s", f"%:{of_urgent.pid}") == 0
    assert system.scalar("SELECT count(*) FROM job WHERE state <> 'completed'") == 0


def test_another_worker_does_the_jobs_of_a_killed_one(system: System, producer: Celery) -> None:
    killed = system.start_worker("urgent", extractive_latency_s=300)
    send(producer, urgent(3))
    system.until(lambda: system.scalar("SELECT count(*) FROM attempt WHERE closed_at IS NULL") == 3, what="open calls")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait(scale_to_load(10))

    # It said a moment ago that it is there, so this one leaves urgent jobs and submissions to it at first.
    system.start_worker()
    send(producer, urgent(2))
    system.until_final(5)

    assert system.rows("SELECT state, count(*) FROM job GROUP BY state") == [("completed", 5)]
    assert system.scalar("SELECT count(*) FROM attempt WHERE outcome = 'unknown'") == 3
    assert system.scalar("SELECT count(*) FROM attempt WHERE outcome = 'ok'") == 5
    assert system.scalar("SELECT count(*) FROM attempt WHERE closed_at IS NULL") == 0
