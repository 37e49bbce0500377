"""Redis loses everything, or is not there at all: jobs become final all the same, and results can be fetched."""

import json
import subprocess
import sys
import textwrap

import redis
from celery.result import AsyncResult

from tests.acceptance.conftest import System, questions
from tests.celery_client import celery_client
from tests.deadlines import scale_to_load

JOBS = 60


def test_jobs_finish_and_every_result_answers_after_flushall(system: System) -> None:
    _, job_ids = system.submit(questions(JOBS))
    system.start_worker("generate,submit", slots=20, extractive_latency_s=0.3)
    system.start_worker("check")
    system.until(lambda: system.scalar("SELECT count(*) FROM job WHERE result_published_at IS NOT NULL") >= 20)
    with redis.Redis.from_url(system.redis_url) as client:
        client.flushall()

    system.until_final(JOBS)

    with celery_client(system.redis_url) as app:
        results = [AsyncResult(str(job_id), app=app).get(timeout=scale_to_load(30)) for job_id in job_ids]
    assert [result["state"] for result in results] == ["completed"] * JOBS
    assert [result["job_id"] for result in results] == [str(job_id) for job_id in job_ids]
    # Nothing was paid for again.
    assert system.scalar("SELECT count(*) FROM attempt") == JOBS


PRODUCER = textwrap.dedent("""
    import json, sys
    from celery import Celery
    from celery.result import AsyncResult

    app = Celery(broker=sys.argv[1], backend=sys.argv[1])
    job_id = "0192f0c1-2d3e-7abc-8def-0123456789ab"
    job = {"job_id": job_id, "query": "When does the desk open its doors?", "context": ["The desk opens its doors at nine."]}
    answer = app.send_task("nightdesk.submit", args=[[job, {"query": ""}]], queue="submit").get(timeout=float(sys.argv[2]))
    result = AsyncResult(job_id, app=app).get(timeout=float(sys.argv[2]))
    polled = app.send_task("nightdesk.poll", args=[[job_id]], queue="submit").get(timeout=float(sys.argv[2]))
    ours = sorted({name.partition(".")[0] for name in sys.modules} & {"worker", "tasks", "schemas"})
    print(json.dumps({"answer": answer, "result": result, "polled": polled, "ours": ours}))
""")


def test_a_producer_needs_nothing_but_celery(system: System) -> None:
    system.start_worker()
    done = subprocess.run(
        [sys.executable, "-c", PRODUCER, system.redis_url, str(scale_to_load(60))],
        capture_output=True, text=True, timeout=scale_to_load(120), check=True, cwd=system.logs,
    )  # fmt: skip
    reply = json.loads(done.stdout)

    assert reply["ours"] == []
    assert reply["answer"]["job_ids"] == ["0192f0c1-2d3e-7abc-8def-0123456789ab", None]
    assert reply["answer"]["errors"][0]["position"] == 1
    assert reply["result"]["response"] == "The desk opens its doors at nine [1]."
    assert reply["polled"][0]["claims"][0]["evidence"][0]["source_index"] == 0
    assert reply["polled"][0]["outcome"] == reply["result"]["outcome"] == "answered"
