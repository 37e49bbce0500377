"""The averages of earlier calls, by model, lane and purpose; those of different prompts add up."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tasks.ports import Call

LEAST_CALLS = 20
"""Earlier calls from which on their averages are used instead of a prior."""


@dataclass(frozen=True, slots=True)
class Moments:
    """A count of values with their sum and their sum of squares; two of them add up."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(self.count + other.count, self.total + other.total, self.squares + other.squares)

    @property
    def mean(self) -> float:
        """The average; 0 without values."""
        return self.total / self.count if self.count else 0.0

    def deviation_of_sum(self, count: int) -> float:
        """The standard deviation of the sum of ``count`` further values, with the error of the mean itself."""
        if self.count < 2:  # noqa: PLR2004 - one value has no deviation
            return 0.0
        variance = max(0.0, self.squares - self.total * self.total / self.count) / (self.count - 1)
        return math.sqrt(variance * (count + count * count / self.count))


@dataclass(frozen=True, slots=True)
class PastCalls:
    """Earlier answered calls of one model, lane and purpose.

    Attributes:
        answer: provider and model of the answers that they followed; None for calls that wrote an answer first.
        judge: their jobs asked for a judge.
        jobs: answers that they may have followed, with and without such a call.
        prompt: name of their prompt.
        counted_by: counter of the prompt tokens in their records.
        ratio: tokens billed for each counted token of the prompt.
        inputs: input tokens of a call.
        outputs: output tokens of a call.
        cache_reads: share of the input read from the provider's cache.
        cache_writes: share of the input written to it.
        latency_s: average seconds of a call.
    """

    provider: str
    model: str | None
    lane: str
    purpose: str
    calls: int
    outputs: Moments
    inputs: Moments = Moments()
    ratio: Moments = Moments()
    answer: tuple[str, str | None] | None = None
    judge: bool = False
    jobs: int = 0
    prompt: str | None = None
    counted_by: str | None = None
    cache_reads: float = 0.0
    cache_writes: float = 0.0
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Jobs a second of earlier batches with a model, the slowest and the quickest."""

    slowest: float
    quickest: float


@dataclass(frozen=True, slots=True)
class History:
    """Earlier calls of a tenant, as far as the estimate needs them."""

    calls: Sequence[PastCalls] = ()
    paces: Mapping[tuple[str, str | None], Pace] = field(default_factory=dict)

    def answers(self, call: Call) -> PastCalls | None:
        """Earlier answers of the same model: of its lane with the same prompt, of any lane with it, then with any prompt.

        A lane changes the price and the time, and not the length of an answer. None for too few.
        """
        same = [
            past
            for past in self.calls
            if past.answer is None and (past.provider, past.model) == (call.provider, call.model)
        ]
        prompt = [past for past in same if past.prompt == call.prompt.name]
        for choice in ([past for past in prompt if past.lane == call.lane], prompt, same):
            if sum(past.calls for past in choice) >= LEAST_CALLS:
                return _pooled(choice, call.lane, call.prompt.snapshot.counted_by)
        return None

    def follow_ups(self, provider: str, model: str | None, *, judge: bool) -> list[PastCalls]:
        """Earlier calls beside the first ones of a model's answers: judges and second rounds."""
        return [past for past in self.calls if past.answer == (provider, model) and past.judge is judge]

    def judged(self, provider: str, model: str | None, *, judge: bool) -> int:
        """Number of a model's answers that a judge may have followed; 0 for too few to go by."""
        jobs = sum(
            past.calls
            for past in self.calls
            if past.answer is None and (past.provider, past.model, past.judge) == (provider, model, judge)
        )
        return jobs if jobs >= LEAST_CALLS else 0


def _pooled(choice: Sequence[PastCalls], lane: str, counted_by: str | None) -> PastCalls:
    """The sum of earlier calls; the ratio is that of one counter, and the latency that of one lane."""
    first, calls = choice[0], sum(past.calls for past in choice)
    same_lane = [past for past in choice if past.lane == lane]
    return PastCalls(
        first.provider,
        first.model,
        lane,
        first.purpose,
        calls,
        outputs=sum((past.outputs for past in choice), Moments()),
        ratio=sum((past.ratio for past in choice if past.counted_by == counted_by), Moments()),
        counted_by=counted_by,
        cache_reads=sum(past.cache_reads * past.calls for past in choice) / calls,
        cache_writes=sum(past.cache_writes * past.calls for past in choice) / calls,
        latency_s=sum(past.latency_s * past.calls for past in same_lane)
        / max(1, sum(past.calls for past in same_lane)),
    )
