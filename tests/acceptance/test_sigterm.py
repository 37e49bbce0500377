"""A worker told to stop lets its calls end, gives back the rest, and spends no attempt."""

import json
import signal

from tests.acceptance.conftest import System, questions
from tests.deadlines import scale_to_load


def test_on_sigterm_calls_under_way_end_and_other_jobs_stay(system: System) -> None:
    system.submit(questions(60))
    worker = system.start_worker("generate", slots=10, extractive_latency_s=2.0)
    system.until(lambda: system.scalar("SELECT count(*) FROM attempt WHERE closed_at IS NULL") >= 5, what="calls")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(scale_to_load(20)) == 0

    assert system.rows("SELECT DISTINCT outcome, spent FROM attempt") == [("ok", False)]
    assert system.scalar("SELECT count(*) FROM job WHERE state = 'running'") == 0
    answered = system.scalar("SELECT count(*) FROM job WHERE step = 'check'")
    assert answered == system.scalar("SELECT count(*) FROM completion") >= 5

    system.start_worker()
    system.until_final(60)
    assert system.scalar("SELECT count(*) FROM attempt") == 60


def test_calls_that_take_too_long_are_cut_off_as_unknown(system: System) -> None:
    system.submit(questions(5))
    worker = system.start_worker(slots=10, extractive_latency_s=60, drain_s=0.5)
    system.until(lambda: system.scalar("SELECT count(*) FROM attempt WHERE closed_at IS NULL") == 5, what="calls")
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(scale_to_load(30)) == 0

    assert system.rows("SELECT DISTINCT outcome, spent FROM attempt") == [("unknown", False)]
    assert system.rows("SELECT DISTINCT state FROM job") == [("available",)]
    assert "5 jobs were cut off" in system.log()
    lines = [json.loads(line) for line in system.log().splitlines() if line.startswith("{")]
    assert any(line["message"].startswith("ready: takes jobs of the queues generate") for line in lines), lines
    assert {line["worker"].rpartition(":")[2] for line in lines} == {str(worker.pid)}
