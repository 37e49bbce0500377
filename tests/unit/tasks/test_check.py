"""The check step's thinking: what becomes of an answer, by its form, its claims and the policy asked for."""
# ruff: noqa: RUF001 - other scripts are meant

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest

from schemas.generation import AnswerProtocol, CheckerName
from schemas.grounding import Verdict
from schemas.job import JobRequest
from schemas.model_call import Completion, Correction, FinishReason, Usage
from schemas.record import RecordStatus
from schemas.states import JobState, Outcome, Step
from tasks import check
from tasks.check import AnotherRound, Check, Result, ToJudge, add_verdicts, run_checkers
from tasks.grounding.judge.verdicts import NO_JUDGE
from tasks.policy.outcome import MAX_WARNED
from tasks.ports import FinalJob, Leased
from tasks.prompting.messages import render
from tests.builders import (
    closed_ok,
    lease_for_check,
    make_answer,
    make_attempt,
    make_batch,
    make_completion,
    make_jobs,
    to_check,
)
from tests.fakes.inline import Inline
from tests.lent_ledger import LentLedger
from worker.process.journal import LedgerJournal

LEASE = timedelta(seconds=60)
SOURCE = "The night desk opens at nine in the evening. The morning edition is printed in Port Lune at four."
GOOD = "The night desk opens at nine in the evening [1]."
BAD = "The editor eats forty pancakes with syrup each Sunday [1]."


def leased_for_check(request: JobRequest, text: str, **completion: Any) -> Leased:
    """A job in its check; its answer has this text, unless the request supplies one."""
    return lease_for_check(request, make_completion(text, **completion))


def stored_for_check(ledger: LentLedger, request: JobRequest, text: str) -> Leased:
    """A job in its check, with its answer in the ledger."""

    async def scenario() -> Leased:
        await ledger.submission.submit(make_batch(), [make_jobs(request)])
        if not request.check_only:
            (job,) = await ledger.queue.lease(Step.GENERATE, "w", LEASE, 1)
            attempt = make_attempt(job)
            await ledger.attempts.open_attempts([attempt])
            answer = replace(make_answer(text), prompt=render(request, AnswerProtocol.MARKERS))
            await ledger.attempts.close_attempts([closed_ok(job, attempt, answer=answer, then=to_check(job))])
        (job,) = await ledger.queue.lease(request.config.check_step, "w", LEASE, 1)
        return job

    return asyncio.run(scenario())


def request_with(**config: Any) -> JobRequest:
    """A request of which claims that words can't decide count as unsupported."""
    config = {"strictness": "strict", **config}
    return JobRequest(query="When does the desk open?", context=({"content": SOURCE},), config=config)


def examine(job: Leased, leased_at: float) -> Result:
    """Check an answer without a judge: its open claims stay unchecked."""
    first = run_checkers(job, leased_at)
    return add_verdicts(first, NO_JUDGE) if isinstance(first, ToJudge) else first


def examined(text: str, completion: dict[str, Any] | None = None, **config: Any) -> FinalJob:
    final = examine(leased_for_check(request_with(**config), text, **(completion or {})), monotonic())
    assert isinstance(final, FinalJob)
    return final


def test_an_answer_as_long_as_it_may_be_is_not_too_long() -> None:
    length = len(examined(GOOD).record.answer)
    assert examined(GOOD, max_response_length=length).outcome is Outcome.ANSWERED
    longer = examine(leased_for_check(request_with(max_response_length=length - 1), GOOD), monotonic())
    assert not isinstance(longer, FinalJob), "it is asked again"


def test_warnings_of_many_claims_are_bounded_and_the_rest_is_counted() -> None:
    final = examined(" ".join(f"Desk {number} of Mars serves purple lemonade [1]." for number in range(MAX_WARNED + 3)))
    assert final.record.quality is not None
    warnings = final.record.quality.warnings
    assert len(warnings) == MAX_WARNED + 1
    assert warnings[-1] == "3 more claims are not supported, not decided or not checked"


def test_a_supported_answer_is_answered_with_its_citation_and_timings() -> None:
    final = examined(GOOD)
    record = final.record

    assert (final.state, final.outcome, record.status) == (JobState.COMPLETED, Outcome.ANSWERED, RecordStatus.SUCCESS)
    (citation,) = record.citations
    assert SOURCE[citation.source_start : citation.source_end] == citation.quoted_text
    assert record.answer[citation.start_pos : citation.end_pos] == "[1]"
    assert record.grounding is not None
    assert record.grounding.grounding_score == 1
    timing = record.timing_ms
    parts = timing.model_dump(exclude={"total"})
    assert sum(parts.values()) == pytest.approx(timing.total, abs=0.1)
    assert record.messages_snapshot is not None
    assert record.messages_snapshot.proves([SOURCE])


