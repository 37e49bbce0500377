"""A worker is killed with calls under way: nothing is lost, and the attempts show what was cut off."""

import os
import signal

from tests.acceptance.conftest import System, questions
from tests.deadlines import scale_to_load

JOBS = 60


def test_another_worker_finishes_what_a_killed_one_began(system: System) -> None:
    system.submit(questions(JOBS))
    killed = system.start_worker(slots=20, extractive_latency_s=1.0)
    # Some answers are in and a full set of calls is under way.
    system.until(lambda: system.scalar("SELECT count(*) FROM attempt WHERE outcome = 'ok'") >= 10, what="answers")
    system.until(lambda: system.scalar("SELECT count(*) FROM attempt WHERE closed_at IS NULL") >= 5, what="open calls")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait(scale_to_load(10))
    cut_off = system.scalar("SELECT count(*) FROM attempt WHERE closed_at IS NULL")
    assert cut_off >= 1

    system.start_worker(slots=20)
    system.until_final(JOBS)

    assert system.rows("SELECT state, count(*) FROM job GROUP BY state") == [("completed", JOBS)]
    assert system.scalar("SELECT count(*) FROM generation_record") == JOBS
    # What was cut off is visible, and was called again exactly once.
    assert system.scalar("SELECT count(*) FROM attempt WHERE outcome = 'unknown'") == cut_off
    assert system.scalar("SELECT count(*) FROM attempt WHERE outcome = 'ok'") == JOBS
    assert system.scalar("SELECT count(*) FROM attempt WHERE closed_at IS NULL") == 0
    assert system.scalar("SELECT count(DISTINCT job_id) FROM job_event WHERE kind = 'rescue'") >= cut_off


def test_no_job_with_a_stored_answer_is_called_again(system: System) -> None:
    system.submit(questions(JOBS))
    killed = system.start_worker("generate", slots=30, extractive_latency_s=0.2)
    system.until(lambda: system.scalar("SELECT count(*) FROM completion") >= 20, what="answers")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait(scale_to_load(10))
    answered = [row[0] for row in system.rows("SELECT job_id FROM completion")]

    system.start_worker(slots=30)
    system.until_final(JOBS)

    again = "SELECT count(*) FROM (SELECT job_id FROM attempt WHERE job_id = ANY(%s) GROUP BY 1 HAVING count(*) > 1) a"
    assert system.scalar(again, answered) == 0
