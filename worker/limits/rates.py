"""The limits of a provider and model: those of the settings, and those in the headers of its replies.

OpenAI and most who imitate it: ``x-ratelimit-{limit,remaining,reset}-{requests,tokens}``, the reset as a duration
("1m30s", "12ms"). Anthropic: ``anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}``,
the reset as an RFC 3339 moment. Source: both makers' pages on rate limits (2026-11).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from time import time

from tasks.lanes.choice import LaneTerms
from worker.settings import Settings

DIMENSIONS = ("requests", "input_tokens", "output_tokens", "tokens")
"""The limits per minute; ``tokens`` is input and output together, which only providers set (in their headers)."""

NONE = (0.0,) * len(DIMENSIONS)

PERIOD_S = 60.0


@dataclass(frozen=True, slots=True)
class Rates:
    """The limits of one provider and model.

    Attributes:
        most: per period, in the order of ``DIMENSIONS``; 0 is no limit.
        concurrency: calls at once over all workers; 0 is no limit.
        period_s: a minute; tests take less.
    """

    most: tuple[float, ...] = NONE
    concurrency: int = 0
    period_s: float = PERIOD_S

    @property
    def any(self) -> bool:
        """True if anything is limited."""
        return bool(self.concurrency) or any(self.most)


def rates_of(settings: Settings, provider: str, model: str, period_s: float = PERIOD_S) -> Rates:
    """The limits of a provider's model: the model's own before the provider's, before the defaults."""
    own = settings.providers.get(provider)
    layers = (settings.default_limits, own and own.limits, own and (own.model_limits or {}).get(model))
    merged: dict[str, float] = {}
    for layer in filter(None, layers):
        merged |= layer.model_dump(exclude_none=True)
    most = (*(merged.get(f"{name}_per_minute", 0.0) for name in DIMENSIONS[:-1]), 0.0)
    return Rates(most, int(merged.get("max_concurrency", 0)), period_s)


CALL_S, BYTES_PER_TOKEN = 10.0, 4
"""Time of a call made at once and size of a token, where a batch of calls is planned and none was made yet."""


def lane_terms(settings: Settings) -> LaneTerms:
    """The times by which jobs choose and leave their lane, by the settings."""

    def standard_s(provider: str, model: str, calls: int, body_bytes: int) -> float:
        rates = rates_of(settings, provider, model)
        requests, tokens_in, _, _ = rates.most
        at_once = min(rates.concurrency or settings.slots, settings.slots)
        return max(
            calls * CALL_S / at_once,
            calls / requests * PERIOD_S if requests else 0.0,
            body_bytes / BYTES_PER_TOKEN / tokens_in * PERIOD_S if tokens_in else 0.0,
        )

    return LaneTerms(
        unobserved=timedelta(seconds=settings.provider_batch_expect_s),
        gathering=timedelta(seconds=20 * settings.provider_batch_gather_s),
        margin=timedelta(seconds=settings.provider_batch_margin_s),
        standard_s=standard_s,
    )


_OF_HEADERS = [name.replace("_", "-") for name in DIMENSIONS]
_OPENAI = re.compile(r"x-ratelimit-(limit|remaining|reset)-(requests|tokens)")
_ANTHROPIC = re.compile(r"anthropic-ratelimit-(requests|input-tokens|output-tokens|tokens)-(limit|remaining|reset)")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

LONGEST_PAUSE_S = 60.0
"""Longest pause of one reply: after a longer reset another call asks again."""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The provider's limits a minute, 0 where it named none, and the pause it needs."""

    limits: tuple[float, ...]
    pause_s: float


def answered_at(headers: Mapping[str, str]) -> float:
    """The time of an answer by the clock of its server, as its other times are: this machine's may be wrong."""
    try:
        return parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, TypeError, ValueError, OverflowError):
        return time()


def read(headers: Mapping[str, str]) -> RateLimits:
    """Reads the headers of an answer; a malformed one counts as absent."""
    values: dict[tuple[str, str], str] = {}
    for name, value in headers.items():
        if match := _OPENAI.fullmatch(name.lower()):
            values[match[2], match[1]] = value
        elif match := _ANTHROPIC.fullmatch(name.lower()):
            values[match[1], match[2]] = value
    limits, pause_s = [*NONE], 0.0
    for at, name in enumerate(_OF_HEADERS):
        limits[at] = _number(values.get((name, "limit"))) or 0.0
        if _number(values.get((name, "remaining"))) == 0:
            pause_s = max(pause_s, _reset_s(values.get((name, "reset"), ""), headers))
    return RateLimits(tuple(limits), min(pause_s, LONGEST_PAUSE_S))


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _reset_s(text: str, headers: Mapping[str, str]) -> float:
    """The seconds until a reset: a number, a duration, or a moment."""
    if (seconds := _number(text)) is not None:
        return seconds
    parts = _DURATION.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0.0
    return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - answered_at(headers))
