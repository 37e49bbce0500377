"""Estimates tokens, cost and time of jobs: their calls as they would be planned, times what earlier calls used, at today's prices."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import reduce
from itertools import chain
from typing import NamedTuple, Protocol
from uuid import UUID

from uuid_utils.compat import uuid7

from schemas.generation import CheckerName, Lane
from schemas.job import GenerationConfig, JobRequest
from schemas.model_call import Usage
from schemas.states import Outcome, Step
from schemas.window import gap_before, parse_window
from tasks.calls.experiments import Variants
from tasks.errors import ConfigurationError, InputError, ProviderError
from tasks.estimates.call_history import LEAST_CALLS, Averages, History
from tasks.generate import FallbackChain, ruled_out
from tasks.grounding.judge.allowance import wants_default
from tasks.lanes.choice import LaneChooser
from tasks.ports import Call, Leased, NewBatch, Providers, Replay, Turn
from tasks.prompting.sources.pack import ESTIMATE, ESTIMATED, exact_counter
from tasks.prompting.sources.pack import Counter as TokenCounter

MESSAGE_TOKENS = 4
"""Tokens around each message of a chat, in OpenAI's count."""

JUDGE_TOKENS = 400
"""Usual tokens of a written judge reply: five claims."""


class Spread(NamedTuple):
    """A value with its bounds."""

    low: float
    usual: float
    high: float

    @classmethod
    def of(cls, value: float, bounds: tuple[float, float, float]) -> "Spread":
        """A value times each of its bounds."""
        return cls(*(value * bound for bound in bounds))

    def plus(self, other: "Spread") -> "Spread":
        """The sum, bound by bound."""
        return Spread(*map(sum, zip(self, other, strict=True)))


NOTHING = Spread(0, 0, 0)

NO_CALLS = (1 / 16, 1 / 4, 1.0)
"""Shares of its cap that an answer fills, without an earlier call."""
OTHER_OUTPUT, TRIAL_OUTPUT = (1 / 2.5, 1.0, 2.5), (1 / 1.2, 1.0, 1.2)
"""Bounds of the answers' length around the mean of earlier ones: to other questions, and to a trial of the same."""
OTHER_INPUT, TRIAL_INPUT = (0.6, 1.0, 1.6), (0.95, 1.0, 1.05)
"""Bounds of the billed input around that of earlier calls: what stands around short sources weighs more."""
TOKENIZER, CHARACTERS = (0.9, 1.0, 1.2), (0.7, 0.85, 1.3)
"""Bounds of the billed input as shares of a count: providers count their own form of the schema; for characters see ``quarter_tokens``."""
OTHER_FURTHER, TRIAL_FURTHER = (0.0, 1.0, 2.0), (0.75, 1.0, 1.25)
"""Bounds of what follows the answers, around its share of their cost before."""
JUDGED, ESCALATED = (0.0, 0.5, 1.0), (0.0, 0.25, 1.0)
"""Shares of the answers that a judge reads, and that a further model writes anew, without an earlier call."""


# ---- one job ---------------------------------------------------------------------------------------------------------


class CallKind(NamedTuple):
    """Traits of answers that are estimated together.

    Attributes:
        counted_by: the tokenizer of the prompts.
        judge: the judge that the jobs ask for; empty for none.
        judge_share: the share of the answers' cost that a judge by default may add.
        escalate: the models that may be asked next.
    """

    provider: str
    model: str | None
    lane: str
    past: Averages | None
    counted_by: str
    judge: str = ""
    judge_share: float = 0.0
    escalate: tuple[str, ...] = ()


def prompt_tokens(call: Call, counter: TokenCounter | None) -> int:
    """Tokens of a call's messages and of the schema of its reply; a quarter of the characters without a tokenizer."""
    counter = counter or ESTIMATED
    texts = call.prompt.snapshot.texts([source.content for source in call.request.context])
    tokens = sum(counter.count(text) for _, text in texts) + MESSAGE_TOKENS * len(texts)
    if (schema := call.prompt.reply_schema) is not None:
        tokens += counter.count(json.dumps(schema, separators=(",", ":"))) + MESSAGE_TOKENS
    return tokens


