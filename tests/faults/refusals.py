"""The provider serves nobody: it refuses the key or the model, or it is not there at all."""

import os
import socket

from schemas.states import HeldReason
from tests.faults.ground import Account, Ground
from tests.faults.listing import JOBS, experiment
from tests.stub.server import running_stub

HELD = "job WHERE held_reason = 'lane_paused'"
MOST_CALLS = 8
"""Of 80 jobs: the few at once that a model is tried with, and as many that came meanwhile."""


def _held_then_released(here: Ground, code: int, outcome: str) -> Account:
    here.stub.error_rates = {code: 1.0}
    here.work()
    here.until(lambda: here.count(HELD) == JOBS, what="all jobs held")
    called = sum(here.stub.calls.values())
    assert called <= MOST_CALLS, f"{called} calls for a refusal that concerns all"
    assert here.count(f"attempt WHERE outcome = '{outcome}' AND NOT spent") == called
    # Not mended, a release costs as few calls again, and fails no job.
    assert here.ask(lambda ledger: ledger.release(None, HeldReason.LANE_PAUSED, "ada")) == JOBS
    here.until(
        lambda: here.count(HELD) == JOBS and sum(here.stub.calls.values()) > called,
        what="all jobs held again",
    )
    assert sum(here.stub.calls.values()) <= 2 * MOST_CALLS
    here.stub.error_rates = {}
    here.ask(lambda ledger: ledger.release(None, HeldReason.LANE_PAUSED, "ada"))
    here.mended()
    account = here.account(JOBS)
    assert here.count("job WHERE state = 'completed'") == JOBS
    return account


@experiment("a key that is refused: held after a few calls, then released", quick=True, latency_s=0.05)
def key_refused(here: Ground) -> Account:
    return _held_then_released(here, 401, "error:authentication")


@experiment("a model that does not exist: held after a few calls, then released", latency_s=0.05)
def unknown_model(here: Ground) -> Account:
    return _held_then_released(here, 404, "error:not_found")


@experiment("a server that is not there: few calls, told of soon, held in the end, then released", latency_s=0.05)
def server_away(here: Ground) -> Account:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ["OPENAI_BASE_URL"] = f"http://127.0.0.1:{port}/v1"
    here.work(unreachable_s=10)
    (notice, *_) = here.until(lambda: here.ask(lambda ledger: ledger.lane_notices()), what="somebody is told")
    assert f"127.0.0.1:{port}" in notice.why
    here.until(lambda: here.count(HELD) == JOBS, within_s=120, what="all jobs held")
    tried = here.count("attempt WHERE outcome = 'error:unavailable' AND NOT spent")
    assert tried == here.count("attempt") <= 2 * MOST_CALLS, f"{tried} calls to a server that is not there"
    with running_stub(port, latency_s=0.05) as provider:
        here.stub = provider
        assert here.ask(lambda ledger: ledger.release(None, HeldReason.LANE_PAUSED, "ada")) == JOBS
        here.mended()
        account = here.account(JOBS)
    assert here.count("job WHERE state = 'completed'") == JOBS
    return account
