"""The doctor of the command line, over workers that come and die."""

import os
import signal

import pytest

from tests.acceptance.command import Ended, run_here
from tests.acceptance.conftest import System, questions
from tests.deadlines import scale_to_load


def doctor(system: System, *options: str) -> Ended:
    return run_here(["doctor", *options], system.environment())


def checks(system: System) -> list[str]:
    return [finding["check"] for finding in doctor(system, "--json").json()["findings"]]


@pytest.mark.usefixtures("durable")
def test_a_queue_without_a_worker_is_reported_until_a_worker_starts(system: System) -> None:
    assert doctor(system, "--ping").code == 1
    system.submit(questions(3))
    system.start_worker("generate")
    system.until(lambda: doctor(system, "--ping").code == 0, what="a worker that listens")
    system.until(lambda: system.scalar("SELECT count(*) FROM job WHERE step = 'check'") == 3, what="answers")

    done = doctor(system)
    assert done.code == 1
    assert "no worker listens to the queue check; 3 jobs wait for it" in done.out
    assert checks(system) == ["queue_check", "queue_submit"]

    system.start_worker("check,submit")
    system.until_final(3)
    system.until(lambda: checks(system) == [], what="health")
    done = doctor(system)
    assert done.code == 0
    assert done.out.endswith("; all is well\n")


@pytest.mark.usefixtures("durable")
def test_a_killed_worker_is_reported_missing(system: System) -> None:
    worker = system.start_worker()
    system.until(lambda: checks(system) == [], what="health")
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait(scale_to_load(10))

    assert checks(system) == ["workers"]
    assert doctor(system, "--ping").code == 1


def test_an_unreachable_ledger_ends_with_its_own_code(system: System) -> None:
    system.database_url = "postgresql://someone:s3cret-canary@127.0.0.1:1/nowhere"
    done = doctor(system)
    assert done.code == 3
    assert "can't be reached" in done.out
    assert "s3cret-canary" not in done.out + done.err
    assert "Traceback" not in done.err
