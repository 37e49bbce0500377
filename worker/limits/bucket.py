"""The bucket of one provider and model: what a worker sends to it and gets back, its rules, and a worker's share without it.

The bucket lies in Redis, and ``exchange.lua`` keeps it. Two rules guard each dimension. *Pace*: calls are spread evenly, with
at most ``BURST`` of a period saved up (GCRA, the leaky bucket as a meter: ITU-T I.371). *Window*: the use of the last period,
counted in ``SLICES`` slices, never exceeds the limit; so not even heavy calls add up to more in any window.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic
from uuid import UUID

from worker.limits.rates import DIMENSIONS, NONE, Rates

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


class LocalShare:
    """The share of one process while Redis is away, which is simple: calls evenly spaced, and none while the provider needs a pause."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._due = [0.0] * len(DIMENSIONS)
        """By dimension the time of the next call."""
        self._learned = NONE
        self._blocked_until = 0.0
        self._broken = False

    def exchange(self, request: Exchange) -> ExchangeReply:
        """Grants the calls that fit."""
        now, limits = self._heed(request)
        blocked_s = max(0.0, self._blocked_until - now)
        granted, wait, why = 0, 0.0, ""
        for acquire in request.acquires:
            if blocked_s:
                wait, why = blocked_s, "breaker" if self._broken else "pause"
                break
            if request.rates.concurrency and granted >= request.owed:
                wait, why = SLOT_WAIT_S, "slots"
                break
            due = (at for at, most, weight in zip(self._due, limits, acquire.weights, strict=True) if most and weight)
            if (least_s := max(due, default=now) - BURST * request.rates.period_s - now) > 0:
                wait, why = least_s, "limit"
                break
            self._take(request, now, limits, acquire.weights)
            granted += 1
        return ExchangeReply(granted, now, wait, why, limits, blocked_s, self._broken and blocked_s > 0)

    def note(self, request: Exchange, acquires: Iterable[Acquire]) -> None:
        """Counts calls that the shared bucket granted, so that this one knows of them when it has to decide alone."""
        now, limits = self._heed(request)
        for acquire in acquires:
            self._take(request, now, limits, acquire.weights)
        # The shared bucket may grant more than our share for long: that must not add up to a debt.
        self._due = [min(due, now + 2 * BURST * request.rates.period_s) for due in self._due]

    def _heed(self, request: Exchange) -> tuple[float, tuple[float, ...]]:
        """Takes over the feedback of the calls that ended; returns the time, and the limits of all processes together."""
        now, period, feedback = self._clock(), request.rates.period_s, request.feedback
        if feedback.trip or feedback.rate_limited or feedback.pause_s:
            pause_s = max(feedback.pause_s, (COOL if feedback.trip else CUT_PAUSE) * period)
            self._blocked_until, self._broken = max(self._blocked_until, now + pause_s), feedback.trip
        self._learned = tuple(new or old for new, old in zip(feedback.learned, self._learned, strict=True))
        set_and_learned = zip(request.rates.most, self._learned, strict=True)
        limits = tuple(min(filter(None, each), default=0.0) for each in set_and_learned)
        for end in request.releases:
            for at, (most, more) in enumerate(zip(limits, end.more, strict=True)):
                self._due[at] += more * period * request.workers / most if most else 0.0
        return now, limits

    def _take(self, request: Exchange, now: float, limits: tuple[float, ...], weights: tuple[float, ...]) -> None:
        """Spaces the next call from this one, so far that a window which both bound holds no more than the share."""
        for at, (most, weight) in enumerate(zip(limits, weights, strict=True)):
            if most and weight:
                share = most / request.workers
                between = (1 - BURST) * share - weight
                periods = weight / between if between > weight else max(1.0, weight / share) + BURST
                self._due[at] = max(self._due[at], now) + periods * request.rates.period_s
