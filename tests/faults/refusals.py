"""The provider serves no one: it refuses the key or the model, or it is not there at all."""

import os
import socket

from schemas.states import HeldReason
from tests.faults.lab import Lab, Report
from tests.faults.registry import JOBS, experiment
from tests.stub.faults import Act, openai_error
from tests.stub.server import running_stub

PAUSED_JOBS = "job WHERE held_reason = 'lane_paused'"
MOST_CALLS = 8
"""Of 80 jobs: the few at once that a model is tried with, and as many that came meanwhile."""


def _held_then_released(lab: Lab, refusal: Act, outcome: str) -> Report:
    lab.stub.then(*[refusal] * 3 * JOBS)
    lab.work()
    lab.until(lambda: lab.count(PAUSED_JOBS) == JOBS, what="all jobs held")
    called = sum(lab.stub.calls.values())
    assert called <= MOST_CALLS, f"{called} calls for a refusal that concerns all"
    assert lab.count(f"attempt WHERE outcome = '{outcome}' AND NOT spent") == called
    # Without a fix, a release costs as few calls again, and fails no job.
    assert lab.with_ledger(lambda ledger: ledger.actions.release(None, HeldReason.LANE_PAUSED, "ada")) == JOBS
    lab.until(
        lambda: lab.count(PAUSED_JOBS) == JOBS and sum(lab.stub.calls.values()) > called,
        what="all jobs held again",
    )
    assert sum(lab.stub.calls.values()) <= 2 * MOST_CALLS
    lab.stub.acts.clear()
    lab.with_ledger(lambda ledger: ledger.actions.release(None, HeldReason.LANE_PAUSED, "ada"))
    lab.start_recovery()
    report = lab.report(JOBS)
    assert lab.count("job WHERE state = 'completed'") == JOBS
    return report


@experiment("a key that is refused: held after a few calls, then released", latency_s=0.05)
def key_refused(lab: Lab) -> Report:
    return _held_then_released(lab, openai_error(401, "invalid_api_key"), "error:authentication")


@experiment("a model that does not exist: held after a few calls, then released", latency_s=0.05)
def unknown_model(lab: Lab) -> Report:
    return _held_then_released(lab, openai_error(404, "model_not_found"), "error:not_found")


@experiment("a parameter that is refused: held after a few calls, then released", latency_s=0.05)
def parameter_refused(lab: Lab) -> Report:
    refusal = openai_error(400, "unsupported_value", "Unsupported parameter: 'temperature'")
    return _held_then_released(lab, refusal, "error:parameter")


@experiment("an unreachable server: few calls, reported soon, held in the end, then released", latency_s=0.05)
def server_away(lab: Lab) -> Report:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ["OPENAI_BASE_URL"] = f"http://127.0.0.1:{port}/v1"
    lab.work(unreachable_s=10)
    (notice, *_) = lab.until(
        lambda: lab.with_ledger(lambda ledger: ledger.fleet.lane_notices()), what="a notice of the lane"
    )
    assert f"127.0.0.1:{port}" in notice.why
    lab.until(lambda: lab.count(PAUSED_JOBS) == JOBS, within_s=120, what="all jobs held")
    tried = lab.count("attempt WHERE outcome = 'error:unavailable' AND NOT spent")
    assert tried == lab.count("attempt") <= 2 * MOST_CALLS, f"{tried} calls to a server that is not there"
    with running_stub(port, latency_s=0.05) as provider:
        lab.stub = provider
        assert lab.with_ledger(lambda ledger: ledger.actions.release(None, HeldReason.LANE_PAUSED, "ada")) == JOBS
        lab.start_recovery()
        report = lab.report(JOBS)
    assert lab.count("job WHERE state = 'completed'") == JOBS
    return report
