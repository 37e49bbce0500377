"""The averages of earlier calls, by model, lane and purpose; those of different prompts add up."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from tasks.calls.linear_fit import Fit, batch_deviation, share_deviation
from tasks.ports import Call

LEAST_CALLS = 20
"""Earlier calls from which on their averages are used instead of a prior."""

OUTPUT_DEVIATION = math.log(2) / 1.96
"""A batch's answers may be half or twice as long as those of another batch, before several batches were observed."""

INPUT_DEVIATION = 0.075
"""A batch's input may be billed a seventh lower or higher for the same count: other languages, texts and lengths."""

FOLLOW_UP_DEVIATION = 0.15
"""Judges and second rounds of a batch may be 30 in 100 answers fewer or more: of any share, half a uniform deviation."""

EXACT_DEVIATION = 0.025
"""The same, a twentieth, for a count by the model's own tokenizer: other schemas of the reply."""


@dataclass(frozen=True, slots=True)
class Moments:
    """A count of values with their sum and their sum of squares; two of them add up."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(self.count + other.count, self.total + other.total, self.squares + other.squares)

    @property
    def fit(self) -> Fit:
        """The same values without a size."""
        return Fit(self.count, amounts=self.total, amount_squares=self.squares)

    @property
    def mean(self) -> float:
        """The average; 0 without values."""
        return self.total / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class PastCalls:
    """Earlier answered calls of one model, lane and purpose.

    Attributes:
        answer: provider and model of the answers that they followed; None for calls that wrote an answer first.
        judge: their jobs asked for a judge.
        jobs: answers that they may have followed, with and without such a call.
        prompt: name of their prompt.
        counted_by: counter of the prompt tokens in their records.
        input_fit: billed input by the counted tokens of the prompt.
        output_fit: output by the counted tokens of the prompt.
        exact_fit: billed input by the tokens of the messages in the model's own tokenizer, of a few calls.
        batch: the batch of the calls; None: several.
        input_deviation: that of a batch's input about the fit of all; 0 for calls of the same questions.
        output_deviation: the same of the output.
        exact_deviation: the same of the input by the model's own tokenizer.
        batches: number of batches.
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
    input_fit: Fit = field(default_factory=Fit)
    output_fit: Fit = field(default_factory=Fit)
    exact_fit: Fit = field(default_factory=Fit)
    batch: UUID | None = None
    input_deviation: float = 0.0
    output_deviation: float = 0.0
    exact_deviation: float = 0.0
    batches: int = 1
    answer: tuple[str, str | None] | None = None
    judge: bool = False
    jobs: int = 0
    prompt: str | None = None
    counted_by: str | None = None
    cache_reads: float = 0.0
    cache_writes: float = 0.0
    latency_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BilledPrompt:
    """The messages of an earlier call in the tokens of its model's own tokenizer, beside the input that was billed.

    Attributes:
        prompt: name of the prompt.
    """

    provider: str
    model: str | None
    prompt: str | None
    batch: UUID | None
    tokens: int
    billed: float

    @property
    def fit(self) -> Fit:
        """The billed input by the tokens, as a fit of one call."""
        tokens, billed = self.tokens, self.billed
        return Fit(1, tokens, billed, tokens * tokens, billed * billed, tokens * billed)


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
    prompts: Sequence[BilledPrompt] = ()
    """A few of the calls of models whose tokenizer is known."""
    _pools: dict[tuple[object, ...], PastCalls | None] = field(default_factory=dict, compare=False, repr=False)

    def answers(self, call: Call) -> PastCalls | None:
        """Earlier answers of the same model: of its lane with the same prompt, of any lane with it, then with any prompt.

        A lane changes the price and the time, and not the length of an answer. None for too few.
        """
        key = (call.provider, call.model, call.lane, call.prompt.name, call.prompt.snapshot.counted_by)
        if key not in self._pools:
            self._pools[key] = self._pool(call)
        return self._pools[key]

    def _pool(self, call: Call) -> PastCalls | None:
        same = [
            past
            for past in self.calls
            if past.answer is None and (past.provider, past.model) == (call.provider, call.model)
        ]
        prompt = [past for past in same if past.prompt == call.prompt.name]
        for choice in ([past for past in prompt if past.lane == call.lane], prompt, same):
            if sum(past.calls for past in choice) >= LEAST_CALLS:
                pooled = _pooled(choice, call.lane, call.prompt.snapshot.counted_by, same_kind=self.same_kind)
                return self._with_exact(pooled, {past.prompt for past in choice})
        return None

    def _with_exact(self, pooled: PastCalls, names: set[str | None]) -> PastCalls:
        """The sum of earlier calls, with the fit of those prompts among them that were counted exactly, if enough were."""
        fits: dict[UUID | None, Fit] = {}
        for each in self.prompts:
            if (each.provider, each.model) == (pooled.provider, pooled.model) and each.prompt in names:
                fits[each.batch] = fits.get(each.batch, Fit()) + each.fit
        whole = sum(fits.values(), Fit())
        if whole.count < LEAST_CALLS:
            return pooled
        deviation = 0.0 if self.same_kind else batch_deviation(list(fits.values()), EXACT_DEVIATION, Fit.extend)
        return replace(pooled, exact_fit=whole, exact_deviation=deviation)

    def follow_ups(self, provider: str, model: str | None, *, judge: bool) -> list[PastCalls]:
        """Earlier calls beside the first ones of a model's answers: judges and second rounds, all batches in one."""
        kinds: dict[tuple[object, ...], list[PastCalls]] = {}
        for past in self.calls:
            if past.answer == (provider, model) and past.judge is judge:
                kinds.setdefault((past.provider, past.model, past.lane, past.purpose), []).append(past)
        return [_followers(same) for same in kinds.values()]

    def follow_up_deviation(self, past: PastCalls | None, provider: str, model: str | None, *, judge: bool) -> float:
        """Standard deviation of a batch's calls of one kind after each answer, about those of all; None: there were none."""
        if self.same_kind:
            return 0.0
        answers: Counter[UUID | None] = Counter()
        followers: Counter[UUID | None] = Counter()
        for each in self.calls:
            if each.answer is None and (each.provider, each.model, each.judge) == (provider, model, judge):
                answers[each.batch] += each.calls
            elif past is not None and (each.answer, each.judge) == ((provider, model), judge):
                kind = (each.provider, each.model, each.lane, each.purpose)
                followers[each.batch] += (
                    each.calls if kind == (past.provider, past.model, past.lane, past.purpose) else 0
                )
        share = followers.total() / (answers.total() or 1)
        squares = [(followers[batch] / count - share) ** 2 for batch, count in answers.items() if count >= LEAST_CALLS]
        return share_deviation(squares, FOLLOW_UP_DEVIATION)

    def judged(self, provider: str, model: str | None, *, judge: bool) -> int:
        """Number of a model's answers that a judge may have followed; 0 for too few to go by."""
        jobs = sum(
            past.calls
            for past in self.calls
            if past.answer is None and (past.provider, past.model, past.judge) == (provider, model, judge)
        )
        return jobs if jobs >= LEAST_CALLS else 0


