"""Records and results: whole, compact, and for jobs that are not final."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import orjson
import pytest

from schemas.record import JobResult
from schemas.states import JobState, Outcome, Step
from tasks.ports import Leased
from tasks.results import COMPACT_BYTES, compact, result_of, view_of_final
from tests.builders import make_batch, make_final, make_jobs, make_record, make_request
from tests.lent_ledger import LentLedger


def leased(**request: object) -> tuple[LentLedger, Leased]:
    ledger = LentLedger()

    async def scenario() -> Leased:
        await ledger.submission.submit(make_batch(), [make_jobs(make_request(**request))])
        (job,) = await ledger.queue.lease(Step.GENERATE, "w", timedelta(seconds=60), 1)
        return job

    return ledger, asyncio.run(scenario())


def result(**changes: object) -> JobResult:
    ledger, job = leased(metadata={"ticket": 7})
    final = make_final(job, record=make_record(job, **changes))

    async def scenario() -> JobResult:
        await ledger.queue.finish([final])
        (view,) = await ledger.reading.views([job.job_id])
        return result_of(view)

    return asyncio.run(scenario())


def test_a_job_that_is_not_final_has_a_result_that_says_where_it_is() -> None:
    ledger, job = leased()
    (view,) = asyncio.run(ledger.reading.views([job.job_id]))
    result = result_of(view)

    assert (result.state, result.outcome, result.response) == (JobState.RUNNING, None, "")
    assert result.sources_provided == 1


def test_the_compact_form_leaves_out_evidence_snapshot_and_timings() -> None:
    compact_json = orjson.loads(compact(result()))

    assert compact_json["outcome"] == Outcome.ANSWERED
    assert compact_json["metadata"] == {"ticket": 7}
    assert not {"timing_ms", "provider_snapshot"} & compact_json.keys()
    assert all("evidence" not in claim for claim in compact_json["claims"])
    assert compact_json["truncated"] is False


def test_a_result_that_is_too_large_is_cut_and_says_so() -> None:
    compact_bytes = compact(result(answer="ö" * 200_000))

    assert len(compact_bytes) <= COMPACT_BYTES
    compact_json = orjson.loads(compact_bytes)
    assert compact_json["truncated"] is True
    assert compact_json["response"].startswith("öö")
    assert JobResult.model_validate(compact_json).cost_usd == Decimal(0)


def test_a_result_names_its_message_trace_and_prompt() -> None:
    ledger, job = leased(message_id="m-7", trace_id="t-7")
    final = make_final(job, record=make_record(job, prompt_version="2.0"))
    result = result_of(view_of_final(final, datetime.now(UTC)))
    assert (result.message_id, result.trace_id, result.prompt_version) == ("m-7", "t-7", "2.0")

    (view,) = asyncio.run(ledger.reading.views([job.job_id]))
    assert (result_of(view).message_id, result_of(view).prompt_version) == ("m-7", None)


@pytest.mark.parametrize("answer", ["", " \n"])
def test_no_final_text_is_empty(answer: str) -> None:
    assert "empty" in result(answer=answer).response


@pytest.mark.parametrize(
    ("state", "config", "expected"),
    [
        (JobState.EXPIRED, {}, "its deadline passed"),
        (JobState.EXPIRED, {"language": "de"}, "Frist ist abgelaufen"),
        (JobState.CANCELLED, {}, "it was cancelled"),
        (JobState.CANCELLED, {"fallback_messages": {"failed": "Sorry."}}, "Sorry."),
    ],
)
def test_a_job_that_ended_without_a_worker_has_a_text(
    state: JobState, config: dict[str, object], expected: str
) -> None:
    ledger = LentLedger()

    async def scenario() -> JobResult:
        request = make_request(config=config, deadline=datetime.now(UTC) + timedelta(hours=1))
        receipt = await ledger.submission.submit(make_batch(), [make_jobs(request)])
        if state is JobState.CANCELLED:
            await ledger.actions.cancel(receipt.job_ids, "ada")
        else:
            ledger.advance(timedelta(hours=2))
            await ledger.duties.expire(10)
        (view,) = await ledger.reading.views(receipt.job_ids)
        return result_of(view)

    result = asyncio.run(scenario())
    assert result.state is state
    assert expected in result.response
