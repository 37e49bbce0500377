"""Two batches over the same questions: pairs, wins by outcome and support, intervals, cost."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal

import pytest

from schemas.states import JobState, Outcome
from tasks.policy.comparison import TIERS, Comparison, Merit, compare, wilson
from tasks.ports import JobView
from tests.builders import make_request
from tests.contract.situations import finished
from tests.lent_ledger import LentLedger


def merit(outcome: Outcome, support: float = 1.0, cost: str | None = "0.01") -> Merit:
    return Merit(outcome.value, TIERS[outcome], support, None if cost is None else Decimal(cost))


@pytest.mark.parametrize(
    ("first", "second", "counts"),
    [
        (merit(Outcome.PARTIAL), merit(Outcome.ANSWERED), (1, 0)),
        (merit(Outcome.ABSTAINED), merit(Outcome.PARTIAL, 0.1), (1, 0)),
        (merit(Outcome.ABSTAINED), merit(Outcome.REFUSED), (0, 1)),
        (merit(Outcome.PARTIAL, 0.5), merit(Outcome.PARTIAL, 0.75), (1, 0)),
        (merit(Outcome.PARTIAL, 0.5), merit(Outcome.PARTIAL, 0.5), (0, 0)),
        (merit(Outcome.ANSWERED, 0.9), merit(Outcome.ANSWERED, 1.0), (0, 0)),
    ],
)
def test_a_better_outcome_wins_and_among_partial_answers_the_better_support(
    first: Merit, second: Merit, counts: tuple[int, int]
) -> None:
    comparison = Comparison()
    comparison.add(first, second)
    assert (comparison.wins, comparison.losses) == counts
    assert comparison.ties == 1 - sum(counts)


def test_wilsons_interval_is_the_published_one() -> None:
    interval = wilson(8, 10)
    assert interval is not None
    assert (round(interval.low, 4), round(interval.high, 4)) == (0.4902, 0.9433)
    none, every = wilson(0, 10), wilson(10, 10)
    assert none is not None
    assert every is not None
    assert (round(none.low, 9), round(none.high, 4), every.high) == (0.0, 0.2775, 1.0)
    assert wilson(0, 0) is None


def test_the_difference_in_cost_is_paired_and_unknown_with_an_unknown_price() -> None:
    comparison = Comparison()
    for number in range(4):
        comparison.add(merit(Outcome.ANSWERED, cost=f"0.0{number}"), merit(Outcome.ANSWERED, cost=f"0.0{number + 2}"))
    more = comparison.more_usd
    assert more is not None
    assert (round(more.low, 6), round(more.value, 6), round(more.high, 6)) == (0.02, 0.02, 0.02)
    assert (comparison.first_usd, comparison.second_usd) == (Decimal("0.06"), Decimal("0.14"))
    comparison.add(merit(Outcome.ANSWERED), merit(Outcome.ANSWERED, cost=None))
    assert (comparison.second_usd, comparison.more_usd) == (None, None)


def test_questions_are_paired_by_their_text_in_the_order_of_repetitions() -> None:
    async def work() -> Comparison:
        ledger = LentLedger()
        jobs = [await finished(ledger, make_request(query)) for query in ("Why?", "Why?", "Who?", " Why? ", "What?")]
        views = await ledger.reading.views(jobs)
        moving = replace(views[3], state=JobState.RUNNING, outcome=None)
        waits = await compare(stream(views[:3]), stream([moving]))
        assert (waits.pairs, waits.unfinished) == (0, 1)
        return await compare(stream(views[:3]), stream(views[3:]))

    async def stream(views: list[JobView]) -> AsyncIterator[JobView]:
        for view in views:
            yield view

    comparison = asyncio.run(work())
    assert (comparison.pairs, comparison.only_first, comparison.only_second) == (1, 2, 1)
