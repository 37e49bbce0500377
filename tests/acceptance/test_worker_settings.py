"""Settings of a worker that change what it does: each run with a value under which something else happens than by default."""

from collections.abc import Iterator

import pytest

from tests.acceptance.conftest import System, questions
from tests.providers import KEY
from tests.stub import faults
from tests.stub.judge import JUDGE
from tests.stub.server import Stub, running_stub


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    with running_stub() as stub:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        yield stub


def test_a_call_of_the_judge_has_its_own_time_and_tokens(
    system: System, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = "Villages in the valley get the paper by lorry while it is still dark."
    source = "Each night lorries carry the paper to the villages of the valley before dawn."
    monkeypatch.setattr(JUDGE, "truth", {claim: source})
    # Whoever waited for the judge would not end within the test.
    stub.latency_s = 3_600.0
    job = {"response": claim, "context": [source], "config": {"checkers": ["structure", "lexical", "judge"]}}
    system.submit([job])
    system.start_worker(judge="openai", provider="extractive", judge_timeout_s=0.5, judge_max_tokens=333)
    system.until_final(1)

    ((grounding,),) = system.rows("SELECT grounding FROM generation_record")
    assert (grounding["claims"][0]["verdict"], list(grounding["failed_checkers"])) == ("unchecked", ["judge"])
    judged = [request.json for request in stub.requests if "input" in request.json]
    assert {request["max_output_tokens"] for request in judged} == {333}


def test_a_process_holds_no_more_bytes_of_requests_than_it_may(system: System) -> None:
    # Half of a million bytes for each step: one of these jobs at a time.
    system.submit([{**job, "context": [*job["context"], "x" * 700_000]} for job in questions(6)])
    system.start_worker(provider="extractive", extractive_latency_s=0.2, slots=50, max_bytes_in_flight=1_000_000)
    system.until_final(6)

    overlap = """SELECT max(calls) FROM (SELECT count(*) AS calls FROM attempt a
                 JOIN attempt b ON b.opened_at <= a.opened_at AND b.closed_at > a.opened_at GROUP BY a.id) at_once"""
    assert system.scalar(overlap) == 1


def test_answers_are_shared_for_no_longer_than_they_may(system: System, stub: Stub) -> None:
    stub.latency_s = 0.3
    system.submit([*questions(1), {**questions(1)[0], "custom_id": "same"}])
    system.start_worker(provider="openai", share_answers='["default"]', share_wait_s=0, share_within_s=0.1)
    system.until_final(2)
    assert sum(stub.calls.values()) == 2, "none waits for the call of the other"
    # The ledger's clock decides, and nothing else happens meanwhile.
    old = "SELECT max(stored_at) < nightdesk_now() - interval '0.2 s' FROM completion"
    system.until(lambda: system.scalar(old), what="answers that are older than they may")
    system.submit([{**questions(1)[0], "custom_id": "later"}])
    system.until_final(3)
    assert sum(stub.calls.values()) == 3, "the answers are too old"


def test_a_paused_lane_is_tried_again_after_the_time_of_the_settings(system: System, stub: Stub) -> None:
    stub.then(*[faults.openai_error(401, "invalid_api_key")] * 3)
    system.submit(questions(3))
    system.start_worker(provider="openai", slots=1, lane_retry_s=1)
    system.until_final(3)
    holds = "SELECT count(*) FROM job_event WHERE kind = 'hold' AND detail ->> 'held_reason' = 'lane_paused'"
    assert system.scalar(holds) > 0
    assert system.rows("SELECT DISTINCT outcome FROM job") == [("answered",)]