def first_lease(job_id: UUID, request: JobRequest, batch: NewBatch, replay: Replay | None = None) -> Leased:
    """The job as a worker would have it at its first lease."""
    deadline = request.deadline or batch.deadline
    due = max(filter(None, (datetime.now(UTC), request.scheduled_at or batch.not_before)))
    if batch.window is not None:
        due = parse_window(batch.window).opening(due)
    return Leased(
        job_id=job_id,
        batch_id=batch.id,
        tenant=batch.tenant,
        position=0,
        custom_id=request.custom_id,
        step=Step.GENERATE,
        run=1,
        round=0,
        priority=request.priority,
        token=uuid7(),
        request=request,
        created_at=datetime.fromtimestamp(0, UTC),
        deadline=deadline,
        age_ms=0.0,
        waited_ms=0.0,
        limited_ms=0.0,
        spent=0,
        snoozes=0,
        unknown=0,
        attempts=0,
        cost_usd=Decimal(0),
        # An unknown price is shown, not raised: the door refuses it where there is a ceiling.
        max_cost_usd=None,
        first_opened_ago_ms=None,
        stored=None,
        time_left=None if deadline is None else deadline - due,
        window_gap=gap_before(batch.window, deadline) if batch.window and deadline else timedelta(0),
        replay=replay,
    )


# ---- all jobs --------------------------------------------------------------------------------------------------------


class PricedProviders(Providers, Protocol):
    """The providers of an installation with their prices."""

    def usage_usd(self, provider: str, model: str | None, usage: Usage, lane: str) -> Decimal | None:
        """The cost of one call with this usage; None: the price is unknown."""

    def model_of(self, provider: str, model: str | None) -> str | None:
        """The model that a call names: the one given, else the provider's default."""


class CallLimits(NamedTuple):
    """The limits of one model over all workers; 0 is no limit."""

    requests_per_minute: float = 0.0
    input_tokens_per_minute: float = 0.0
    output_tokens_per_minute: float = 0.0
    concurrency: int = 0


@dataclass(frozen=True, slots=True)
class ModelEstimate:
    """The answers of one model in one lane.

    Attributes:
        cost_usd: None for an unknown price.
        further_usd: the cost of what follows them: judges, second rounds, further models; None for an unknown price.
        counted_by: the tokenizer of the input.
        output_from: the basis of the length of the answers.
        further_from: the basis of the further cost; empty where nothing follows.
        latency_s: average seconds of a call; None: none was observed.
        judged: a judge reads them in the same lane, once they are there.
        unpriced: the models without a known price.
    """

    provider: str
    model: str | None
    lane: str
    calls: int
    input_tokens: Spread
    output_tokens: Spread
    cost_usd: Spread | None
    further_usd: Spread | None
    counted_by: str
    output_from: str
    further_from: str = ""
    latency_s: float | None = None
    judged: bool = False
    unpriced: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The provider and its model."""
        return f"{self.provider}:{self.model or '?'}"

    def plus(self, other: "ModelEstimate") -> "ModelEstimate":
        """The same with further answers of the model."""
        return replace(
            self,
            calls=self.calls + other.calls,
            input_tokens=self.input_tokens.plus(other.input_tokens),
            output_tokens=self.output_tokens.plus(other.output_tokens),
            cost_usd=self.cost_usd and other.cost_usd and self.cost_usd.plus(other.cost_usd),
            further_usd=self.further_usd and other.further_usd and self.further_usd.plus(other.further_usd),
            counted_by=_both(self.counted_by, other.counted_by),
            output_from=_both(self.output_from, other.output_from),
            further_from=_both(self.further_from, other.further_from),
            latency_s=self.latency_s or other.latency_s,
            judged=self.judged or other.judged,
            unpriced=self.unpriced + other.unpriced,
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate for the jobs of a file or batch.

    Attributes:
        jobs: jobs that would be accepted.
        calls: jobs that would call a model.
        uncalled: jobs that end without a call, by outcome.
        check_only: jobs whose answer is there.
        problems: jobs that would fail before a call, by reason.
        reserve_usd: the largest sum reserved for one call.
        models: the answers by model and lane.
        seconds: from the first call to the last answer; None: nothing tells.
        bound_by: the cause that bounds the time.
    """

    jobs: int
    calls: int
    uncalled: Mapping[Outcome, int]
    check_only: int
    problems: Mapping[str, int]
    reserve_usd: Decimal
    models: tuple[ModelEstimate, ...]
    seconds: Spread | None
    bound_by: str

    @property
    def unpriced(self) -> tuple[str, ...]:
        """``provider:model`` of each model without a known price."""
        return tuple(dict.fromkeys(chain.from_iterable(row.unpriced for row in self.models)))

    @property
    def input_tokens(self) -> Spread:
        """The sum over all models, of the answers alone."""
        return _sum(row.input_tokens for row in self.models)

    @property
    def output_tokens(self) -> Spread:
        """The sum over all models, of the answers alone."""
        return _sum(row.output_tokens for row in self.models)

    @property
    def cost_usd(self) -> Spread | None:
        """The sum of the known costs; None where calls cost something and no price is known."""
        costs = [row.cost_usd.plus(row.further_usd or NOTHING) for row in self.models if row.cost_usd is not None]
        return _sum(costs) if costs or not self.models else None


