"""The provider refuses, limits, breaks off, and answers what it should not."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from schemas.states import HeldReason
from tests.faults.lab import Lab, Report
from tests.faults.registry import JOBS, experiment
from tests.stub import faults
from tests.stub.streams import broken


@experiment("a share of 429, 500, 503 and 529", error_rates={429: 0.1, 500: 0.05, 503: 0.05, 529: 0.05})
def refusals(lab: Lab) -> Report:
    lab.work()
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("connections reset after sending, bodies cut short, pages of HTML")
def broken_answers(lab: Lab) -> Report:
    lab.stub.then(
        *[faults.reset] * 5, *[faults.truncated] * 5, *[faults.raw(faults.HTML.encode(), "text/html")] * 3,
        *[faults.raw(b'{"id": ')] * 3, faults.status(502, faults.HTML), faults.status(504, faults.HTML),
    )  # fmt: skip
    lab.work()
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("answers that drip, or never end", latency_s=0.2)
def dripping(lab: Lab) -> Report:
    lab.stub.then(*[faults.drip] * 5, *[faults.slow(30)] * 5)
    lab.execute("UPDATE job_request SET head = jsonb_set(head, '{config,timeout_s}', '3')")
    lab.work()
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("429 with Retry-After in seconds, as a date, and of an hour", latency_s=0.2)
def retry_after(lab: Lab) -> Report:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=8), usegmt=True)
    for waits in ("2", soon, "3600"):
        lab.stub.then(*[faults.openai_error(429, "rate_limit_exceeded", retry_after=waits)] * 5)
    lab.work()
    waiting = "job WHERE state = 'scheduled' AND scheduled_at > nightdesk_now() + interval '50 minutes'"
    lab.until(
        lambda: lab.count("job WHERE finished_at IS NOT NULL") == JOBS - 5,
        within_s=240,
        what="all but those of an hour",
    )
    assert lab.count(waiting) == 5
    assert lab.count("attempt WHERE spent") == 0, "a rate limit spends no attempt"
    lab.execute("UPDATE job SET scheduled_at = nightdesk_now() WHERE finished_at IS NULL")
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("quota used up and spend limits reached: held, then released")
def quota(lab: Lab) -> Report:
    codes = ("insufficient_quota", "billing_hard_limit_reached")
    lab.stub.then(*[faults.openai_error(429, code) for code in codes for _ in range(10)])
    lab.work()
    lab.until(
        lambda: (
            lab.count("job WHERE held_reason = 'lane_paused'") + lab.count("job WHERE finished_at IS NOT NULL") == JOBS
        ),
        what="all held or answered",
    )
    held_jobs = lab.count("job WHERE held_reason = 'lane_paused'")
    assert held_jobs > 0
    assert lab.count("attempt WHERE spent") == 0, "a limit of the account spends no attempt"
    # The lane was paused after the first of them: the limit is raised before it is released.
    lab.stub.acts.clear()
    assert lab.with_ledger(lambda ledger: ledger.actions.release(None, HeldReason.LANE_PAUSED, "ada")) == held_jobs
    lab.start_recovery()
    return lab.report(JOBS)


@experiment("ramp limits: slow down, and too fast an increase", latency_s=0.2)
def ramp(lab: Lab) -> Report:
    lab.stub.then(
        *[faults.openai_error(503, "slow_down", retry_after="1")] * 10,
        *[faults.openai_error(429, "rate_limit_exceeded", "Your usage increased too quickly.")] * 10,
    )
    lab.work()
    lab.start_recovery()
    report = lab.report(JOBS)
    assert lab.count("attempt WHERE spent") == 0, "a limit spends no attempt"
    return report


@experiment("streams that end without their end, with an error, or with rubbish", latency_s=0.2)
def broken_streams(lab: Lab) -> Report:
    lab.stub.then(*[broken(how) for how in ("truncate", "disconnect", "malformed", "error") for _ in range(5)])
    lab.execute("UPDATE job_request SET head = jsonb_set(head, '{config,stream}', 'true')")
    lab.work()
    lab.start_recovery()
    report = lab.report(JOBS)
    assert lab.count("completion WHERE won AND finish_reason = 'interrupted'") == 0
    return report


@experiment("200 with a refusal, cut off at its length, or by a content filter", latency_s=0.2)
def unusual_ends(lab: Lab) -> Report:
    lab.stub.then(*[faults.changed(how) for how in (_refused, _too_long, _filtered) for _ in range(5)])
    lab.work()
    lab.start_recovery()
    report = lab.report(JOBS)
    assert lab.count("job WHERE outcome = 'refused'") >= 5
    return report


@experiment("another model answers than was asked", latency_s=0.2)
def another_model(lab: Lab) -> Report:
    lab.stub.then(*[faults.changed(lambda answer: answer.update(model="gpt-3.5-turbo"))] * 10)
    lab.work()
    lab.start_recovery()
    report = lab.report(JOBS)
    returned = lab.count("completion WHERE parsed -> 'snapshot' ->> 'model_returned' = 'gpt-3.5-turbo'")
    assert returned == 10, "what answered is on record"
    return report


@experiment("answers of 20 MB, rubbish nested 100,000 deep, and not even text", latency_s=0.2)
def monstrous(lab: Lab) -> Report:
    lab.stub.then(
        *[faults.changed(_huge)] * 3,
        *[faults.raw(b"[" * 100_000)] * 3,
        *[faults.raw(b"\xff\xfe\x00" * 1000)] * 3,
        *[faults.raw(b"")] * 3,
    )
    worker = lab.work()
    lab.start_recovery()
    report = lab.report(JOBS, within_s=180)
    assert worker.poll() is None
    return report


def _text(answer: dict[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = answer["output"][-1]["content"][0]
    return part


def _refused(answer: dict[str, Any]) -> None:
    answer["output"][-1]["content"] = [{"type": "refusal", "refusal": "I can't help with that."}]


def _too_long(answer: dict[str, Any]) -> None:
    answer.update(status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    _text(answer)["text"] = _text(answer)["text"][:40]


def _filtered(answer: dict[str, Any]) -> None:
    answer.update(status="incomplete", incomplete_details={"reason": "content_filter"})


def _huge(answer: dict[str, Any]) -> None:
    _text(answer)["text"] = "x" * 20_000_000
