"""The sums of earlier calls, by model, lane and purpose: the basis of an estimate."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from tasks.ports import Call

LEAST_CALLS = 20
"""Earlier calls from which on their averages are used instead of a guess."""

SAMPLE_MARGIN = 1.5
"""A sample of n calls may be off by this divided by the root of n, as a share: lengths deviate by three quarters of their mean."""

OTHER_QUESTIONS = 2.5
"""Answers to other questions may be so many times shorter or longer, however many batches there were: these may be alike."""

OTHER_JUDGES = 0.3
"""Other questions may need a judge, or a second round, after so many more or fewer of all answers."""


@dataclass(frozen=True, slots=True)
class PastCalls:
    """Sums over earlier answered calls of one model, lane, purpose and batch.

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
    batch: UUID | None
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
        output_factor: the bounds of the output as a factor on each side of the average.
        latency_s: seconds of a call in the lane; 0: none went there.
    """

    calls: int
    batches: int
    input_tokens: float
    output_tokens: float
    cache_reads: float
    cache_writes: float
    latency_s: float
    counted_by: str | None
    billed_share: float | None
    output_factor: float


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
    same_kind: bool = False
    """The calls are a trial of the questions to be estimated."""
    _averages: dict[tuple[object, ...], Averages | None] = field(default_factory=dict, compare=False, repr=False)

    def answers(self, call: Call) -> Averages | None:
        """Averages the earlier answers of the same model: of its lane with the same prompt, of any lane with it, of any prompt.

        A lane changes the price and the time, and not the length of an answer. None for too few.
        """
        counted_by = call.prompt.snapshot.counted_by
        key = (call.provider, call.model, call.lane, call.prompt.name, counted_by)
        if key not in self._averages:
            same = self.first_calls(call.provider, call.model)
            prompt = [past for past in same if past.prompt == call.prompt.name]
            choices = ([past for past in prompt if past.lane == call.lane], prompt, same)
            chosen = next((choice for choice in choices if calls_in(choice) >= LEAST_CALLS), None)
            self._averages[key] = None if chosen is None else self.average(chosen, call.lane, counted_by)
        return self._averages[key]

    def first_calls(self, provider: str, model: str | None, *, judge: bool | None = None) -> list[PastCalls]:
        """Selects the calls that wrote an answer first, of jobs with or without a judge."""
        return [
            past
            for past in self.calls
            if past.answer is None and (past.provider, past.model) == (provider, model) and judge in {None, past.judge}
        ]

    def follow_ups(self, provider: str, model: str | None, *, judge: bool) -> list[tuple[PastCalls, Averages]]:
        """Averages the judges and second rounds after a model's answers, by model, lane and purpose."""
        kinds: dict[tuple[object, ...], list[PastCalls]] = {}
        for past in self.calls:
            if past.answer == (provider, model) and past.judge is judge:
                kinds.setdefault((past.provider, past.model, past.lane, past.purpose), []).append(past)
        return [(same[0], self.average(same, same[0].lane)) for same in kinds.values()]

    def average(self, choice: Sequence[PastCalls], lane: str, counted_by: str | None = None) -> Averages:
        """Averages over calls; their latency is that of one lane, and their billed share that of one counter."""
        calls, batches = calls_in(choice), len({past.batch for past in choice})
        inputs, outputs = sum(past.input_tokens for past in choice), sum(past.output_tokens for past in choice)
        same_counter = [past for past in choice if past.counted and past.counted_by == counted_by]
        same_lane = [past for past in choice if past.lane == lane]
        factor = 1 + SAMPLE_MARGIN / math.sqrt(calls)
        if not self.same_kind:
            factor *= OTHER_QUESTIONS
        return Averages(
            calls=calls,
            batches=batches,
            input_tokens=inputs / calls,
            output_tokens=outputs / calls,
            cache_reads=sum(past.cached for past in choice) / (inputs or 1.0),
            cache_writes=sum(past.cache_written for past in choice) / (inputs or 1.0),
            latency_s=sum(past.seconds for past in same_lane) / max(1, calls_in(same_lane)),
            counted_by=counted_by,
            billed_share=sum(past.billed for past in same_counter) / sum(past.counted for past in same_counter)
            if calls_in(same_counter) >= LEAST_CALLS
            else None,
            output_factor=max([factor, *deviations(choice, outputs / calls)]),
        )

    def margin(self, answers: int) -> float:
        """The share of all answers by which follow-ups may be more or fewer than after ``answers`` earlier ones."""
        return 1 / math.sqrt(answers) + (0.0 if self.same_kind else OTHER_JUDGES)


def calls_in(choice: Sequence[PastCalls]) -> int:
    """Counts the calls of some sums."""
    return sum(past.calls for past in choice)


def deviations(choice: Sequence[PastCalls], mean: float) -> list[float]:
    """Lists the factors by which the answers of batches with enough calls differ from the mean of all."""
    batches: dict[UUID | None, list[PastCalls]] = {}
    for past in choice:
        batches.setdefault(past.batch, []).append(past)
    means = [
        sum(past.output_tokens for past in batch) / calls_in(batch)
        for batch in batches.values()
        if calls_in(batch) >= LEAST_CALLS
    ]
    return [max(each / mean, mean / each) for each in means if each and mean]
