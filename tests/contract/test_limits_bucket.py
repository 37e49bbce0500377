"""One suite over both accounts of a provider's model: in memory, and in Redis with its clock set by the test."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
import redis

from tests.servers import Servers
from worker.limits import redis_bucket
from worker.limits.bucket import (
    BURST,
    COOL,
    CUT_FACTOR,
    LEARNED_KEPT,
    LEAST_FACTOR,
    SLICES,
    SLOT_KEPT_S,
    Acquire,
    Bucket,
    Exchange,
    ExchangeReply,
    Feedback,
    Release,
)
from worker.limits.rates import Rates
from worker.limits.redis_bucket import RedisBuckets

START = 1_790_000_000.0


class Account:
    """An account with a clock."""

    def __init__(self, exchange: Callable[[Exchange], ExchangeReply], set_clock: Callable[[float], object]) -> None:
        self._exchange = exchange
        self._set_clock = set_clock
        self.now = START
        set_clock(self.now)

    def later(self, seconds: float) -> None:
        self.now += seconds
        self._set_clock(self.now)

    def order(
        self,
        terms: Rates,
        *asks: Acquire,
        settle: tuple[Release, ...] = (),
        held: tuple[Acquire, ...] = (),
        **notice: Any,
    ) -> ExchangeReply:
        return self._exchange(Exchange(terms, asks, settle, Feedback(**notice), tuple(job.id for job in held)))


@pytest.fixture(params=["memory", "redis"])
def account(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    if request.param == "memory":
        clock = [START]
        bucket = Bucket(lambda: clock[0])
        yield Account(bucket.exchange, lambda at: clock.__setitem__(0, at))
        return
    servers: Servers = request.getfixturevalue("servers")
    script = redis_bucket._script().replace("redis.call('TIME')", "{redis.call('GET', 'test:clock'), '0'}")
    assert "test:clock" in script
    monkeypatch.setattr(redis_bucket, "_script", lambda: script)
    with redis.Redis.from_url(servers.redis_url) as client, asyncio.Runner() as runner:
        client.flushall()

        async def make() -> RedisBuckets:
            return RedisBuckets(servers.redis_url)

        buckets = runner.run(make())
        yield Account(
            lambda order: runner.run(buckets.exchange("p", "m/{1}", order)),
            lambda at: client.set("test:clock", repr(at)),
        )
        runner.run(buckets.close())


def ask(requests: float = 1, tokens: float = 0, *, urgent: bool = False) -> Acquire:
    return Acquire(uuid4(), urgent, (requests, tokens, 0.0, 0.0))


def terms(requests: float = 0, tokens: float = 0, concurrency: int = 0) -> Rates:
    return Rates((requests, tokens, 0.0, 0.0), concurrency, 60.0)


def drain(
    account: Account, rules: Rates, seconds: float, make: Callable[[], Acquire], step: float = 0.1
) -> list[tuple[float, float]]:
    """Ask as often as a busy worker would; returns when each call was granted, with its heaviest weight."""
    granted: list[tuple[float, float]] = []
    for _ in range(round(seconds / step)):
        asks = [make() for _ in range(5)]
        reply = account.order(rules, *asks)
        granted += [(account.now, max(request.weights)) for request in asks[: reply.granted]]
        account.later(step)
    return granted


def worst_window(granted: list[tuple[float, float]], period: float = 60.0) -> float:
    worst = 0.0
    for at, _ in granted:
        worst = max(worst, sum(weight for moment, weight in granted if at <= moment < at + period))
    return worst


@pytest.mark.parametrize(
    ("rules", "make", "limit"),
    [
        (terms(requests=600), ask, 600),
        (terms(tokens=90_000), lambda: ask(tokens=700), 90_000),
        # Some seconds' worth each: pace alone would let 105 % through.
        (terms(tokens=90_000), lambda: ask(tokens=4_400), 90_000),
        (terms(requests=7), ask, 7),
    ],
)
def test_no_window_holds_more_than_the_limit_and_nearly_all_of_it_is_used(
    account: Account, rules: Rates, make: Callable[[], Acquire], limit: float
) -> None:
    granted = drain(account, rules, 150, make, step=0.25)
    assert worst_window(granted) <= limit
    used = sum(weight for at, weight in granted if START + 60 <= at < START + 120)
    assert used >= 0.95 * limit - max(weight for _, weight in granted)
    # Paced: no tenth of a minute holds much more than a tenth of the limit.
    assert worst_window(granted, 6.0) <= limit * (0.1 + BURST) + 2 * max(weight for _, weight in granted)


def test_the_wait_is_the_time_until_the_next_call_may_go(account: Account) -> None:
    rules = terms(requests=60)
    reply = account.order(rules, ask(), ask(), ask())
    assert reply.granted == 1
    assert reply.why == "limit"
    account.later(reply.wait_s - 0.01)
    assert account.order(rules, ask()).granted == 0
    account.later(0.02)
    assert account.order(rules, ask()).granted == 1


def test_actual_use_corrects_what_was_reserved(account: Account) -> None:
    rules = terms(tokens=1_000)
    first = ask(tokens=900)
    at = account.order(rules, first).at_s
    account.later(5)
    assert account.order(rules, ask(tokens=500)).granted == 0
    back = Release(first.id, at, (0.0, -850.0, 0.0, 0.0))
    assert account.order(rules, ask(tokens=500), settle=(back,)).granted == 1
    account.later(30)
    assert account.order(rules, ask(tokens=500)).granted == 0
    more = Release(first.id, at, (0.0, 300.0, 0.0, 0.0))
    assert account.order(rules, settle=(more,)).granted == 0
    account.later(25.6)
    # What the first call used has left the window, corrections included.
    assert account.order(rules, ask(tokens=450)).granted == 1


def test_a_call_heavier_than_the_limit_goes_when_nothing_else_did(account: Account) -> None:
    rules = terms(tokens=1_000)
    assert account.order(rules, ask(tokens=100)).granted == 1
    account.later(10)
    assert account.order(rules, ask(tokens=1_500)).granted == 0
    account.later(51)
    assert account.order(rules, ask(tokens=1_500)).granted == 1


def test_urgent_calls_get_what_comes_free_first(account: Account) -> None:
    rules = terms(requests=60)
    assert account.order(rules, ask()).granted == 1
    refused = account.order(rules, ask(urgent=True))
    assert refused.granted == 0
    account.later(refused.wait_s + 0.01)
    assert account.order(rules, ask()).why == "urgent"
    assert account.order(rules, ask(urgent=True)).granted == 1
    account.later(1.1)
    assert account.order(rules, ask()).granted == 1


def test_slots_are_counted_given_back_and_kept_while_they_are_named(account: Account) -> None:
    rules = terms(concurrency=2)
    first, second, third = ask(), ask(), ask()
    assert account.order(rules, first, second, ask()).granted == 2
    assert account.order(rules, ask()).why == "slots"
    ended = Release(first.id, START, (0.0,) * 4)
    assert account.order(rules, third, settle=(ended,)).granted == 1
    for _ in range(5):
        account.later(SLOT_KEPT_S - 0.1)
        assert account.order(rules, ask(), held=(second, third)).why == "slots"
    # One worker was killed: nobody names its call any more.
    account.later(SLOT_KEPT_S - 0.1)
    assert account.order(rules, ask(), held=(second,)).granted == 0
    account.later(0.2)
    assert account.order(rules, ask(), ask()).granted == 1


def test_who_names_a_call_whose_slot_was_lost_has_it_again_before_others(account: Account) -> None:
    rules = terms(concurrency=1)
    frozen, other = ask(), ask()
    assert account.order(rules, frozen).granted == 1
    account.later(SLOT_KEPT_S + 0.1)
    assert account.order(rules, other).granted == 1
    # Thawed: both calls are under way, and nothing begins before both have ended.
    assert account.order(rules, ask(), held=(frozen,)).granted == 0
    assert account.order(rules, ask(), settle=(Release(other.id, START, (0.0,) * 4),)).granted == 0
    assert account.order(rules, ask(), settle=(Release(frozen.id, START, (0.0,) * 4),)).granted == 1


def test_a_refusal_cuts_the_limit_once_and_it_grows_back_slowest_where_it_was_refused(account: Account) -> None:
    rules = terms(requests=600)
    assert account.order(rules, rate_limited=True).limits[0] == pytest.approx(600 * CUT_FACTOR)
    assert account.order(rules, rate_limited=True).limits[0] == pytest.approx(600 * CUT_FACTOR)
    refusal_times = []
    for _ in range(10):
        account.later(4.1)
        refusal_times.append(account.order(rules).limits[0])
    gains = [later - earlier for earlier, later in pairwise([600 * CUT_FACTOR, *refusal_times])]
    assert gains == sorted(gains, reverse=True)
    assert refusal_times[-1] == pytest.approx(600, rel=0.001)
    # Never more than was allowed, however long nobody refuses.
    for _ in range(20):
        account.later(60)
        assert account.order(rules).limits[0] == 600


def test_a_limit_that_was_cut_again_and_again_is_whole_soon_after_the_last_refusal(account: Account) -> None:
    rules = terms(requests=600)
    for _ in range(40):
        lowest = account.order(rules, rate_limited=True).limits[0]
        account.later(2.1)
    assert lowest == pytest.approx(600 * LEAST_FACTOR, rel=0.05)
    # Refused every now and then without cause, it still gains between two refusals.
    account.later(10)
    assert account.order(rules).limits[0] >= lowest + 600 * 0.05
    account.later(65)
    assert account.order(rules).limits[0] == 600


def test_where_the_provider_takes_half_few_calls_are_refused_and_most_of_it_is_used(account: Account) -> None:
    call_times: list[float] = []
    refused, cut = 0, False
    for _ in range(1_200):
        reply = account.order(terms(requests=600), *(ask() for _ in range(12)), rate_limited=cut)
        cut = False
        for _ in range(reply.granted):
            if sum(at > account.now - 60 for at in call_times[-300:]) < 300:
                call_times.append(account.now)
            else:
                refused, cut = refused + 1, True
        account.later(0.5)
    assert len(call_times) >= 0.8 * 300 * 10
    assert refused <= 0.04 * len(call_times)


def test_without_a_limit_a_refusal_makes_one_of_what_just_went_through(account: Account) -> None:
    for _ in range(30):
        assert account.order(terms(), *(ask() for _ in range(10))).granted == 10
        account.later(1)
    reply = account.order(terms(), rate_limited=True)
    assert reply.limits[0] == pytest.approx(600 * CUT_FACTOR, rel=0.1)
    assert reply.limited
    assert account.order(terms(tokens=900)).limits[1] == pytest.approx(900 * CUT_FACTOR)
    # A guess is outgrown when nobody refuses any more, a limit that was set is not.
    account.later(100)
    assert account.order(terms(tokens=900)).limits[:2] == (pytest.approx(1_200, rel=0.2), 900)
    account.later(100)
    assert account.order(terms()).limits[0] > 10_000
    # Refused again, it is cut to what goes through, not to what might.
    assert account.order(terms(), rate_limited=True).limits[0] < 600
    account.later(LEARNED_KEPT * 60 + 1)
    assert account.order(terms()).limits[0] == 0


def test_a_limit_that_the_provider_names_ends_a_guess(account: Account) -> None:
    assert account.order(terms(), ask(), rate_limited=True).limits[0] > 0
    account.order(terms(), learned=(300.0, 0.0, 0.0, 0.0))
    account.later(200)
    assert account.order(terms()).limits[0] == 300


def test_what_the_provider_names_lowers_the_limit_and_never_raises_it(account: Account) -> None:
    assert account.order(terms(requests=600), learned=(100.0, 5_000.0, 0.0, 0.0)).limits[:2] == (100, 5_000)
    assert account.order(terms(requests=50)).limits[0] == 50


def test_a_pause_holds_everything_urgent_or_not(account: Account) -> None:
    reply = account.order(terms(), ask(urgent=True), pause_s=20.0)
    assert (reply.granted, reply.why) == (0, "pause")
    assert reply.blocked_s == pytest.approx(20)
    account.later(20.1)
    assert account.order(terms(), ask()).granted == 1


def test_a_breaker_lets_one_probe_through_and_closes_when_it_is_answered(account: Account) -> None:
    assert account.order(terms(), ask(), trip=True).why == "breaker"
    account.later(COOL * 60 + 0.1)
    probing = account.order(terms(), ask(), ask())
    assert (probing.granted, probing.why) == (1, "breaker")
    account.later(COOL * 60 + 0.1)
    assert account.order(terms(), ask()).granted == 0, "the pause doubled"
    account.later(COOL * 60 + 0.1)
    assert account.order(terms(), ask(), ask()).granted == 1
    assert account.order(terms(), ask(), ask(), well=True).granted == 2


def test_however_long_a_provider_was_down_it_is_called_within_a_minute(account: Account) -> None:
    assert account.order(terms(), ask(), trip=True).granted == 0
    probes = []
    for _ in range(1_200):
        if account.order(terms(), ask()).granted:
            probes.append(account.now)
        account.later(0.5)
    # Few while it is down for ten minutes, and soon after its end.
    assert [round(later - earlier) for earlier, later in pairwise([START, *probes[:5]])] == [5, 10, 20, 40, 60]
    assert all(later - earlier <= 60.5 for earlier, later in pairwise(probes))


def test_a_probe_after_a_paused_lane_is_one_call(account: Account) -> None:
    assert account.order(terms(), ask(), ask(), ask(), probe=True).granted == 1
    assert account.order(terms(), ask(), well=True).granted == 1


def test_what_nobody_asked_for_in_a_period_is_forgotten(account: Account) -> None:
    rules = terms(requests=600)
    drain(account, rules, 70, ask, step=0.5)
    account.later(1_000)
    assert len(drain(account, rules, 60, ask, step=0.5)) >= 0.95 * 590
    assert SLICES == 120
