"""The bucket of a model in Redis, with a clock that the test sets, and the shares of workers without it."""

from collections.abc import Callable, Iterator
from itertools import cycle, pairwise
from typing import Any
from uuid import uuid4

import pytest
import redis

from tests.contract.conftest import Runner
from tests.servers import Servers
from worker.limits import redis_bucket
from worker.limits.bucket import (
    BURST,
    COOL,
    CUT_FACTOR,
    LEARNED_KEPT,
    LEAST_FACTOR,
    SLOT_KEPT_S,
    SLOT_RESERVED_S,
    Acquire,
    Exchange,
    ExchangeReply,
    Feedback,
    LocalShare,
    Release,
)
from worker.limits.rates import Rates
from worker.limits.redis_bucket import RedisBuckets

START = 1_790_000_000.0


class TimedBucket:
    """A bucket with a clock."""

    now = START

    def __init__(self, runner: Runner, buckets: RedisBuckets, client: "redis.Redis") -> None:
        self._runner, self._buckets, self._client = runner, buckets, client
        self.later(0)

    def later(self, seconds: float) -> None:
        self.now += seconds
        self._client.set("test:clock", repr(self.now))

    def exchange(
        self,
        rates: Rates,
        *requests: Acquire,
        settle: tuple[Release, ...] = (),
        held: tuple[Acquire, ...] = (),
        owed: int = 0,
        **notice: Any,
    ) -> ExchangeReply:
        order = Exchange(rates, requests, settle, Feedback(**notice), tuple(job.id for job in held), owed)
        return self._runner.run(self._buckets.exchange("p", "m/{1}", order))


