"""Checks the limits on provider calls: no breaker open, no pause, no limit lowered without anybody knowing, no paused lane."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import redis
from redis.exceptions import RedisError

from worker.doctor.broker import PATIENCE_S
from worker.doctor.finding import Finding, Severity
from worker.ledger.presence import LaneNotice
from worker.limits.bucket import grown
from worker.limits.rates import PERIOD_S
from worker.limits.remedies import event, mending

LOWERED = 0.9
"""Share of a limit; below it its lowering is worth a word."""


@dataclass(frozen=True, slots=True)
class Account:
    """How the calls of one provider and model stand, as its shared account in Redis says."""

    provider: str
    model: str
    breaker_open: bool
    paused_s: float
    """The provider asked to be left alone for so long."""
    factor: float
    """Share of its limit that is in effect after refusals."""


def look(redis_url: str, key_prefix: str) -> list[Account]:
    """How all providers and models stand that were called lately; none when Redis can't tell."""
    try:
        with redis.Redis.from_url(redis_url, socket_timeout=PATIENCE_S, socket_connect_timeout=PATIENCE_S) as client:
            seconds, microseconds = client.time()
            now = seconds + microseconds / 1_000_000
            keys = client.scan_iter(match=f"{key_prefix}nightdesk:limit:*}}", count=1_000)
            found = [_account(key, client.hgetall(key), now) for key in keys]
    except (RedisError, OSError):
        # That Redis can't be asked is a finding of its own.
        return []
    return sorted(found, key=lambda one: (one.provider, one.model))


def _account(key: bytes, stored: dict[bytes, bytes], now: float) -> Account:
    provider, _, model = key.decode().rpartition("{")[2].rstrip("}").partition("/")

    def number(name: str, default: float) -> float:
        return float(stored.get(name.encode(), default))

    factor = number("factor", 1.0)
    return Account(
        unquote(provider),
        unquote(model),
        breaker_open=number("trips", 0.0) > 0,
        paused_s=max(0.0, number("paused", 0.0) - now),
        factor=min(1.0, grown(factor, number("before", factor), (now - number("cut_at", 0.0)) / PERIOD_S)),
    )


def check_accounts(accounts: Sequence[Account]) -> Iterator[Finding]:
    """Every provider is called at its full rate."""
    for one in accounts:
        whom = f"{one.provider} {one.model}".strip()
        if one.breaker_open:
            yield Finding(
                "breaker",
                Severity.WARNING,
                f"{whom} failed many times in a row and is left alone; one call at a time looks whether it is back",
                "nothing if the provider is down: it goes on by itself; else see the failures with 'nightdesk show JOB'",
            )
        if one.paused_s:
            yield Finding(
                "limit_paused",
                Severity.NOTE,
                f"{whom} asked for a pause; it is called again in {one.paused_s:.0f} s",
                "nothing; if it happens often, lower the limits in NIGHTDESK_PROVIDERS to those of your account",
            )
        if one.factor < LOWERED:
            yield Finding(
                "limit_lowered",
                Severity.NOTE,
                f"{whom} refused calls for their rate: {one.factor:.0%} of its limit is used, and more by and by",
                "set its limits in NIGHTDESK_PROVIDERS to those of your account",
            )


def check_lanes(lanes: Sequence[LaneNotice]) -> Iterator[Finding]:
    """No lane is paused, and every provider can be reached."""
    for notice in lanes:
        if notice.paused:
            release = "then 'nightdesk release BATCH --reason lane_paused' for any batch held"
            yield Finding("lane_paused", Severity.WARNING, event(notice), f"{mending(notice)}, {release}")
        else:
            yield Finding(
                "unreachable",
                Severity.WARNING,
                event(notice),
                f"{mending(notice)}; its jobs wait, and go on by themselves once it answers",
            )
