"""The account of one provider and model in memory: what may be called now, and when the next call may be.

Two rules guard each dimension. *Pace*: calls are spread evenly, with at most ``BURST`` of a period gathered up (GCRA,
the leaky bucket as a meter: ITU-T I.371). *Window*: what was taken in the last period, counted in ``SLICES`` slices,
never exceeds the limit; so not even calls that each weigh much add up to more in any window.

``exchange.lua`` is the same algorithm in Redis, and ``test_account.py`` runs over both.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from uuid import UUID

from worker.limits.rates import DIMENSIONS, REQUESTS, Rates

SLICES = 120
"""Parts of a period that the window is counted in; one part too much is waited for, under 1 %."""

BURST = 0.01
"""Share of a period that may be gathered up while nobody asks: 0.6 s of a minute, so windows stay within 1 %."""

CUT = 0.7
"""What a rate limit that the provider reports multiplies the limit with, at most once per ``CUT_PAUSE``."""
CUT_PAUSE = 1 / 30
"""Of a period: calls that were under way together are refused together, and count once."""
LEAST_FACTOR = 0.05
LEAST_GROWTH = 0.3
"""Of the limit that comes back per period without a refusal, at least."""
GROWTH = 1.0
"""How steeply a limit comes back, in limits per cubed period: see ``grown``. More brings more refusals, not more calls."""
LEARNED_KEPT = 10.0
"""Periods after which what a provider said of its limits, or what was guessed, is forgotten."""

SLOT_KEPT_S = 20.0
"""A call under way keeps its slot for so long after its worker last named it: a worker that dies leaves none taken."""

URGENT_HELD = 1 / 30
"""Of a period at most: so long others wait after an urgent call was refused, so that it gets what comes free first."""

COOL = 1 / 12
"""Of a period: first pause of a breaker; doubles with every probe that did not close it."""
LONGEST_COOL = 1.0
"""Periods: a call a minute tells nobody anything new, and so long a provider that is back may wait for calls."""


def grown(factor: float, before: float, periods: float) -> float:
    """What a share of a limit that was cut from ``before`` to ``factor`` has grown to after so many periods.

    The cubic of CUBIC (RFC 9438, 4.2), or a straight line where that is quicker (4.3): back quickly at first, slowly around
    what was refused, and ever faster when it is not refused again. With periods of a minute one cut is made good in 40 s,
    and the lowest share is the whole limit after 75 s at most.
    """
    back: float = (max(0.0, before - factor) / GROWTH) ** (1 / 3)
    return max(before + GROWTH * (periods - back) ** 3, factor + LEAST_GROWTH * periods)


@dataclass(frozen=True, slots=True)
class Acquire:
    """One call that wants to begin."""

    id: UUID
    urgent: bool
    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """The end of a call: its slot is free, and what it used differs from what was reserved by ``more``."""

    id: UUID
    taken_at_s: float
    more: tuple[float, ...]


@dataclass(slots=True)
class Feedback:
    """What the calls that ended said of the provider."""

    cut: bool = False
    """It refused a call for its rate."""
    pause_s: float = 0.0
    """It asked to be left alone for so long."""
    trip: bool = False
    """Too many calls in a row failed."""
    well: bool = False
    """A call was answered."""
    probe: bool = False
    """Let one call through to see whether the provider serves us again."""
    learned: tuple[float, ...] = (0.0,) * len(DIMENSIONS)
    """Its own limits per period, where it named them."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a worker tells and asks in one exchange; asks in the order they are to be served, urgent ones first."""

    terms: Rates
    asks: tuple[Acquire, ...] = ()
    settlements: tuple[Release, ...] = ()
    notice: Feedback = field(default_factory=Feedback)
    held: tuple[UUID, ...] = ()
    """Calls under way whose slots are kept, or taken again where they were lost."""
    workers: int = 1
    """Processes that share the limits without seeing each other; 1 where the account is shared."""