@dataclass(slots=True)
class Estimator:
    """Plans the first call of each job by the code that makes it, and makes none; holds sums alone, whatever the number of jobs."""

    providers: PricedProviders
    history: History
    limits: Callable[[str, str | None], CallLimits]
    variants: Variants = field(default_factory=dict)
    judge: str | None = None
    """Judge of the settings."""
    judge_share: float = 0.0
    """Share of an answer's cost that a judge by default may add."""
    judge_rides: bool = True
    """The judge that a job asks for may ride in a provider batch."""
    slots: int = 1_000
    """Calls at once of all workers."""
    lanes: LaneChooser | None = None
    """Chooses the lane of jobs that leave it open; None: they are called at once."""
    jobs: int = 0
    check_only: int = 0
    uncalled: Counter[Outcome] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    _reserve: Decimal = Decimal(0)
    _sums: dict[CallKind, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, job: Leased) -> None:
        """Plans one job as if it was leased now."""
        self.jobs += 1
        if job.request.check_only:
            self.check_only += 1
        elif (ruling := ruled_out(job)) is not None:
            self.uncalled[ruling[0]] += 1
        else:
            try:
                call = FallbackChain(job, self.providers, lambda _: None, self.variants, self.lanes).take().call
            except (ConfigurationError, InputError, ProviderError) as error:
                self.problems[str(error)] += 1
            else:
                self._add_call(call, job.request.config)

    def _add_call(self, call: Call, config: GenerationConfig) -> None:
        counter = exact_counter(call.model)
        judges = CheckerName.JUDGE in config.checkers
        kind = CallKind(
            call.provider,
            call.model,
            call.lane,
            past := self.history.answers(call, exact=counter is not None, asks_more=judges or bool(config.escalate)),
            counter.name if counter else ESTIMATE,
            (config.judge or self.judge or "") if judges else "",
            self._judge_share(config, call),
            tuple(config.escalate),
        )
        # By the count of its record where earlier calls tell what is billed for one.
        by_record = past is not None and past.billed_share is not None
        tokens = (call.prompt.snapshot.prompt_tokens or 0) if by_record else prompt_tokens(call, counter)
        self._sums[kind].update({"calls": 1, "tokens": tokens, "cap": call.request.config.max_tokens})
        self._reserve = max(self._reserve, call.reserve_usd or Decimal(0))

    def _judge_share(self, config: GenerationConfig, call: Call) -> float:
        """The share of an answer's cost that a judge by default may add; 0 where there is none."""
        if not self.judge_share or not wants_default(config):
            return 0.0
        return self.judge_share if self.judge or self.providers.cheap_judge(call.provider, call.model) else 0.0

    def result(self) -> Estimate:
        """The estimate of all jobs so far."""
        rows: dict[tuple[str, str | None, str], ModelEstimate] = {}
        for kind, sums in self._sums.items():
            row = self._row(kind, sums)
            key = row.provider, row.model, row.lane
            rows[key] = rows[key].plus(row) if key in rows else row
        models = tuple(rows.values())
        return Estimate(
            self.jobs,
            sum(row.calls for row in models),
            dict(self.uncalled),
            self.check_only,
            dict(self.problems),
            self._reserve,
            models,
            *self._time(models),
        )

    def _row(self, kind: CallKind, sums: Mapping[str, int]) -> ModelEstimate:
        past, calls, cap, trial = kind.past, sums["calls"], sums["cap"], self.history.trial
        if past is None:
            outputs = Spread.of(cap, NO_CALLS)
            output_from = f"a quarter of max_tokens ({cap // calls:,}); fewer than {LEAST_CALLS} earlier calls"
        else:
            lengths = Spread.of(calls * past.output_tokens, TRIAL_OUTPUT if trial else OTHER_OUTPUT)
            outputs = Spread(*(min(cap, length) for length in lengths))
            output_from = f"{past.calls:,} earlier calls"
        if past is not None and past.billed_share is not None:
            inputs = Spread.of(sums["tokens"] * past.billed_share, TRIAL_INPUT if trial else OTHER_INPUT)
            counted_by = f"{kind.counted_by} x {past.billed_share:.2f}, as billed in {past.calls:,} calls"
        elif kind.counted_by == ESTIMATE:
            inputs, counted_by = Spread.of(sums["tokens"], CHARACTERS), "estimate of 4 characters a token"
        else:
            inputs, counted_by = Spread.of(sums["tokens"], TOKENIZER), kind.counted_by
        turn = Turn(kind.provider, self.providers.model_of(kind.provider, kind.model))
        costs = [self._usd(turn, kind.lane, calls, *each, past) for each in zip(inputs, outputs, strict=True)]
        prices = [usd for usd in costs if usd is not None]
        row = ModelEstimate(
            turn.provider,
            turn.model,
            kind.lane,
            calls,
            inputs,
            outputs,
            Spread(*prices) if len(prices) == len(costs) else None,
            NOTHING,
            counted_by,
            output_from,
            latency_s=past.latency_s if past is not None else None,
            judged=bool(kind.judge) and self.judge_rides,
        )
        row = row if row.cost_usd is not None else replace(row, unpriced=(row.name,))
        return self._with_further(row, kind)

    def _usd(  # noqa: PLR0917 - one price
        self, turn: Turn, lane: str, calls: int, inputs: float, outputs: float, past: Averages | None = None
    ) -> float | None:
        """The cost of calls with so many tokens together: the price of a call depends on its length."""
        tokens = inputs / calls
        usage = Usage(
            input_tokens=round(tokens),
            output_tokens=round(outputs / calls),
            cached_input_tokens=int(tokens * past.cache_reads) if past else 0,
            cache_write_tokens=int(tokens * past.cache_writes) if past else 0,
        )
        usd = self.providers.usage_usd(turn.provider, turn.model, usage, lane)
        return None if usd is None else calls * float(usd)

    def _with_further(self, row: ModelEstimate, kind: CallKind) -> ModelEstimate:
        """The row with the cost of what follows its answers: as after earlier ones, else a guess by what the jobs ask for."""
        past, answers = kind.past, row.cost_usd
        if past is not None and past.further_share is not None:
            bounds = TRIAL_FURTHER if self.history.trial else OTHER_FURTHER
            usd = None if answers is None else Spread.of(past.further_share * answers.usual, bounds)
            source = f"{past.further_share:.0%} of the answers' cost, as in earlier calls" if past.further_share else ""
            return replace(row, further_usd=usd, further_from=source)
        prompts, replies = row.input_tokens.usual, row.output_tokens.usual
        guesses = [(name, prompts, replies, ESCALATED) for name in kind.escalate]
        guesses += [(kind.judge, prompts + replies, JUDGE_TOKENS * row.calls, JUDGED)] if kind.judge else []
        parts = [NOTHING if answers is None else Spread.of(kind.judge_share * answers.usual, JUDGED)]
        unpriced = []
        for name, inputs, outputs, shares in guesses:
            each = self._usd(Turn.parse(name), row.lane, row.calls, inputs, outputs)
            if each is None:
                unpriced.append(name)
            else:
                parts.append(Spread.of(each, shares))
        return replace(
            row,
            further_usd=None if unpriced else _sum(parts),
            further_from="a guess: no earlier calls" if guesses or kind.judge_share else "",
            unpriced=(*row.unpriced, *unpriced),
        )

    def _time(self, models: Sequence[ModelEstimate]) -> tuple[Spread | None, str]:
        if not models:
            return NOTHING, "no calls"
        bounds = [bound for row in models for bound in self._bounds_of(row)]
        least, cause = max(bounds, key=lambda bound: bound[0].usual, default=(NOTHING, ""))
        if waits := [self._waiting(row, self.lanes) for row in models if self.lanes and row.lane != Lane.STANDARD]:
            seconds, cause = max(waits)
            return Spread(least.low, max(least.usual, seconds), max(least.high, seconds)), cause
        if not bounds:
            return None, "no limit is set, and no earlier call tells how long one takes"
        return least, cause

    @staticmethod
    def _waiting(row: ModelEstimate, lanes: LaneChooser) -> tuple[float, str]:
        """The time that a cheaper lane takes, twice where a judge reads there what came back."""
        time, basis = lanes.expected_time(row.provider, row.model, Lane(row.lane))
        return time.total_seconds() * (1 + row.judged), basis

    def _bounds_of(self, row: ModelEstimate) -> Iterable[tuple[Spread, str]]:
        limits = self.limits(row.provider, row.model)
        calls = Spread.of(row.calls, (1, 1, 1))
        for total, rate, unit in (
            (calls, limits.requests_per_minute, "requests"),
            (row.input_tokens, limits.input_tokens_per_minute, "input tokens"),
            (row.output_tokens, limits.output_tokens_per_minute, "output tokens"),
        ):
            if rate:
                yield Spread(*(value * 60 / rate for value in total)), f"the {unit} a minute of {row.name}"
        if row.lane == Lane.STANDARD and row.latency_s:
            at_once = min(limits.concurrency or self.slots, self.slots)
            busy_s = max(row.latency_s, row.calls * row.latency_s / at_once)
            yield Spread(busy_s, busy_s, busy_s), f"{at_once:,} calls at once of {row.name}"


def _sum(spreads: Iterable[Spread]) -> Spread:
    return reduce(Spread.plus, spreads, NOTHING)


def _both(first: str, second: str) -> str:
    return first if second in first else "; ".join(filter(None, (first, second)))
