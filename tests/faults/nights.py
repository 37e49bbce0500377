"""A night is cut off as a whole, and a cascade between two of its models."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson

from tests.acceptance.conftest import questions
from tests.faults.lab import Lab, Report
from tests.faults.registry import JOBS, experiment
from tests.stub.answers import ANSWERS, responses

NIGHT = 400

WEAK, STRONG = "gpt-6-luna", "gpt-6-sol"
_WRONG = {"text": "Mars has purple oceans of warm lemonade.", "citations": [{"source": 1, "quote": "closes at noon"}]}


@experiment("workers and servers killed at half of a night", jobs=NIGHT, latency_s=1.0)
def all_killed_at_half(lab: Lab) -> Report:
    for _ in range(2):
        lab.work()
    lab.until_answered(NIGHT // 2)
    for worker in lab.workers:
        lab.kill(worker)
    lab.crash("postgres")
    lab.crash("valkey")
    called = sum(lab.stub.calls.values())
    lab.restart()
    in_flight = called - lab.count("completion")
    lab.start_recovery()
    for _ in range(2):
        lab.work()
    report = lab.report(NIGHT)
    assert report.calls <= NIGHT + in_flight, f"{report.calls} calls, {in_flight} in flight at the kill"
    note = f"{called} calls at the kill, {in_flight} in flight; {report.calls} in all for {NIGHT} jobs"
    return lab.assert_settled(report).with_note(note)


@contextmanager
def wrong_weak_answers() -> Iterator[None]:
    """Lets the weak model of every stub of this process answer without support."""
    before = ANSWERS["/v1/responses"]

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        response = responses(body)
        if body["model"] == WEAK:
            text = orjson.dumps({"sufficient": True, "segments": [_WRONG]}).decode()
            response["output"][-1]["content"][0]["text"] = text
        return response

    ANSWERS["/v1/responses"] = answer
    try:
        yield
    finally:
        ANSWERS["/v1/responses"] = before


@experiment("a worker killed between two models of a cascade, and in the calls of the second", jobs=0, latency_s=1.0)
def killed_between_levels(lab: Lab) -> Report:
    lab.settings = {"default_judge_share": 0}
    config = {"strictness": "strict", "model": WEAK, "escalate": [f"openai:{STRONG}"]}
    with wrong_weak_answers():
        batch_id, _ = lab.submit([{**job, "config": config} for job in questions(JOBS)])
        worker = lab.work()
        lab.until(lambda: lab.count("job WHERE round = 2") > 0, what="a job on its way to the second model")
        lab.kill(worker)
        between = lab.count("job WHERE round = 2 AND state <> 'running'")
        worker = lab.work()
        lab.until(
            lambda: lab.count("attempt WHERE round = 2 AND closed_at IS NULL") > 5, what="calls of the second model"
        )
        lab.kill(worker)
        lab.start_recovery()
        lab.work()
        report = lab.report(JOBS)
        # The same files with the same key would find these jobs; each was answered by the second model.
        assert lab.count("job WHERE outcome = 'answered' AND round = 2") == JOBS
    answers = dict(lab.rows("SELECT round::int, count(*) FROM completion WHERE won GROUP BY 1"))
    assert answers == {0: JOBS, 2: JOBS}, answers
    # Of those with an unknown outcome some were cut off before they reached the provider.
    assert report.calls <= 2 * JOBS + report.unknown, f"{report.calls} calls, {report.unknown} of unknown outcome"
    assert lab.scalar("SELECT reserved_usd FROM batch WHERE id = %s", batch_id) == 0
    return lab.assert_settled(report).with_note(f"{between} jobs between two models at the kill")