@dataclass(frozen=True, slots=True)
class ExchangeReply:
    """The first ``granted`` asks may go; the next one may be asked for again after ``wait_s``."""

    granted: int
    at_s: float
    wait_s: float = 0.0
    why: str = ""
    """``limit``, ``slots``, ``urgent``, ``pause``, ``breaker``, or empty when all were granted."""
    limits: tuple[float, ...] = (0.0,) * len(DIMENSIONS)
    """In effect now, for all workers together; 0 is none."""
    limited: bool = False
    blocked_s: float = 0.0
    """For so long nothing is granted: the provider asked for a pause, or the breaker is open."""
    broken: bool = False
    """The breaker is not closed."""


@dataclass(slots=True)
class _Meter:
    """Pace and window of one dimension."""

    due: float = 0.0
    total: float = 0.0
    slices: dict[int, float] = field(default_factory=dict)

    def expire(self, now: float, period: float) -> None:
        width = period / SLICES
        while self.slices and ((oldest := next(iter(self.slices))) + 1) * width <= now - period:
            self.total -= self.slices.pop(oldest)

    def wait(self, now: float, period: float, most: float, weight: float) -> float:
        """Seconds until the weight fits; 0 when it does."""
        if most <= 0 or weight <= 0:
            return 0.0
        wait = max(0.0, self.due - BURST * period - now)
        left, width = self.total, period / SLICES
        for oldest, amount in self.slices.items():
            # What is heavier than the whole limit goes when nothing else was taken.
            if left + weight <= most or left <= 0:
                break
            left -= amount
            wait = max(wait, (oldest + 1) * width + period - now)
        return wait

    def take(self, now: float, at: float, period: float, most: float, weight: float) -> None:
        """Count a weight (negative: given back) that was taken at ``at``."""
        if most > 0:
            self.due = max(self.due, now) + weight * period / most
        place = int(min(at, now) * SLICES / period)
        if weight > 0 and place not in self.slices:
            # A correction of a slice that is gone: counted in the next one, so that the slices stay in order.
            place = next((later for later in self.slices if later > place), place)
        if place in self.slices or weight > 0:
            self.slices[place] = self.slices.get(place, 0.0) + weight
            self.total += weight

    def rate(self, now: float, period: float) -> float:
        """What was taken per period, over as much of the last one as there was."""
        if not self.slices:
            return 0.0
        since = next(iter(self.slices)) * period / SLICES
        return self.total * period / max(now - since, period / 60)


