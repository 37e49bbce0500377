"""Averages over earlier calls: the basis of an estimate."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tasks.ports import Call, Purpose

LEAST_CALLS = 20
"""Earlier calls from which on their averages are used instead of a guess."""


@dataclass(frozen=True, slots=True)
class PastCalls:
    """Sums over earlier answered calls of one model, lane and purpose.

    Attributes:
        answer: provider and model of the answers that they followed; None for calls that wrote an answer first.
        judge: their jobs asked for a judge.
        prompt: name of their prompt.
        counted_by: counter of the prompt tokens in their records.
        counted: those tokens, as far as records have them.
        billed: input tokens of the same calls, as the provider billed them.
        cached: input tokens read from the provider's cache.
        cache_written: input tokens written to it.
        seconds: from opening to closing, over all calls.
    """

    provider: str
    model: str | None
    lane: str
    purpose: str
    calls: int
    input_tokens: float
    output_tokens: float
    cached: float = 0.0
    cache_written: float = 0.0
    seconds: float = 0.0
    counted: float = 0.0
    billed: float = 0.0
    answer: tuple[str, str | None] | None = None
    judge: bool = False
    prompt: str | None = None
    counted_by: str | None = None


@dataclass(frozen=True, slots=True)
class Averages:
    """Averages of one call over earlier ones of a kind.

    Attributes:
        billed_share: billed input tokens for each counted one; None: too few were counted alike.
        latency_s: seconds of a call in the lane; 0: none went there.
    """

    calls: int
    input_tokens: float
    output_tokens: float
    cache_reads: float
    cache_writes: float
    latency_s: float
    billed_share: float | None


@dataclass(frozen=True, slots=True)
class History:
    """Earlier calls of a tenant, as far as the estimate needs them."""

    calls: Sequence[PastCalls] = ()
    trial: bool = False
    """The calls are a trial of the questions to be estimated."""
    _averages: dict[tuple[object, ...], Averages | None] = field(default_factory=dict, compare=False, repr=False)

    def answers(self, call: Call) -> Averages | None:
        """Averages the earlier answers of the same model, with the same prompt if there are enough; None for too few.

        A lane changes the price and the time, and not the length of an answer.
        """
        counted_by = call.prompt.snapshot.counted_by
        key = (call.provider, call.model, call.lane, call.prompt.name, counted_by)
        if key not in self._averages:
            same = self.first_calls(call.provider, call.model)
            prompt = [past for past in same if past.prompt == call.prompt.name]
            chosen = next((choice for choice in (prompt, same) if calls_in(choice) >= LEAST_CALLS), None)
            self._averages[key] = None if chosen is None else average(chosen, call.lane, counted_by)
        return self._averages[key]

    def first_calls(self, provider: str, model: str | None, *, judge: bool | None = None) -> list[PastCalls]:
        """Selects the calls that wrote an answer first, of jobs with or without a judge."""
        return [
            past
            for past in self.calls
            if past.answer is None and (past.provider, past.model) == (provider, model) and judge in {None, past.judge}
        ]

    def follow_ups(self, provider: str, model: str | None, *, judge: bool) -> Iterable[list[PastCalls]]:
        """Groups the calls that followed answers of a model, of jobs with or without a judge, each kind together.

        Those of a cascade are left out: how often it goes on depends on the questions.
        """
        kinds: dict[tuple[str, str | None, str, str], list[PastCalls]] = defaultdict(list)
        for past in self.calls:
            if (past.answer, past.judge) == ((provider, model), judge) and past.purpose != Purpose.ESCALATE:
                kinds[past.provider, past.model, past.lane, past.purpose].append(past)
        return kinds.values()


def calls_in(choice: Sequence[PastCalls]) -> int:
    """Counts the calls of some sums."""
    return sum(past.calls for past in choice)


def average(choice: Sequence[PastCalls], lane: str, counted_by: str | None = None) -> Averages:
    """Averages over calls; their latency is that of one lane, and their billed share that of one counter."""
    calls, inputs = calls_in(choice), sum(past.input_tokens for past in choice)
    counted = [past for past in choice if past.counted and past.counted_by == counted_by]
    same_lane = [past for past in choice if past.lane == lane]
    return Averages(
        calls=calls,
        input_tokens=inputs / calls,
        output_tokens=sum(past.output_tokens for past in choice) / calls,
        cache_reads=sum(past.cached for past in choice) / (inputs or 1.0),
        cache_writes=sum(past.cache_written for past in choice) / (inputs or 1.0),
        latency_s=sum(past.seconds for past in same_lane) / max(1, calls_in(same_lane)),
        billed_share=sum(past.billed for past in counted) / sum(past.counted for past in counted)
        if calls_in(counted) >= LEAST_CALLS
        else None,
    )
