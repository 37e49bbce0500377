"""Providers that fail for ever, each in its own way: the fallback of the settings answers, and the ledger says why.

A worker process, real servers and the real SDKs, over HTTP.
"""

import json
from contextlib import ExitStack

import pytest

from tests.acceptance.conftest import System, questions, system
from tests.providers import KEY
from tests.stored_records import SNAPSHOT
from tests.stub.server import running_stub

__all__ = ["system"]

FAILING = {401: "authentication", 400: "invalid_request", 500: "unknown_outcome"}
"""By status: what the failure is called."""


def test_the_fallback_answers_for_each_and_a_broken_one_does_no_harm(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        stubs = {code: stack.enter_context(running_stub(error_rates={code: 1.0})) for code in FAILING}
        answering = stack.enter_context(running_stub())
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", answering.url)
        providers = {
            f"p{code}": {"preset": "vllm", "base_url": f"{stub.url}/v1", "model": "m"} for code, stub in stubs.items()
        }
        jobs = [
            {**job, "config": {"provider": f"p{code}", "max_attempts": 2}}
            for job, code in zip(questions(len(FAILING)), FAILING, strict=True)
        ]
        _, ids = system.submit(jobs)
        # Gemini has no key here.
        system.start_worker(providers=json.dumps(providers), fallbacks='["gemini", "anthropic"]')
        system.until_final(len(FAILING))

        assert {code: sum(stub.calls.values()) for code, stub in stubs.items()} == {401: 1, 400: 1, 500: 2}
        assert sum(answering.answered.values()) == len(FAILING)

    for code, job_id in zip(FAILING, ids, strict=True):
        state, outcome, snapshot, quality = system.rows(
            f"SELECT j.state, j.outcome, {SNAPSHOT}, g.quality FROM job j JOIN generation_record g"
            " ON g.job_id = j.id WHERE j.id = %s",
            job_id,
        )[0]
        assert (state, outcome) == ("completed", "answered")
        assert snapshot["provider"] == "anthropic"
        before = [f"p{code}: {FAILING[code]}", "gemini: configuration"]
        assert snapshot["fallback_from"] == before
        assert f"answered by the fallback anthropic after {', '.join(before)}" in quality["warnings"]
        attempts = system.rows("SELECT provider, outcome FROM attempt WHERE job_id = %s ORDER BY number", job_id)
        failed = "unknown" if code == 500 else f"error:{FAILING[code]}"
        assert attempts == [(f"p{code}", failed)] * (2 if code == 500 else 1) + [("anthropic", "ok")]
