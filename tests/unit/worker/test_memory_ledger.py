"""The in-memory ledger alone: a clock that can be set, and no change of state outside the table."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from schemas.states import TRANSITIONS, JobState
from tests.builders import make_batch, make_job, make_request
from tests.fakes.ledger import MemoryLedger

START = datetime(2030, 1, 1, tzinfo=UTC)


def test_the_clock_is_the_caller_supplied_and_can_be_set_forward() -> None:
    ledger = MemoryLedger(now=lambda: START)
    job = make_job(make_request(scheduled_at=START + timedelta(hours=1)))
    asyncio.run(ledger.submission.submit(make_batch(), [[job]]))
    assert asyncio.run(ledger.duties.promote(10)) == 0

    ledger.advance(timedelta(hours=1))

    assert asyncio.run(ledger.duties.promote(10)) == 1
    assert asyncio.run(ledger.duties.attend("w", timedelta(seconds=5), timedelta(0), 1)).server_age == timedelta(
        hours=1
    )
    (view,) = asyncio.run(ledger.reading.views([job.id]))
    assert view.created_at == START


@pytest.mark.parametrize(("before", "after"), [(a, b) for a in JobState for b in JobState])
def test_a_state_changes_only_along_an_allowed_transition(before: JobState, after: JobState) -> None:
    ledger = MemoryLedger()
    job = make_job()
    asyncio.run(ledger.submission.submit(make_batch(), [[job]]))
    row = ledger.tables.jobs[job.id]
    permitted = TRANSITIONS.get((before, after), frozenset())
    for verb in {verb for verbs in TRANSITIONS.values() for verb in verbs}:
        row.state = before
        if verb in permitted:
            ledger.tables.move(row, after, verb)
            assert row.state is after
        else:
            with pytest.raises(AssertionError):
                ledger.tables.move(row, after, verb)
            assert row.state is before
