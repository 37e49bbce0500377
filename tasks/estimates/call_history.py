"""Averages over earlier calls: the basis of an estimate."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tasks.ports import Call

LEAST_CALLS = 20
"""Earlier calls from which on their averages are used instead of a guess."""


@dataclass(frozen=True, slots=True)
class PastCalls:
    """Sums over earlier answers of one model, lane and prompt.

    Attributes:
        asks_more: their jobs named a judge or further models.
        prompt: name of their prompt.
        counted_by: counter of the prompt tokens in their records.
        counted: those tokens, as far as records have them.
        billed: input tokens of the same calls, as the provider billed them.
        cached: input tokens read from the provider's cache.
        cache_written: input tokens written to it.
        seconds: from opening to closing, over all calls.
        usd: their cost.
        further_usd: the cost of the calls that followed them: judges, second rounds, further models.
    """

    provider: str
    model: str | None
    lane: str
    calls: int
    input_tokens: float
    output_tokens: float
    cached: float = 0.0
    cache_written: float = 0.0
    seconds: float = 0.0
    counted: float = 0.0
    billed: float = 0.0
    usd: float = 0.0
    further_usd: float = 0.0
    asks_more: bool = False
    prompt: str | None = None
    counted_by: str | None = None


@dataclass(frozen=True, slots=True)
class Averages:
    """Averages of one answer over earlier ones of a kind.

    Attributes:
        billed_share: billed input tokens for each counted one; None: too few were counted alike.
        further_share: the cost of the calls that followed, as a share of the answers' cost; None: too few jobs asked alike.
        latency_s: seconds of a call in the lane; 0: none went there.
    """

    calls: int
    output_tokens: float
    cache_reads: float
    cache_writes: float
    latency_s: float
    billed_share: float | None
    further_share: float | None


@dataclass(frozen=True, slots=True)
class History:
    """Earlier calls of a tenant, as far as the estimate needs them."""

    calls: Sequence[PastCalls] = ()
    trial: bool = False
    """The calls are a trial of the questions to be estimated."""
    _averages: dict[tuple[object, ...], Averages | None] = field(default_factory=dict, compare=False, repr=False)

    def answers(self, call: Call, *, exact: bool, asks_more: bool) -> Averages | None:
        """Averages the earlier answers of the same model, with the same prompt if there are enough; None for too few.

        A lane changes the price and the time, and not the length of an answer. An ``exact`` tokenizer tells more of the input than
        calls with other questions.
        """
        counted_by = "" if exact and not self.trial else call.prompt.snapshot.counted_by
        key = (call.provider, call.model, call.lane, call.prompt.name, counted_by, asks_more)
        if key not in self._averages:
            same = [past for past in self.calls if (past.provider, past.model) == (call.provider, call.model)]
            prompt = [past for past in same if past.prompt == call.prompt.name]
            alike = [past for past in same if past.asks_more is asks_more]
            chosen = next((choice for choice in (prompt, same) if _calls_in(choice) >= LEAST_CALLS), None)
            self._averages[key] = None if chosen is None else _average(chosen, alike, call.lane, counted_by)
        return self._averages[key]


def _calls_in(choice: Sequence[PastCalls]) -> int:
    return sum(past.calls for past in choice)


def _average(choice: Sequence[PastCalls], alike: Sequence[PastCalls], lane: str, counted_by: str | None) -> Averages:
    """Averages over calls; their latency is that of one lane, their billed share that of one counter, and what followed that of jobs ``alike``."""
    calls, inputs = _calls_in(choice), sum(past.input_tokens for past in choice) or 1.0
    counted = [past for past in choice if past.counted and past.counted_by == counted_by]
    same_lane = [past for past in choice if past.lane == lane]
    usd = sum(past.usd for past in alike)
    return Averages(
        calls=calls,
        output_tokens=sum(past.output_tokens for past in choice) / calls,
        cache_reads=sum(past.cached for past in choice) / inputs,
        cache_writes=sum(past.cache_written for past in choice) / inputs,
        latency_s=sum(past.seconds for past in same_lane) / max(1, _calls_in(same_lane)),
        billed_share=sum(past.billed for past in counted) / sum(past.counted for past in counted)
        if _calls_in(counted) >= LEAST_CALLS
        else None,
        further_share=sum(past.further_usd for past in alike) / usd
        if usd and _calls_in(alike) >= LEAST_CALLS
        else None,
    )