def test_redact_takes_the_sentence_out_and_says_so() -> None:
    final = examined(f"{BAD} {GOOD}", on_ungrounded="redact")

    assert final.outcome is Outcome.PARTIAL
    assert final.record.answer == GOOD
    assert any("pancakes" in warning for warning in final.record.quality.warnings)
    (citation,) = final.record.citations
    assert final.record.answer[citation.start_pos : citation.end_pos] == "[1]"
    assert final.record.grounding is not None
    assert [claim.verdict for claim in final.record.grounding.claims] == [Verdict.SUPPORTED]


def test_nothing_left_after_redaction_is_an_abstention() -> None:
    final = examined(BAD, on_ungrounded="redact")

    assert final.outcome is Outcome.ABSTAINED
    assert final.record.answer.startswith("The sources given do not answer this question. ")
    assert (final.record.quality.answer_quality, final.record.quality.sufficient_context) == (None, False)


@pytest.mark.parametrize("reason", [FinishReason.REFUSAL, FinishReason.CONTENT_FILTER])
def test_a_refusal_is_never_a_success(reason: FinishReason) -> None:
    final = examined("", {"finish_reason": reason, "refusal": "I can't help with that."})

    assert (final.outcome, final.record.status) == (Outcome.REFUSED, RecordStatus.FAILED)
    assert final.record.error_message == "I can't help with that."
    assert final.record.answer.startswith("The model declined to answer this question. ")


def test_an_answer_cut_off_at_its_length_is_partial() -> None:
    final = examined(GOOD, {"finish_reason": FinishReason.LENGTH})

    assert final.outcome is Outcome.PARTIAL
    assert "cut off at 1024 tokens" in final.record.quality.reasoning


@pytest.mark.parametrize(
    ("finish_reason", "output", "thoughts", "why"),
    [
        (
            FinishReason.LENGTH,
            1_000,
            900,
            "it thought for 900 tokens and reached max_tokens before its first word: raise max_tokens",
        ),
        (FinishReason.LENGTH, 0, 0, "it reached max_tokens before its first word"),
        (FinishReason.STOP, 1_000, 900, "it thought for 900 tokens and wrote nothing"),
        (FinishReason.STOP, 1_000, 0, "it thought for 1000 tokens and wrote nothing"),
        (FinishReason.STOP, 1, 0, "it is empty"),
        (FinishReason.TOOL_CALL, 1_000, 0, "it called a tool in the place of an answer"),
    ],
)
def test_an_answer_without_text_says_why_and_is_not_asked_again_where_that_can_not_help(
    finish_reason: FinishReason, output: int, thoughts: int, why: str
) -> None:
    usage = Usage(input_tokens=10, output_tokens=output, reasoning_tokens=thoughts)
    job = leased_for_check(request_with(), "", finish_reason=finish_reason, usage=usage)
    asked_again = isinstance(examine(job, monotonic()), AnotherRound)
    assert asked_again is (finish_reason is not FinishReason.LENGTH)

    correction = Correction(purpose="reask", given_up="another call costs too much")
    final = examine(replace(job, correction=correction), monotonic())

    assert isinstance(final, FinalJob)
    assert final.record.error_message is not None
    assert why in final.record.error_message


def test_an_answer_without_the_citations_asked_for_is_partial() -> None:
    assert examined("The night desk opens at nine in the evening.", min_citations=1).outcome is Outcome.PARTIAL


def test_a_checker_that_is_not_there_makes_the_answer_partial_not_failed() -> None:
    final = examined(GOOD, checkers=[CheckerName.LEXICAL, CheckerName.LOCAL])

    assert final.outcome is Outcome.PARTIAL
    assert "check 'local' gave no verdict" in final.record.quality.reasoning