class Bucket:
    """An account in memory; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._meters = [_Meter() for _ in DIMENSIONS]
        self._slots: dict[UUID, float] = {}
        self._factor, self._before, self._cut_at = 1.0, 1.0, float("-inf")
        self._guessed = False
        self._learned = [0.0] * len(DIMENSIONS)
        self._learned_at = 0.0
        self._paused_until = 0.0
        self._urgent_until = 0.0
        self._open_until = 0.0
        self._trips = 0

    def exchange(self, order: Exchange) -> ExchangeReply:
        """Settle what ended, then grant what fits."""
        now = self._clock()
        period = order.terms.period_s
        for meter in self._meters:
            meter.expire(now, period)
        limits = self._limits(order.terms, now)
        self._heed(order, now, limits)
        limits = self._limits(order.terms, now)
        own = [most / order.workers for most in limits]
        for end in order.settlements:
            self._slots.pop(end.id, None)
            for at, (meter, most, more) in enumerate(zip(self._meters, own, end.more, strict=True)):
                if more and (most > 0 or at == REQUESTS):
                    meter.take(now, end.taken_at_s, period, most, more)
        if order.terms.concurrency:
            self._slots |= dict.fromkeys(order.held, now + SLOT_KEPT_S)
        self._slots = {name: until for name, until in self._slots.items() if until > now}
        granted, wait, why = 0, 0.0, ""
        for ask in order.asks:
            wait, why = self._refusal(order, ask, now, own)
            if why:
                break
            if self._trips:
                # One call is let through to see; if it is not answered well, the pause was for longer.
                self._trips += 1
                self._open_until = now + min(COOL * 2 ** (self._trips - 1), LONGEST_COOL) * period
            self._grant(order, ask, now, own)
            granted += 1
        blocked_s = max(0.0, self._paused_until - now, self._open_until - now if self._trips else 0.0)
        limited = any(limits) or bool(order.terms.concurrency) or blocked_s > 0 or self._trips > 0
        return ExchangeReply(granted, now, wait, why, tuple(limits), limited, blocked_s, self._trips > 0)

    def note(self, order: Exchange, asks: tuple[Acquire, ...]) -> None:
        """Count calls that another account granted, so that this one knows of them when it has to decide alone."""
        now, period = self._clock(), order.terms.period_s
        own = [most / order.workers for most in self._limits(order.terms, now)]
        for meter in self._meters:
            meter.expire(now, period)
        for ask in asks:
            self._grant(order, ask, now, own)
        for meter in self._meters:
            # Elsewhere more than our share may be granted for long: that must not add up to a debt.
            meter.due = min(meter.due, now + 2 * BURST * period)

    # ---- what is in effect ----

    def _limits(self, terms: Rates, now: float) -> list[float]:
        if now - self._learned_at > LEARNED_KEPT * terms.period_s:
            self._learned, self._guessed = [0.0] * len(DIMENSIONS), False
        factor = self._grown(terms, now)
        limits = [
            min(filter(None, (own, learned)), default=0.0) * min(1.0, factor)
            for own, learned in zip(terms.most, self._learned, strict=True)
        ]
        if self._guessed:
            # Nobody said that this is the limit.
            limits[REQUESTS] = self._learned[REQUESTS] * factor
        return limits

    def _grown(self, terms: Rates, now: float) -> float:
        return grown(self._factor, self._before, min((now - self._cut_at) / terms.period_s, LEARNED_KEPT))

    def _heed(self, order: Exchange, now: float, limits: list[float]) -> None:
        """Take in what the provider said."""
        notice, period = order.notice, order.terms.period_s
        for at, learned in enumerate(notice.learned):
            if learned > 0:
                self._learned[at], self._learned_at = learned, now
                self._guessed &= at != REQUESTS
        if notice.cut and now - self._cut_at >= CUT_PAUSE * period:
            rate = self._meters[REQUESTS].rate(now, period) * order.workers
            if limits[REQUESTS] <= 0:
                # No limit is known: what just went through was too much.
                self._learned[REQUESTS], self._learned_at, self._guessed = max(1.0, rate), now, True
            # A guess may have outgrown what is called for: what went through was too much, not what might have.
            most = max(1.0, rate / self._learned[REQUESTS]) if self._guessed else 1.0
            self._before = max(LEAST_FACTOR, min(most, self._grown(order.terms, now)))
            self._factor, self._cut_at = max(LEAST_FACTOR, self._before * CUT), now
        if notice.pause_s > 0:
            self._paused_until = max(self._paused_until, now + notice.pause_s)
        if notice.well:
            self._trips, self._open_until = 0, 0.0
        if self._trips == 0 and (notice.trip or notice.probe):
            self._trips, self._open_until = 1, now + (COOL * period if notice.trip else 0.0)

    # ---- granting ----

    def _refusal(self, order: Exchange, ask: Acquire, now: float, own: list[float]) -> tuple[float, str]:
        """How long and why an ask has to wait; an empty reason when it may go."""
        period = order.terms.period_s
        if now < self._paused_until:
            return self._paused_until - now, "pause"
        if self._trips and now < self._open_until:
            return self._open_until - now, "breaker"
        if not ask.urgent and now < self._urgent_until:
            return self._urgent_until - now, "urgent"
        most = max(1, order.terms.concurrency // order.workers) if order.terms.concurrency else 0
        if most and len(self._slots) >= most:
            wait, why = period / SLICES, "slots"
        else:
            waits = map(_Meter.wait, self._meters, [now] * len(own), [period] * len(own), own, ask.weights)
            wait = max(waits)
            why = "limit" if wait > 0 else ""
        if ask.urgent:
            self._urgent_until = now + min(wait + period / SLICES, URGENT_HELD * period) if why else 0.0
        return wait, why

    def _grant(self, order: Exchange, ask: Acquire, now: float, own: list[float]) -> None:
        if order.terms.concurrency:
            self._slots[ask.id] = now + SLOT_KEPT_S
        for at, (meter, most, weight) in enumerate(zip(self._meters, own, ask.weights, strict=True)):
            # Requests are counted also without a limit, so that a refusal can make one.
            if most > 0 or at == REQUESTS:
                meter.take(now, now, order.terms.period_s, most, weight)
