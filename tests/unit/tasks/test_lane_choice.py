"""The choice of a lane: by the deadline, the observed times of batches, and the abilities of the provider."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast
from uuid import uuid4

import pytest

from schemas.generation import Lane
from schemas.job import JobRequest
from tasks.errors import LedgerUnavailable
from tasks.estimates.estimate import first_lease
from tasks.generate import FallbackChain
from tasks.lanes.choice import LaneChooser, LaneTerms, SentCalls, expected
from tasks.ports import DenyReason, Leased, NewBatch
from tasks.ports.remote_batches import BatchTimes, Intent, OpenBatch
from tests.fakes.quiet import paid_calls
from tests.scripted_provider import Registry, ScriptedProvider
from worker.lanes.collection import BatchLane
from worker.lanes.pace import LanePace
from worker.lanes.settlement import Settlement
from worker.limits.rates import lane_terms
from worker.settings import Settings

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
TERMS = LaneTerms(unobserved=24 * HOUR, gathering=5 * MINUTE, margin=20 * MINUTE)


def job(time_left: timedelta | None = None, priority: int = 0, **config: Any) -> Leased:
    request = JobRequest(query="When?", context=["The desk opens at nine."], config={"lane": "auto", **config})
    leased = first_lease(uuid4(), request, NewBatch(uuid4(), "desk"))
    return replace(leased, time_left=time_left, priority=priority)


def registry(*, batches: bool = True, background: bool = False) -> Registry:
    providers = Registry(ScriptedProvider())
    providers.remote = cast("Any", object()) if batches else None
    providers.background = cast("Any", object()) if background else None
    return providers


def in_background(**seconds: float) -> LaneChooser:
    """A chooser with all lanes, each with its observed time."""

    async def times(provider: str, model: str, lane: Lane) -> BatchTimes:
        return BatchTimes((seconds[lane.value],) if lane.value in seconds else ())

    chooser = LaneChooser(registry(background=True), times, TERMS)
    asyncio.run(chooser.refresh_times("scripted", "scripted-1"))
    return chooser


@pytest.mark.parametrize(
    ("time_left", "seconds", "lane"),
    [
        (None, {}, Lane.PROVIDER_BATCH),
        (25 * HOUR, {}, Lane.PROVIDER_BATCH),
        (24 * HOUR, {}, Lane.BACKGROUND),
        (8 * HOUR + 20 * MINUTE, {}, Lane.BACKGROUND),
        (8 * HOUR, {}, Lane.BACKGROUND_2H),
        (2 * HOUR, {}, Lane.STANDARD),
        (2 * HOUR, {"background": 1_800}, Lane.BACKGROUND),
        (24 * HOUR, {"background": 90_000}, Lane.BACKGROUND_2H),
        (2 * HOUR, {"provider_batch": 1_800, "background": 60}, Lane.PROVIDER_BATCH),
    ],
)
def test_of_all_lanes_the_cheapest_in_time(time_left: timedelta | None, seconds: dict[str, float], lane: Lane) -> None:
    choice = in_background(**seconds).choose(job(time_left), "scripted", "scripted-1")
    assert choice.lane is lane


def test_a_lane_that_the_provider_refused_is_left_out() -> None:
    chooser = in_background()
    chooser.refuse("scripted", "scripted-1", Lane.BACKGROUND)
    assert chooser.choose(job(10 * HOUR), "scripted", "scripted-1").lane is Lane.BACKGROUND_2H
    assert chooser.choose(job(10 * HOUR), "scripted", "another").lane is Lane.BACKGROUND
    all_lanes = {Lane.PROVIDER_BATCH, Lane.BACKGROUND, Lane.BACKGROUND_2H}
    assert chooser.choose(job(), "scripted", "another", all_lanes).lane is Lane.STANDARD


@pytest.mark.parametrize(
    ("lane", "age", "due_in", "leave_in"),
    [
        # At the last moment for two hours, less the margins for the move and its cancel.
        (Lane.PROVIDER_BATCH, 25 * HOUR, 6 * HOUR, 3 * HOUR + 20 * MINUTE),
        (Lane.BACKGROUND, 9 * HOUR, 3 * HOUR, 20 * MINUTE),
        (Lane.BACKGROUND, 9 * HOUR, 2 * HOUR + 30 * MINUTE, -10 * MINUTE),
        # While it is not late it stays, and then there is no time for two hours.
        (Lane.BACKGROUND, 4 * HOUR, 3 * HOUR, 2 * HOUR + 40 * MINUTE),
        (Lane.BACKGROUND, 7 * HOUR + 50 * MINUTE, 2 * HOUR + 40 * MINUTE, 10 * MINUTE),
        (Lane.BACKGROUND, 9 * HOUR, 2 * HOUR, HOUR + 40 * MINUTE),
        (Lane.BACKGROUND_2H, 3 * HOUR, HOUR, 40 * MINUTE),
    ],
)
def test_a_late_lane_is_left_for_a_quicker_one_in_time(
    lane: Lane, age: timedelta, due_in: timedelta, leave_in: timedelta
) -> None:
    assert in_background().leave_in(SentCalls("scripted", "scripted-1", lane, age), due_in) == leave_in


async def chosen(leased: Leased, *seconds: float, batches: bool = True) -> Lane:
    async def times(provider: str, model: str, lane: Lane) -> BatchTimes:
        assert (provider, model) == ("scripted", "scripted-1")
        return BatchTimes(seconds)

    chooser = LaneChooser(registry(batches=batches), times, TERMS)
    await chooser.refresh(leased.request.config)
    choice = chooser.choose(leased, "scripted", "scripted-1")
    assert choice.reason
    return choice.lane


@pytest.mark.parametrize(
    ("leased", "seconds", "lane"),
    [
        (job(), (), Lane.PROVIDER_BATCH),
        (job(stream=True), (), Lane.STANDARD),
        (job(priority=5), (), Lane.STANDARD),
        (job(priority=-5), (), Lane.PROVIDER_BATCH),
        (job(24 * HOUR), (), Lane.STANDARD),
        (job(24 * HOUR + 25 * MINUTE), (), Lane.PROVIDER_BATCH),
        (job(2 * HOUR), (3_600,), Lane.PROVIDER_BATCH),
        (job(84 * MINUTE), (3_600,), Lane.STANDARD),
        (job(2 * HOUR), (3_600, 3_600, 3_600, 86_400), Lane.PROVIDER_BATCH),
        (job(2 * HOUR), (3_600, 86_400), Lane.STANDARD),
        (job(-HOUR), (1.0,), Lane.STANDARD),
    ],
)
def test_the_cheapest_lane_that_ends_before_the_deadline(
    leased: Leased, seconds: tuple[float, ...], lane: Lane
) -> None:
    assert asyncio.run(chosen(leased, *seconds)) is lane
    assert asyncio.run(chosen(leased, *seconds, batches=False)) is Lane.STANDARD


async def test_the_times_are_read_once_for_all_jobs_and_again_after_a_failure() -> None:
    reads: list[str] = []

    async def times(provider: str, model: str, lane: Lane) -> BatchTimes:
        reads.append(model)
        await asyncio.sleep(0)
        if len(reads) == 1:
            raise LedgerUnavailable("away")
        return BatchTimes((60,))

    chooser, config = LaneChooser(registry(), times, TERMS), job().request.config
    failures = await asyncio.gather(*(chooser.refresh(config) for _ in range(50)), return_exceptions=True)
    assert {type(failure) for failure in failures} == {LedgerUnavailable}
    await asyncio.gather(*(chooser.refresh(config) for _ in range(50)))
    await chooser.refresh(config)
    assert reads == ["scripted-1"] * 2
    assert chooser.choose(job(HOUR), "scripted", "scripted-1").lane is Lane.PROVIDER_BATCH


def test_a_batch_that_is_open_for_longer_than_usual_counts() -> None:
    assert expected(BatchTimes((600, 600), (300,)), HOUR)[0] == timedelta(seconds=600)
    assert expected(BatchTimes((600, 600), (9_000,)), HOUR)[0] == timedelta(seconds=9_000)


@pytest.mark.parametrize(
    ("limits", "minutes"),
    [({}, 20 + 100 * 10 / 50 / 60), ({"requests_per_minute": 5}, 40), ({"input_tokens_per_minute": 1_000}, 25)],
)
def test_calls_leave_a_batch_as_early_as_the_limits_need(limits: dict[str, float], minutes: float) -> None:
    terms = lane_terms(Settings(slots=50, **limits))
    assert terms.needed("openai", "m", 100, 20_000) == timedelta(minutes=minutes)


def chain(leased: Leased) -> FallbackChain:
    async def times(provider: str, model: str, lane: Lane) -> BatchTimes:
        return BatchTimes()

    return FallbackChain(leased, registry(), lambda _: None, lanes=LaneChooser(registry(), times, TERMS))


def test_a_call_is_planned_in_its_lane_and_says_why() -> None:
    plan = chain(job()).take()
    assert (plan.call.request.config.lane, plan.lane_reason) == (
        Lane.PROVIDER_BATCH,
        "the cheapest lane, for there is no deadline",
    )
    without = FallbackChain(job(), registry(), lambda _: None).take()
    assert without.call.request.config.lane is Lane.STANDARD
    named = chain(job(lane="standard")).take()
    assert (named.call.request.config.lane, named.lane_reason) == (Lane.STANDARD, None)


def test_where_the_batches_of_a_provider_are_paused_a_job_is_called_at_once() -> None:
    calls = chain(job())
    plan = calls.take()
    parked = replace(plan, call=replace(plan.call, lane=Lane.PROVIDER_BATCH.value))
    assert calls.pass_over(parked, DenyReason.LANE_PAUSED)
    again = calls.take()
    assert (again.call.request.config.lane, calls.calls) == (Lane.STANDARD, 1)
    assert not calls.pass_over(again, DenyReason.LANE_PAUSED)


def lane(terms: LaneTerms = TERMS) -> BatchLane:
    nothing = cast("Any", None)
    calls = paid_calls(nothing)
    settlement = Settlement(nothing, nothing, calls, registry(), nothing)
    return BatchLane(nothing, settlement, LaneChooser(registry(), nothing, terms), LanePace())


@pytest.mark.parametrize(
    ("due_in", "pause"),
    [
        (None, 300),
        (10 * HOUR, 300),
        (20 * MINUTE + timedelta(seconds=7), 7),
        (19 * MINUTE, 30),
    ],
)
def test_a_look_is_in_time_for_the_move(due_in: timedelta | None, pause: float) -> None:
    intent = Intent(uuid4(), "scripted", "m", 2, cast("Any", None), HOUR)
    batch = OpenBatch(intent, "b", 30, has_jobs=True, cancelled=False, due_in=due_in)
    assert lane()._next_look(batch) == timedelta(seconds=pause)
