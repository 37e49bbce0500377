"""The bucket of one provider and model in memory: the calls that may go now, and the time of the next one.

Two rules guard each dimension. *Pace*: calls are spread evenly, with at most ``BURST`` of a period saved up (GCRA, the
leaky bucket as a meter: ITU-T I.371). *Window*: the use of the last period, counted in ``SLICES`` slices, never exceeds
the limit; so not even heavy calls add up to more in any window.

``exchange.lua`` is the same algorithm in Redis; ``tests/contract/test_limits_bucket.py`` runs over both.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from uuid import UUID

from worker.limits.rates import DIMENSIONS, NONE, REQUESTS, Rates

SLICES = 120
"""Parts of a period in which the window is counted; a wait is at most one part too long, under 1 %."""

BURST = 0.01
"""Share of a period that may be saved up without calls: 0.6 s of a minute, so windows stay within 1 %."""

CUT_FACTOR = 0.7
"""Factor on the limit after a call that the provider refused for its rate, at most once per ``CUT_PAUSE``."""
CUT_PAUSE = 1 / 30
"""Share of a period: calls that were under way together are refused together, and count once."""
LEAST_FACTOR = 0.05
LEAST_GROWTH = 0.3
"""Share of the limit that comes back per period without a refusal, at least."""
GROWTH = 1.0
"""Steepness of the growth after a refusal, in limits per cubed period: see ``grown``. More brings more refusals, not calls."""
LEARNED_KEPT = 10.0
"""Periods after which limits from a provider's headers, or guesses, expire."""

SLOT_WAIT_S, SLOT_RESERVED_S = 0.05, 1.0
"""Seconds until a call with a reserved slot asks again, and that the slot is reserved for it."""

SLOT_KEPT_S = 20.0
"""Seconds that a call under way keeps its slot after its last renewal: the slots of a dead worker come back."""

URGENT_HELD = 1 / 30
"""Longest share of a period in which other calls wait after an urgent one was refused, so that it goes first."""

COOL = 1 / 12
"""Share of a period: first pause of a breaker; doubles with every probe that did not close it."""
LONGEST_COOL = 1.0
"""Periods: the longest pause of a breaker, and so the longest time that a recovered provider gets no calls."""


def grown(factor: float, before: float, periods: float) -> float:
    """The share of a limit that was reduced from ``before`` to ``factor``, after so many periods of growth.

    The cubic of CUBIC (RFC 9438, 4.2), or a straight line where that is quicker (4.3): it grows quickly at first, slowly
    around the refused rate, and ever faster without another refusal. With periods of a minute one reduction is made good
    in 40 s, and the lowest share is the whole limit after 75 s at most.
    """
    back: float = (max(0.0, before - factor) / GROWTH) ** (1 / 3)
    return max(before + GROWTH * (periods - back) ** 3, factor + LEAST_GROWTH * periods)


@dataclass(frozen=True, slots=True)
class Acquire:
    """One call that is to begin."""

    id: UUID
    urgent: bool
    weights: tuple[float, ...]

    def undone(self, taken_at_s: float) -> "Release":
        """The end of a call that was granted then, and not made."""
        return Release(self.id, taken_at_s, tuple(-weight for weight in self.weights))


@dataclass(frozen=True, slots=True)
class Release:
    """The end of a call: its slot is free, and its use differs from its reservation by ``more``."""

    id: UUID
    taken_at_s: float
    more: tuple[float, ...]


