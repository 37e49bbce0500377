"""The provider refuses, limits, breaks off, and answers what it should not."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from schemas.states import HeldReason
from tests.faults.ground import Account, Ground
from tests.faults.listing import JOBS, experiment
from tests.stub import faults
from tests.stub.streams import broken


@experiment("a share of 429, 500, 503 and 529", quick=True, error_rates={429: 0.1, 500: 0.05, 503: 0.05, 529: 0.05})
def refusals(here: Ground) -> Account:
    here.work()
    here.mended()
    return here.account(JOBS)


@experiment("connections reset after sending, bodies cut short, pages of HTML")
def broken_answers(here: Ground) -> Account:
    here.stub.then(
        *[faults.reset] * 5, *[faults.truncated] * 5, *[faults.raw(faults.HTML.encode(), "text/html")] * 3,
        *[faults.raw(b'{"id": ')] * 3, faults.status(502, faults.HTML), faults.status(504, faults.HTML),
    )  # fmt: skip
    here.work()
    here.mended()
    return here.account(JOBS)


@experiment("answers that drip, or never end", latency_s=0.2)
def dripping(here: Ground) -> Account:
    here.stub.then(*[faults.drip] * 5, *[faults.slow(30)] * 5)
    here.rows_changed("UPDATE job_request SET request = jsonb_set(request, '{config,timeout_s}', '3')")
    here.work()
    here.mended()
    return here.account(JOBS)


@experiment("429 with Retry-After in seconds, as a date, and of an hour", latency_s=0.2)
def retry_after(here: Ground) -> Account:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=8), usegmt=True)
    for waits in ("2", soon, "3600"):
        here.stub.then(*[faults.openai_error(429, "rate_limit_exceeded", retry_after=waits)] * 5)
    here.work()
    waiting = "job WHERE state = 'scheduled' AND scheduled_at > nightdesk_now() + interval '50 minutes'"
    here.until(
        lambda: here.count("job WHERE finished_at IS NOT NULL") == JOBS - 5,
        within_s=240,
        what="all but those of an hour",
    )
    assert here.count(waiting) == 5
    assert here.count("attempt WHERE spent") == 0, "a rate limit spends no attempt"
    here.rows_changed("UPDATE job SET scheduled_at = nightdesk_now() WHERE finished_at IS NULL")
    here.mended()
    return here.account(JOBS)


@experiment("quota used up and spend limits reached: held, then released")
def quota(here: Ground) -> Account:
    codes = ("insufficient_quota", "billing_hard_limit_reached")
    here.stub.then(*[faults.openai_error(429, code) for code in codes for _ in range(10)])
    here.work()
    here.until(
        lambda: (
            here.count("job WHERE held_reason = 'lane_paused'") + here.count("job WHERE finished_at IS NOT NULL")
            == JOBS
        ),
        what="all held or answered",
    )
    held = here.count("job WHERE held_reason = 'lane_paused'")
    assert held > 0
    assert here.count("attempt WHERE spent") == 0, "a limit of the account spends no attempt"
    # The lane was paused after the first of them: the limit is raised before it is released.
    here.stub.acts.clear()
    assert here.ask(lambda ledger: ledger.release(None, HeldReason.LANE_PAUSED, "ada")) == held
    here.mended()
    return here.account(JOBS)


@experiment("ramp limits: slow down, and too fast an increase", latency_s=0.2)
def ramp(here: Ground) -> Account:
    here.stub.then(
        *[faults.openai_error(503, "slow_down", retry_after="1")] * 10,
        *[faults.openai_error(429, "rate_limit_exceeded", "Your usage increased too quickly.")] * 10,
    )
    here.work()
    here.mended()
    account = here.account(JOBS)
    assert here.count("attempt WHERE spent") == 0, "a limit spends no attempt"
    return account


@experiment("streams that end without their end, with an error, or with rubbish", latency_s=0.2)
def broken_streams(here: Ground) -> Account:
    here.stub.then(*[broken(how) for how in ("truncate", "disconnect", "malformed", "error") for _ in range(5)])
    here.rows_changed("UPDATE job_request SET request = jsonb_set(request, '{config,stream}', 'true')")
    here.work()
    here.mended()
    account = here.account(JOBS)
    assert here.count("completion WHERE won AND finish_reason = 'interrupted'") == 0
    return account


@experiment("200 with a refusal, cut off at its length, or by a content filter", latency_s=0.2)
def unusual_ends(here: Ground) -> Account:
    here.stub.then(*[faults.changed(how) for how in (_refused, _too_long, _filtered) for _ in range(5)])
    here.work()
    here.mended()
    account = here.account(JOBS)
    assert here.count("job WHERE outcome = 'refused'") >= 5
    return account


@experiment("another model answers than was asked", latency_s=0.2)
def another_model(here: Ground) -> Account:
    here.stub.then(*[faults.changed(lambda answer: answer.update(model="gpt-3.5-turbo"))] * 10)
    here.work()
    here.mended()
    account = here.account(JOBS)
    returned = here.count("completion WHERE parsed -> 'snapshot' ->> 'model_returned' = 'gpt-3.5-turbo'")
    assert returned == 10, "what answered is on record"
    return account


@experiment("answers of 20 MB, rubbish nested 100,000 deep, and not even text", latency_s=0.2)
def monstrous(here: Ground) -> Account:
    here.stub.then(
        *[faults.changed(_huge)] * 3,
        *[faults.raw(b"[" * 100_000)] * 3,
        *[faults.raw(b"\xff\xfe\x00" * 1000)] * 3,
        *[faults.raw(b"")] * 3,
    )
    # The loop is busy for seconds with so much text: with leases of 3 s others would take the jobs meanwhile.
    worker = here.work(lease_s=30)
    here.mended()
    account = here.account(JOBS, within_s=180)
    assert worker.poll() is None
    return account


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