@pytest.fixture
def timed_bucket(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[TimedBucket]:
    script = redis_bucket._script().replace("redis.call('TIME')", "{redis.call('GET', 'test:clock'), '0'}")
    assert "test:clock" in script
    monkeypatch.setattr(redis_bucket, "_script", lambda: script)
    with redis.Redis.from_url(servers.redis_url) as client, Runner() as runner:
        client.flushall()

        async def make() -> RedisBuckets:
            return RedisBuckets(servers.redis_url)

        buckets = runner.run(make())
        yield TimedBucket(runner, buckets, client)
        runner.run(buckets.close())


def acquire(requests: float = 1, tokens: float = 0, *, urgent: bool = False) -> Acquire:
    return Acquire(uuid4(), urgent, (requests, tokens, 0.0, 0.0))


def rates_of(requests: float = 0, tokens: float = 0, concurrency: int = 0) -> Rates:
    return Rates((requests, tokens, 0.0, 0.0), concurrency, 60.0)


def drain(
    timed_bucket: TimedBucket, rules: Rates, seconds: float, make: Callable[[], Acquire], step: float = 0.1
) -> list[tuple[float, float]]:
    """Ask as often as a busy worker would; returns when each call was granted, with its heaviest weight."""
    granted: list[tuple[float, float]] = []
    for _ in range(round(seconds / step)):
        requests = [make() for _ in range(5)]
        reply = timed_bucket.exchange(rules, *requests)
        granted += [(timed_bucket.now, max(request.weights)) for request in requests[: reply.granted]]
        timed_bucket.later(step)
    return granted


def worst_window(granted: list[tuple[float, float]], period: float = 60.0) -> float:
    worst = 0.0
    for at, _ in granted:
        worst = max(worst, sum(weight for moment, weight in granted if at <= moment < at + period))
    return worst


@pytest.mark.parametrize(
    ("rules", "make", "limit"),
    [
        (rates_of(requests=600), acquire, 600),
        # Some seconds' worth each: pace alone would let 105 % through.
        (rates_of(tokens=90_000), lambda: acquire(tokens=4_400), 90_000),
        (rates_of(requests=7), acquire, 7),
    ],
)
def test_no_window_holds_more_than_the_limit_and_nearly_all_of_it_is_used(
    timed_bucket: TimedBucket, rules: Rates, make: Callable[[], Acquire], limit: float
) -> None:
    granted = drain(timed_bucket, rules, 150, make, step=0.5)
    assert worst_window(granted) <= limit
    used = sum(weight for at, weight in granted if START + 60 <= at < START + 120)
    assert used >= 0.95 * limit - max(weight for _, weight in granted)
    # Paced: no tenth of a minute holds much more than a tenth of the limit.
    assert worst_window(granted, 6.0) <= limit * (0.1 + BURST) + 2 * max(weight for _, weight in granted)


@pytest.mark.parametrize("sizes", [[150], [20_000], [10, 700, 4_400]])
def test_no_window_of_all_shares_without_redis_holds_more_than_the_limit(sizes: list[float]) -> None:
    clock, calls, tokens = [START], list[tuple[float, float]](), cycle(sizes)
    shares = [LocalShare(lambda: clock[0]) for _ in range(4)]
    for _ in range(1_500):
        for share in shares:
            call = acquire(tokens=next(tokens))
            reply = share.exchange(Exchange(rates_of(tokens=90_000), (call, call), workers=4))
            calls += [(clock[0], call.weights[1])] * reply.granted
        clock[0] += 0.1
    assert 0.6 * 90_000 < worst_window(calls) <= 1.02 * 90_000


def test_the_wait_is_the_time_until_the_next_call_may_go(timed_bucket: TimedBucket) -> None:
    rules = rates_of(requests=60)
    reply = timed_bucket.exchange(rules, acquire(), acquire(), acquire())
    assert reply.granted == 1
    assert reply.why == "limit"
    timed_bucket.later(reply.wait_s - 0.01)
    assert timed_bucket.exchange(rules, acquire()).granted == 0
    timed_bucket.later(0.02)
    assert timed_bucket.exchange(rules, acquire()).granted == 1


def test_actual_use_corrects_what_was_reserved(timed_bucket: TimedBucket) -> None:
    rules = rates_of(tokens=1_000)
    first = acquire(tokens=900)
    at = timed_bucket.exchange(rules, first).at_s
    timed_bucket.later(5)
    assert timed_bucket.exchange(rules, acquire(tokens=500)).granted == 0
    back = Release(first.id, at, (0.0, -850.0, 0.0, 0.0))
    assert timed_bucket.exchange(rules, acquire(tokens=500), settle=(back,)).granted == 1
    timed_bucket.later(30)
    assert timed_bucket.exchange(rules, acquire(tokens=500)).granted == 0
    more = Release(first.id, at, (0.0, 300.0, 0.0, 0.0))
    assert timed_bucket.exchange(rules, settle=(more,)).granted == 0
    timed_bucket.later(25.6)
    # What the first call used has left the window, corrections included.
    assert timed_bucket.exchange(rules, acquire(tokens=450)).granted == 1


def test_a_call_heavier_than_the_limit_goes_when_nothing_else_did(timed_bucket: TimedBucket) -> None:
    rules = rates_of(tokens=1_000)
    assert timed_bucket.exchange(rules, acquire(tokens=100)).granted == 1
    timed_bucket.later(10)
    assert timed_bucket.exchange(rules, acquire(tokens=1_500)).granted == 0
    timed_bucket.later(51)
    assert timed_bucket.exchange(rules, acquire(tokens=1_500)).granted == 1


def test_urgent_calls_get_what_comes_free_first(timed_bucket: TimedBucket) -> None:
    rules = rates_of(requests=60)
    assert timed_bucket.exchange(rules, acquire()).granted == 1
    refused = timed_bucket.exchange(rules, acquire(urgent=True))
    assert refused.granted == 0
    timed_bucket.later(refused.wait_s + 0.01)
    assert timed_bucket.exchange(rules, acquire()).why == "urgent"
    assert timed_bucket.exchange(rules, acquire(urgent=True)).granted == 1
    timed_bucket.later(1.1)
    assert timed_bucket.exchange(rules, acquire()).granted == 1


def test_slots_are_counted_given_back_and_kept_while_they_are_named(timed_bucket: TimedBucket) -> None:
    rules = rates_of(concurrency=2)
    first, second, third = acquire(), acquire(), acquire()
    assert timed_bucket.exchange(rules, first, second, acquire()).granted == 2
    assert timed_bucket.exchange(rules, acquire()).why == "slots"
    ended = Release(first.id, START, (0.0,) * 4)
    assert timed_bucket.exchange(rules, third, settle=(ended,)).granted == 1
    for _ in range(5):
        timed_bucket.later(SLOT_KEPT_S - 0.1)
        assert timed_bucket.exchange(rules, acquire(), held=(second, third)).why == "slots"
    # One worker was killed: nobody names its call any more.
    timed_bucket.later(SLOT_KEPT_S - 0.1)
    assert timed_bucket.exchange(rules, acquire(), held=(second,)).granted == 0
    timed_bucket.later(0.2)
    assert timed_bucket.exchange(rules, acquire(), acquire()).granted == 1


def test_the_next_slot_is_for_a_process_that_lacks_some_of_its_share(timed_bucket: TimedBucket) -> None:
    rules = rates_of(concurrency=2)
    first, second, starving, other = acquire(), acquire(), acquire(), acquire()
    assert timed_bucket.exchange(rules, first, second, owed=1).granted == 2
    assert timed_bucket.exchange(rules, starving, owed=1).why == "slots"
    assert timed_bucket.exchange(rules, other, owed=1).why == "slots", "one is reserved at a time"
    ended = Release(first.id, START, (0.0,) * 4)
    assert timed_bucket.exchange(rules, acquire(), settle=(ended,)).why == "slots"
    assert timed_bucket.exchange(rules, other, owed=1).why == "slots"
    assert timed_bucket.exchange(rules, starving, owed=1).granted == 1
    assert timed_bucket.exchange(rules, other, owed=1).why == "slots"
    ended = Release(second.id, START, (0.0,) * 4)
    assert timed_bucket.exchange(rules, acquire(), settle=(ended,)).granted == 0
    # It was cancelled meanwhile: the slot is anyone's again.
    timed_bucket.later(SLOT_RESERVED_S + 0.1)
    assert timed_bucket.exchange(rules, acquire(), held=(starving,)).granted == 1


def test_an_urgent_call_goes_before_a_reserved_slot(timed_bucket: TimedBucket) -> None:
    rules = rates_of(concurrency=1)
    first, waiting, urgent = acquire(), acquire(), acquire(urgent=True)
    assert timed_bucket.exchange(rules, first).granted == 1
    assert timed_bucket.exchange(rules, waiting, owed=1).why == "slots"
    assert timed_bucket.exchange(rules, urgent).why == "slots"
    assert timed_bucket.exchange(rules, waiting, settle=(Release(first.id, START, (0.0,) * 4),), owed=1).why == "urgent"
    assert timed_bucket.exchange(rules, urgent).granted == 1


def test_a_call_that_lost_its_slot_regains_it_before_new_calls(timed_bucket: TimedBucket) -> None:
    rules = rates_of(concurrency=1)
    frozen, other = acquire(), acquire()
    assert timed_bucket.exchange(rules, frozen).granted == 1
    timed_bucket.later(SLOT_KEPT_S + 0.1)
    assert timed_bucket.exchange(rules, other).granted == 1
    # Thawed: both calls are under way, and nothing begins before both have ended.
    assert timed_bucket.exchange(rules, acquire(), held=(frozen,)).granted == 0
    assert timed_bucket.exchange(rules, acquire(), settle=(Release(other.id, START, (0.0,) * 4),)).granted == 0
    assert timed_bucket.exchange(rules, acquire(), settle=(Release(frozen.id, START, (0.0,) * 4),)).granted == 1


def test_a_refusal_cuts_the_limit_once_and_it_grows_back_slowest_where_it_was_refused(
    timed_bucket: TimedBucket,
) -> None:
    rules = rates_of(requests=600)
    assert timed_bucket.exchange(rules, rate_limited=True).limits[0] == pytest.approx(600 * CUT_FACTOR)
    assert timed_bucket.exchange(rules, rate_limited=True).limits[0] == pytest.approx(600 * CUT_FACTOR)
    refusal_times = []
    for _ in range(10):
        timed_bucket.later(4.1)
        refusal_times.append(timed_bucket.exchange(rules).limits[0])
    gains = [later - earlier for earlier, later in pairwise([600 * CUT_FACTOR, *refusal_times])]
    assert gains == sorted(gains, reverse=True)
    assert refusal_times[-1] == pytest.approx(600, rel=0.001)
    # Never more than was allowed, however long nobody refuses.
    for _ in range(20):
        timed_bucket.later(60)
        assert timed_bucket.exchange(rules).limits[0] == 600


def test_a_limit_that_was_cut_again_and_again_is_whole_soon_after_the_last_refusal(timed_bucket: TimedBucket) -> None:
    rules = rates_of(requests=600)
    for _ in range(40):
        lowest = timed_bucket.exchange(rules, rate_limited=True).limits[0]
        timed_bucket.later(2.1)
    assert lowest == pytest.approx(600 * LEAST_FACTOR, rel=0.05)
    # Refused every now and then without cause, it still gains between two refusals.
    timed_bucket.later(10)
    assert timed_bucket.exchange(rules).limits[0] >= lowest + 600 * 0.05
    timed_bucket.later(65)
    assert timed_bucket.exchange(rules).limits[0] == 600


def test_without_a_limit_a_refusal_makes_one_of_what_just_went_through(timed_bucket: TimedBucket) -> None:
    for _ in range(30):
        assert timed_bucket.exchange(rates_of(), *(acquire() for _ in range(10))).granted == 10
        timed_bucket.later(1)
    reply = timed_bucket.exchange(rates_of(), rate_limited=True)
    assert reply.limits[0] == pytest.approx(600 * CUT_FACTOR, rel=0.1)
    assert timed_bucket.exchange(rates_of(tokens=900)).limits[1] == pytest.approx(900 * CUT_FACTOR)
    # A guess is outgrown when nobody refuses any more, a limit that was set is not.
    timed_bucket.later(100)
    assert timed_bucket.exchange(rates_of(tokens=900)).limits[:2] == (pytest.approx(1_200, rel=0.2), 900)
    timed_bucket.later(100)
    assert timed_bucket.exchange(rates_of()).limits[0] > 10_000
    # Refused again, it is cut to what goes through, not to what might.
    assert timed_bucket.exchange(rates_of(), rate_limited=True).limits[0] < 600
    timed_bucket.later(LEARNED_KEPT * 60 + 1)
    assert timed_bucket.exchange(rates_of()).limits[0] == 0


def test_a_limit_that_the_provider_names_ends_a_guess(timed_bucket: TimedBucket) -> None:
    assert timed_bucket.exchange(rates_of(), acquire(), rate_limited=True).limits[0] > 0
    timed_bucket.exchange(rates_of(), learned=(300.0, 0.0, 0.0, 0.0))
    timed_bucket.later(200)
    assert timed_bucket.exchange(rates_of()).limits[0] == 300


def test_limits_in_the_providers_headers_lower_the_limit_and_never_raise_it(timed_bucket: TimedBucket) -> None:
    assert timed_bucket.exchange(rates_of(requests=600), learned=(100.0, 5_000.0, 0.0, 0.0)).limits[:2] == (100, 5_000)
    assert timed_bucket.exchange(rates_of(requests=50)).limits[0] == 50


def test_a_pause_holds_everything_urgent_or_not(timed_bucket: TimedBucket) -> None:
    reply = timed_bucket.exchange(rates_of(), acquire(urgent=True), pause_s=20.0)
    assert (reply.granted, reply.why) == (0, "pause")
    assert reply.blocked_s == pytest.approx(20)
    timed_bucket.later(20.1)
    assert timed_bucket.exchange(rates_of(), acquire()).granted == 1


def test_a_breaker_lets_one_probe_through_and_closes_when_it_is_answered(timed_bucket: TimedBucket) -> None:
    assert timed_bucket.exchange(rates_of(), acquire(), trip=True).why == "breaker"
    timed_bucket.later(COOL * 60 + 0.1)
    probing = timed_bucket.exchange(rates_of(), acquire(), acquire())
    assert (probing.granted, probing.why) == (1, "breaker")
    timed_bucket.later(COOL * 60 + 0.1)
    assert timed_bucket.exchange(rates_of(), acquire()).granted == 0, "the pause doubled"
    timed_bucket.later(COOL * 60 + 0.1)
    assert timed_bucket.exchange(rates_of(), acquire(), acquire()).granted == 1
    assert timed_bucket.exchange(rates_of(), acquire(), acquire(), well=True).granted == 2


def test_however_long_a_provider_was_down_it_is_called_within_a_minute(timed_bucket: TimedBucket) -> None:
    assert timed_bucket.exchange(rates_of(), acquire(), trip=True).granted == 0
    probes = []
    for _ in range(600):
        if timed_bucket.exchange(rates_of(), acquire()).granted:
            probes.append(timed_bucket.now)
        timed_bucket.later(1.0)
    # Few while it is down for ten minutes, and soon after its end.
    assert [round(later - earlier) for earlier, later in pairwise([START, *probes[:5]])] == [5, 10, 20, 40, 60]
    assert all(later - earlier <= 61 for earlier, later in pairwise(probes))


def test_a_probe_after_a_paused_lane_is_one_call(timed_bucket: TimedBucket) -> None:
    assert timed_bucket.exchange(rates_of(), acquire(), acquire(), acquire(), probe=True).granted == 1
    assert timed_bucket.exchange(rates_of(), acquire(), well=True).granted == 1


def test_a_bucket_unused_for_a_period_is_dropped(timed_bucket: TimedBucket) -> None:
    rules = rates_of(requests=600)
    drain(timed_bucket, rules, 70, acquire, step=0.5)
    timed_bucket.later(1_000)
    assert len(drain(timed_bucket, rules, 60, acquire, step=0.5)) >= 0.95 * 590


def test_a_new_redis_whose_clock_is_behind_stops_no_calls(timed_bucket: TimedBucket) -> None:
    minute = rates_of(requests=60, concurrency=2)
    used = drain(timed_bucket, minute, 60, acquire, step=1.0)
    assert len(used) > 1

    timed_bucket.later(-600)
    assert timed_bucket.exchange(minute, acquire()).granted == 1
    # Of this time on, it counts as ever.
    again = drain(timed_bucket, minute, 60, acquire)
    assert worst_window(again) <= 61


@pytest.mark.parametrize("of_slots", [False, True])
def test_what_another_program_writes_in_place_of_a_bucket_is_replaced(
    timed_bucket: TimedBucket, servers: Servers, *, of_slots: bool
) -> None:
    two = rates_of(concurrency=2)
    timed_bucket.exchange(two)
    with redis.Redis.from_url(servers.redis_url) as client:
        client.set(f"nightdesk:limit:{{p/m%2F%7B1%7D}}{':slots' * of_slots}", "x")

    assert [timed_bucket.exchange(two, acquire()).granted for _ in range(3)] == [1, 1, 0]