def _followers(same: Sequence[PastCalls]) -> PastCalls:
    """The sum of earlier calls of one model, lane and purpose after answers of one model."""
    calls = sum(past.calls for past in same)
    return replace(
        same[0],
        calls=calls,
        batch=None,
        outputs=sum((past.outputs for past in same), Moments()),
        inputs=sum((past.inputs for past in same), Moments()),
        cache_reads=sum(past.cache_reads * past.calls for past in same) / calls,
        cache_writes=sum(past.cache_writes * past.calls for past in same) / calls,
        latency_s=sum(past.latency_s * past.calls for past in same) / calls,
    )


def _by_batch(choice: Sequence[PastCalls], fit: Callable[[PastCalls], Fit]) -> list[Fit]:
    """The fits of all batches with enough calls, and of the others together."""
    fits: dict[UUID | None, Fit] = {}
    for past in choice:
        fits[past.batch] = fits.get(past.batch, Fit()) + fit(past)
    small = sum((each for each in fits.values() if each.count < LEAST_CALLS), Fit())
    return [each for each in (*fits.values(), small) if each.count >= LEAST_CALLS]


def _pooled(choice: Sequence[PastCalls], lane: str, counted_by: str | None, *, same_kind: bool) -> PastCalls:
    """The sum of earlier calls; sizes are those of one counter, and the latency that of one lane."""
    first, calls = choice[0], sum(past.calls for past in choice)
    same_lane = [past for past in choice if past.lane == lane]
    same_counter = [past for past in choice if past.counted_by == counted_by]
    sized = sum(past.output_fit.count for past in same_counter) >= LEAST_CALLS
    # Without sizes an answer is as long as the others on average.
    outputs = (lambda past: past.output_fit) if sized else (lambda past: past.outputs.fit)
    writers = same_counter if sized else choice
    return PastCalls(
        first.provider,
        first.model,
        lane,
        first.purpose,
        calls,
        outputs=sum((past.outputs for past in choice), Moments()),
        input_fit=sum((past.input_fit for past in same_counter), Fit()),
        output_fit=sum(map(outputs, writers), Fit()),
        input_deviation=0.0
        if same_kind
        else batch_deviation(_by_batch(same_counter, lambda past: past.input_fit), INPUT_DEVIATION, Fit.scale),
        output_deviation=0.0
        if same_kind
        else batch_deviation(_by_batch(writers, outputs), OUTPUT_DEVIATION, Fit.predict),
        batches=len({past.batch for past in choice}),
        counted_by=counted_by,
        cache_reads=sum(past.cache_reads * past.calls for past in choice) / calls,
        cache_writes=sum(past.cache_writes * past.calls for past in choice) / calls,
        latency_s=sum(past.latency_s * past.calls for past in same_lane)
        / max(1, sum(past.calls for past in same_lane)),
    )