@pytest.mark.parametrize(
    ("query", "denial", "opening"),
    [
        (
            "When does it open?",
            "I cannot answer this based on the sources. Please contact the desk.",
            "The sources given",
        ),
        ("Wann öffnet der Schalter?", "Die Quellen enthalten dazu keine Informationen.", "Die vorliegenden Quellen"),
        ("¿Cuándo abre?", "Lo siento. Las fuentes no mencionan el horario.", "Las fuentes disponibles"),
        ("Quand ouvre le guichet ?", "Les sources ne précisent pas l'horaire.", "Les sources disponibles"),
        ("什么时候开门？", "抱歉，资料中没有提到开放时间。", "现有资料"),
        ("متى يفتح المكتب؟", "عذرًا، لا تذكر المصادر أوقات العمل.", "المصادر المتاحة"),
    ],
)
@pytest.mark.parametrize("protocol", list(AnswerProtocol))
def test_a_denial_in_any_language_and_protocol_is_an_abstention(
    query: str, denial: str, opening: str, protocol: AnswerProtocol
) -> None:
    text = json.dumps({"sufficient": True, "segments": [{"text": denial}]}) if protocol == "segments" else denial
    request = request_with().model_copy(update={"query": query})
    final = examine(leased_for_check(request, text, protocol=protocol), monotonic())

    assert isinstance(final, FinalJob)
    assert (final.outcome, final.record.status) == (Outcome.ABSTAINED, RecordStatus.SUCCESS)
    assert final.record.answer.startswith(opening)
    assert final.record.quality.abstain_reason == "the model says that the sources do not answer"


@pytest.mark.parametrize("protocol", list(AnswerProtocol))
def test_a_denial_beside_a_statement_is_no_abstention(protocol: AnswerProtocol) -> None:
    statement = "The sources do not say when it closes. The night desk opens at nine in the evening."
    text = json.dumps({"sufficient": True, "segments": [{"text": statement}]}) if protocol == "segments" else statement
    final = examine(leased_for_check(request_with(min_citations=0), text, protocol=protocol), monotonic())

    assert isinstance(final, FinalJob)
    assert final.outcome is Outcome.ANSWERED
    assert final.record.quality.sufficient_context is False
    assert "not in the sources" in final.record.quality.reasoning


@pytest.mark.parametrize("protocol", list(AnswerProtocol))
@pytest.mark.parametrize("reason", [reason for reason in FinishReason if reason is not FinishReason.STOP])
def test_no_other_ending_than_a_stop_is_a_success(reason: FinishReason, protocol: AnswerProtocol) -> None:
    answer = {"segments": [{"text": GOOD[:-5], "citations": [{"source": 1, "quote": "The night desk opens"}]}]}
    text = json.dumps(answer) if protocol == "segments" else GOOD
    final = examine(leased_for_check(request_with(min_citations=0), text, protocol=protocol, finish_reason=reason), 0.0)

    assert isinstance(final, FinalJob)
    assert final.outcome in {Outcome.REFUSED, Outcome.PARTIAL}
    assert final.record.status is not RecordStatus.SUCCESS


def test_a_given_answer_that_only_denies_abstains_and_stays_as_it_was_given() -> None:
    denial = "Die Quellen enthalten dazu keine Angaben."
    final = examine(leased_for_check(JobRequest(context=({"content": SOURCE},), response=denial), ""), monotonic())

    assert isinstance(final, FinalJob)
    assert (final.outcome, final.record.answer) == (Outcome.ABSTAINED, denial)
    assert final.record.quality.abstain_reason == "the supplied answer says that the sources do not answer"


def test_a_defect_in_one_check_fails_that_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = LentLedger()
    jobs = [stored_for_check(ledger, request_with(), GOOD) for _ in range(3)]
    real = check.postprocess

    def breaks(request: JobRequest, prompt: Any, completion: Completion | None) -> Any:
        if request is jobs[1].request:
            raise ZeroDivisionError("oops")
        return real(request, prompt, completion)

    monkeypatch.setattr(check, "postprocess", breaks)
    finals: list[Any] = []

    async def scenario() -> Sequence[JobState]:
        journal = LedgerJournal(ledger, publish=finals.append)
        check = Check(ledger.queue, journal, Inline())
        await asyncio.gather(*(check.run(job) for job in jobs))
        await journal.close()
        return [view.state for view in await ledger.reading.views([job.job_id for job in jobs])]

    states = asyncio.run(scenario())

    assert states == [JobState.COMPLETED, JobState.FAILED, JobState.COMPLETED]
    assert len(finals) == 3


def test_neither_the_list_of_sources_nor_the_syntax_of_json_counts_towards_the_quality() -> None:
    text = '{"sufficient": true, "segments": [{"text": "The desk opens at nine.", "citations": [{"source": 1, "quote": ""}]}]}'
    qualities = set()
    for config in ({}, {"citation_style": "endnote"}, {"citation_style": "footnote"}, {"output_format": "json"}):
        request = JobRequest(query="When?", context=["The desk opens at nine."], config=config)  # type: ignore[list-item, arg-type]
        final = examine(leased_for_check(request, text, protocol=AnswerProtocol.SEGMENTS), monotonic())
        assert isinstance(final, FinalJob)
        qualities.add(final.record.quality.answer_quality)

    assert len(qualities) == 1
