"""The time limit of a check: an answer whose check takes too long ends as partial, unchecked, and soon."""

import asyncio
from dataclasses import replace
from time import monotonic
from typing import Any

import pytest

from schemas.grounding import Verdict
from schemas.job import JobRequest
from schemas.states import JobState, Outcome
from tasks.check import Check, run_checkers
from tasks.ports import FinalJob, JobView
from tasks.text import source_index, time_limit
from tasks.text.time_limit import OutOfTime, TimeLimit, ensure_time, within
from tests.fakes.inline import Inline
from tests.faults.bounds import long_text
from tests.lent_ledger import LentLedger
from tests.unit.tasks.test_check import GOOD, leased_for_check, request_with, stored_for_check
from worker.process.journal import LedgerJournal

TEXTS = [long_text(number, 200_000) for number in range(4)]


def long_answer(sentences: int, quoted: str) -> str:
    """An answer whose sentences stand in the sources, each with a marker; ``quoted`` spoils a word of each."""
    lines = []
    for number in range(sentences):
        source = number % len(TEXTS)
        line = TEXTS[source].split(". ")[15 * number + 5].replace(" ba ", quoted)
        lines.append(f"{line} [{source + 1}].")
    return " ".join(lines)


def checked(ledger: LentLedger, job: Any, **options: Any) -> JobView:
    async def scenario() -> JobView:
        journal = LedgerJournal(ledger)
        await Check(ledger.queue, journal, Inline(), **options).run(job)
        await journal.close()
        (view,) = await ledger.reading.views([job.job_id])
        return view

    return asyncio.run(scenario())


def test_without_a_limit_there_is_always_time() -> None:
    ensure_time()
    with within(TimeLimit(60)):
        ensure_time()
        with within(TimeLimit(0, "no time")), pytest.raises(OutOfTime, match="no time"):
            ensure_time()
        ensure_time()


@pytest.mark.parametrize("quoted", [" ba ", " xyz "])
def test_a_check_without_end_ends_as_partial_with_its_claims_unchecked(
    quoted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = LentLedger()
    request = JobRequest(context=TEXTS, response=long_answer(100, quoted))  # type: ignore[arg-type]
    job = stored_for_check(ledger, request, "")

    monkeypatch.setattr("tasks.check.CHECK_TIMEOUT_S", 0.001)
    view = checked(ledger, job)

    assert (view.state, view.outcome) == (JobState.COMPLETED, Outcome.PARTIAL)
    assert view.record is not None
    assert view.record.grounding is not None
    assert {claim.verdict for claim in view.record.grounding.claims} <= {Verdict.UNCHECKED, Verdict.NOT_CHECKABLE}
    assert "NIGHTDESK_CHECK_TIMEOUT_S" in view.record.grounding.failed_checkers["lexical"]
    assert view.record.answer == request.response
    assert any("not all citations were looked up" in warning for warning in view.record.quality.warnings)


class Ticks:
    """A clock that goes on by one second each time that the check looks at it: before each search."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> float:
        self.count += 1
        return float(self.count)


def test_no_search_begins_once_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    request = JobRequest(context=TEXTS, response=long_answer(100, " xyz "))  # type: ignore[arg-type]
    job = leased_for_check(request, "")
    looks = []
    for seconds in (1e9, 0.0):
        clock = Ticks()
        monkeypatch.setattr(time_limit, "monotonic", clock)
        source_index.forget()
        with within(TimeLimit(seconds or looks[0] / 10)):
            run_checkers(job, monotonic())
        looks.append(clock.count)

    # Each of the 100 sentences that are left looks once and searches nothing, and so do a few layers.
    assert looks[0] > 300
    assert looks[0] / 10 < looks[1] < looks[0] / 10 + 110


def test_an_answer_that_ends_its_workers_is_kept_unchecked() -> None:
    ledger = LentLedger()
    job = replace(stored_for_check(ledger, request_with(), GOOD), rescues=6)

    view = checked(ledger, job)

    assert (view.state, view.outcome) == (JobState.COMPLETED, Outcome.PARTIAL)
    assert view.record is not None
    assert view.record.grounding is not None
    assert "lost 6 times" in view.record.grounding.failed_checkers["lexical"]
    assert view.record.output_raw == GOOD


def test_a_judge_is_not_asked_when_the_time_is_up() -> None:
    job = leased_for_check(request_with(checkers=["lexical", "judge"]), GOOD)

    with within(TimeLimit(0, "no time")):
        final = run_checkers(job, monotonic())

    assert isinstance(final, FinalJob)
    assert final.outcome is Outcome.PARTIAL
    assert final.record.grounding is not None
    assert final.record.grounding.failed_checkers == {"lexical": "no time", "judge": "no time"}


def test_a_second_answer_that_ends_its_workers_gives_way_to_the_first() -> None:
    ledger = LentLedger()
    job = replace(stored_for_check(ledger, request_with(), GOOD), rescues=6, round=1)

    assert checked(ledger, job).state is JobState.SCHEDULED