@dataclass(slots=True)
class Feedback:
    """Observations about the provider from the calls that ended."""

    rate_limited: bool = False
    """The provider refused a call for its rate."""
    pause_s: float = 0.0
    """The provider asked for a pause of this length."""
    trip: bool = False
    """Too many calls in a row failed."""
    well: bool = False
    """A call was answered."""
    probe: bool = False
    """One call is to show whether the provider serves us again."""
    learned: tuple[float, ...] = NONE
    """The provider's own limits per period; 0 for unknown."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """The request of a worker to a bucket, with its calls in the order of service, urgent ones first."""

    rates: Rates
    acquires: tuple[Acquire, ...] = ()
    releases: tuple[Release, ...] = ()
    feedback: Feedback = field(default_factory=Feedback)
    active: tuple[UUID, ...] = ()
    """Calls under way, whose slots are renewed, or taken again after a loss."""
    owed: int = 0
    """Slots that this process lacks of its share: the next one that comes free is reserved for it.

    Otherwise a busy process, whose calls begin as others end, keeps all slots, and the jobs that wait in another one stay there.
    """
    workers: int = 1
    """Processes that share the limits without a common bucket; 1 for the shared bucket."""


@dataclass(frozen=True, slots=True)
class ExchangeReply:
    """The first ``granted`` calls may go; the next one may ask again after ``wait_s``."""

    granted: int
    at_s: float
    wait_s: float = 0.0
    why: str = ""
    """``limit``, ``slots``, ``urgent``, ``pause``, ``breaker``, or empty when all were granted."""
    limits: tuple[float, ...] = NONE
    """The limits in effect now, for all workers together; 0 is none."""
    blocked_s: float = 0.0
    """Seconds without any permit: the provider asked for a pause, or the breaker is open."""
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
        """The seconds until the weight fits; 0 when it does."""
        if most <= 0 or weight <= 0:
            return 0.0
        wait = max(0.0, self.due - BURST * period - now)
        remaining, width = self.total, period / SLICES
        for oldest, amount in self.slices.items():
            # A call heavier than the whole limit goes when the window is empty.
            if remaining + weight <= most or remaining <= 0:
                break
            remaining -= amount
            wait = max(wait, (oldest + 1) * width + period - now)
        return wait

    def take(self, now: float, at: float, period: float, most: float, weight: float) -> None:
        """Counts a weight (negative: returned) that was taken at ``at``."""
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
        """The use per period, over as much of the last one as there was."""
        if not self.slices:
            return 0.0
        since = next(iter(self.slices)) * period / SLICES
        return self.total * period / max(now - since, period / 60)


class Bucket:
    """A bucket in memory; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._meters = [_Meter() for _ in DIMENSIONS]
        self._slots: dict[UUID, float] = {}
        self._factor, self._before, self._cut_at = 1.0, 1.0, float("-inf")
        self._guessed = False
        self._learned = [*NONE]
        self._learned_at = 0.0
        self._reserved_until = 0.0
        self._paused_until = 0.0
        self._urgent_until = 0.0
        self._open_until = 0.0
        self._trips = 0

    def exchange(self, request: Exchange) -> ExchangeReply:
        """Counts the calls that ended, then grants the calls that fit."""
        now = self._clock()
        period = request.rates.period_s
        for meter in self._meters:
            meter.expire(now, period)
        limits = self._limits(request.rates, now)
        self._apply_feedback(request, now, limits)
        limits = self._limits(request.rates, now)
        share = [most / request.workers for most in limits]
        for end in request.releases:
            self._slots.pop(end.id, None)
            self._take(end.taken_at_s, now, period, share, end.more)
        if request.rates.concurrency:
            self._slots |= dict.fromkeys(request.active, now + SLOT_KEPT_S)
        self._slots = {name: until for name, until in self._slots.items() if until > now}
        granted, wait, why = 0, 0.0, ""
        for acquire in request.acquires:
            wait, why = self._refusal(request, acquire, now, share)
            if why == "slots" and granted < request.owed:
                wait = self._reserve(acquire, now, wait)
            if why:
                break
            if self._trips:
                # One call goes as a probe; unless it is answered well, the next pause is longer.
                self._trips += 1
                self._open_until = now + min(COOL * 2 ** (self._trips - 1), LONGEST_COOL) * period
            self._grant(request, acquire, now, share)
            granted += 1
        blocked_s = max(0.0, self._paused_until - now, self._open_until - now if self._trips else 0.0)
        return ExchangeReply(granted, now, wait, why, tuple(limits), blocked_s, self._trips > 0)

    def note(self, request: Exchange, acquires: tuple[Acquire, ...]) -> None:
        """Counts calls that the shared bucket granted, so that this one knows of them when it has to decide alone."""
        now, period = self._clock(), request.rates.period_s
        share = [most / request.workers for most in self._limits(request.rates, now)]
        for meter in self._meters:
            meter.expire(now, period)
        for acquire in acquires:
            self._grant(request, acquire, now, share)
        for meter in self._meters:
            # The shared bucket may grant more than our share for long: that must not add up to a debt.
            meter.due = min(meter.due, now + 2 * BURST * period)

    # ---- limits ----

    def _limits(self, rates: Rates, now: float) -> list[float]:
        if now - self._learned_at > LEARNED_KEPT * rates.period_s:
            self._learned, self._guessed = [*NONE], False
        factor = self._grown(rates, now)
        limits = [
            min(filter(None, (most, learned)), default=0.0) * min(1.0, factor)
            for most, learned in zip(rates.most, self._learned, strict=True)
        ]
        if self._guessed:
            # A guess may grow beyond itself.
            limits[REQUESTS] = self._learned[REQUESTS] * factor
        return limits

    def _grown(self, rates: Rates, now: float) -> float:
        return grown(self._factor, self._before, min((now - self._cut_at) / rates.period_s, LEARNED_KEPT))

    def _apply_feedback(self, request: Exchange, now: float, limits: list[float]) -> None:
        feedback, period = request.feedback, request.rates.period_s
        for at, learned in enumerate(feedback.learned):
            if learned > 0:
                self._learned[at], self._learned_at = learned, now
                self._guessed &= at != REQUESTS
        if feedback.rate_limited and now - self._cut_at >= CUT_PAUSE * period:
            rate = self._meters[REQUESTS].rate(now, period) * request.workers
            if limits[REQUESTS] <= 0:
                # Without a known limit: the present rate is too much.
                self._learned[REQUESTS], self._learned_at, self._guessed = max(1.0, rate), now, True
            # A guess may have outgrown the demand: the rate of the calls was too much, not that of the guess.
            most = max(1.0, rate / self._learned[REQUESTS]) if self._guessed else 1.0
            self._before = max(LEAST_FACTOR, min(most, self._grown(request.rates, now)))
            self._factor, self._cut_at = max(LEAST_FACTOR, self._before * CUT_FACTOR), now
        if feedback.pause_s > 0:
            self._paused_until = max(self._paused_until, now + feedback.pause_s)
        if feedback.well:
            self._trips, self._open_until = 0, 0.0
        if self._trips == 0 and (feedback.trip or feedback.probe):
            self._trips, self._open_until = 1, now + (COOL * period if feedback.trip else 0.0)

    # ---- granting ----

    def _refusal(self, request: Exchange, acquire: Acquire, now: float, share: list[float]) -> tuple[float, str]:
        """The seconds that a call has to wait, and the reason; an empty reason when it may go."""
        period = request.rates.period_s
        if now < self._paused_until:
            return self._paused_until - now, "pause"
        if self._trips and now < self._open_until:
            return self._open_until - now, "breaker"
        if not acquire.urgent and now < self._urgent_until:
            if self._slots.pop(acquire.id, None):
                self._reserved_until = 0.0
            return self._urgent_until - now, "urgent"
        most = max(1, request.rates.concurrency // request.workers) if request.rates.concurrency else 0
        if most and len(self._slots) - (acquire.id in self._slots) >= most:
            wait, why = period / SLICES, "slots"
        else:
            waits = map(_Meter.wait, self._meters, [now] * len(share), [period] * len(share), share, acquire.weights)
            wait = max(waits)
            why = "limit" if wait > 0 else ""
        if acquire.urgent:
            self._urgent_until = now + min(wait + period / SLICES, URGENT_HELD * period) if why else 0.0
        return wait, why

    def _reserve(self, acquire: Acquire, now: float, wait: float) -> float:
        """Reserves the next slot, one at a time; returns the seconds until the call asks again."""
        if acquire.id not in self._slots and now < self._reserved_until:
            return wait
        self._slots[acquire.id] = self._reserved_until = now + SLOT_RESERVED_S
        return SLOT_WAIT_S

    def _grant(self, request: Exchange, acquire: Acquire, now: float, share: list[float]) -> None:
        if request.rates.concurrency:
            if acquire.id in self._slots:
                self._reserved_until = 0.0
            self._slots[acquire.id] = now + SLOT_KEPT_S
        self._take(now, now, request.rates.period_s, share, acquire.weights)

    def _take(self, at_s: float, now: float, period: float, share: list[float], weights: Sequence[float]) -> None:
        for at, (meter, most, weight) in enumerate(zip(self._meters, share, weights, strict=True)):
            # Requests are counted also without a limit, so that a refusal can make one.
            if weight and (most > 0 or at == REQUESTS):
                meter.take(now, at_s, period, most, weight)
