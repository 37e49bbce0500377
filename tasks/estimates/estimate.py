"""Estimates tokens, cost and time of jobs: their calls as they would be planned, times what earlier calls used, at today's prices."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import reduce
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
from tasks.estimates.call_history import LEAST_CALLS, Averages, History, average, calls_in
from tasks.generate import FallbackChain, ruled_out
from tasks.grounding.judge.allowance import wants_default
from tasks.grounding.judge.lane import choose_lane, model_of
from tasks.lanes.choice import LaneChooser
from tasks.ports import Call, Leased, NewBatch, Providers, Purpose, Replay, Turn
from tasks.prompting.sources.pack import ESTIMATE, ESTIMATED, exact_counter
from tasks.prompting.sources.pack import Counter as TokenCounter

MESSAGE_TOKENS = 4
"""Tokens around each message of a chat, in OpenAI's count."""

JUDGE_TOKENS = 400
"""Usual tokens of a written judge reply without an earlier call: five claims."""


class Spread(NamedTuple):
    """A value with its bounds."""

    low: float
    usual: float
    high: float

    @classmethod
    def only(cls, value: float) -> "Spread":
        """A value without doubt."""
        return cls(value, value, value)

    def times(self, *factors: float) -> "Spread":
        """The product with one factor, or with one for each bound."""
        return Spread(*(value * factor for value, factor in zip(self, factors * (3 // len(factors)), strict=True)))

    def plus(self, other: "Spread") -> "Spread":
        """The sum, bound by bound."""
        return Spread(*map(sum, zip(self, other, strict=True)))


NOTHING = Spread.only(0)

NO_CALLS = (1 / 16, 1 / 4, 1.0)
"""Shares of its cap that an answer fills, without an earlier call."""
OTHER_OUTPUT, TRIAL_OUTPUT = (1 / 2.5, 1.0, 2.5), (1 / 1.2, 1.0, 1.2)
"""Bounds of the answers' length around the mean of earlier ones: to other questions, and to a trial of the same."""
OTHER_INPUT, TRIAL_INPUT = (0.87, 1.0, 1.15), (0.95, 1.0, 1.05)
"""Bounds of the billed input around that of earlier calls."""
TOKENIZER, CHARACTERS = (0.9, 1.0, 1.2), (0.7, 0.85, 1.3)
"""Bounds of the billed input as shares of a count: providers count their own form of the schema; for characters see ``quarter_tokens``."""
OTHER_JUDGES, TRIAL_JUDGES = 0.3, 0.1
"""Judges and second rounds may follow so many more or fewer of all answers than before."""
ESCALATED = (0.0, 0.25, 1.0)
"""Shares of the jobs that come to a further model of a cascade."""


# ---- one job ---------------------------------------------------------------------------------------------------------


class CallKind(NamedTuple):
    """Traits of answers that are estimated together.

    Attributes:
        counted_by: the tokenizer of the prompts.
        judge: the judge that the jobs ask for, or get by default; empty for none.
        judge_lane: the lane of its calls.
        escalate: the models that may be asked next.
    """

    provider: str
    model: str | None
    lane: str
    past: Averages | None
    counted_by: str
    judge: str = ""
    by_default: bool = False
    judge_lane: str = Lane.STANDARD.value
    escalate: tuple[str, ...] = ()


class Forecast(NamedTuple):
    """The way of one job through the first step: a call of a kind, no call by rule (``outcome``), or a problem.

    Attributes:
        counted: tokens of the prompt in the count of its record.
        tokens: tokens of the prompt and of the schema of the reply by the tokenizer; 0 where earlier calls tell what is billed
            for a count.
        cap: most tokens of the answer.
        reserve_usd: sum that the ledger reserves for the call; None for an unknown price.
    """

    kind: CallKind | None = None
    counted: int = 0
    tokens: int = 0
    cap: int = 0
    reserve_usd: Decimal | None = None
    outcome: Outcome | None = None
    problem: str | None = None
    check_only: bool = False


def prompt_tokens(call: Call, counter: TokenCounter | None) -> int:
    """Tokens of a call's messages and of the schema of its reply; a quarter of the characters without a tokenizer."""
    counter = counter or ESTIMATED
    texts = call.prompt.snapshot.texts([source.content for source in call.request.context])
    tokens = sum(counter.count(text) for _, text in texts) + MESSAGE_TOKENS * len(texts)
    if (schema := call.prompt.reply_schema) is not None:
        tokens += counter.count(json.dumps(schema, separators=(",", ":"))) + MESSAGE_TOKENS
    return tokens


def first_lease(
    job_id: UUID, request: JobRequest, batch: NewBatch, replay: Replay | None = None, at: datetime | None = None
) -> Leased:
    """The job as a worker would have it at its first lease, submitted at a moment (None: now)."""
    deadline = request.deadline or batch.deadline
    due = max(filter(None, (at or datetime.now(UTC), request.scheduled_at or batch.not_before)))
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


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits of one model over all workers; 0 is no limit."""

    requests_per_minute: float = 0.0
    input_tokens_per_minute: float = 0.0
    output_tokens_per_minute: float = 0.0
    concurrency: int = 0


@dataclass(frozen=True, slots=True)
class ModelEstimate:
    """The calls of one purpose to one model in one lane.

    Attributes:
        calls: number of calls.
        cost_usd: None for an unknown price.
        counted_by: the tokenizer of the input.
        output_from: the basis of the length of the answers.
        latency_s: average seconds of a call; None: none was observed.
    """

    provider: str
    model: str | None
    lane: str
    purpose: str
    calls: Spread
    input_tokens: Spread
    output_tokens: Spread
    cost_usd: Spread | None
    counted_by: str
    output_from: str
    latency_s: float | None = None

    @property
    def name(self) -> str:
        """The provider and its model."""
        return f"{self.provider}:{self.model or '?'}"


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """Seconds from the first call to the last answer, and the cause that bounds them."""

    seconds: Spread | None
    bound_by: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate for the jobs of a file or batch.

    Attributes:
        jobs: jobs that would be accepted.
        calls: jobs that would call a model.
        unobserved: those among them of whose answers no earlier call tells the length.
        uncalled: jobs that end without a call, by outcome.
        check_only: jobs whose answer is there.
        problems: jobs that would fail before a call, by reason.
        reserve_usd: the largest sum reserved for one call.
        models: the calls by model, lane and purpose.
        unpriced: models without a known price.
    """

    jobs: int
    calls: int
    uncalled: Mapping[Outcome, int]
    check_only: int
    problems: Mapping[str, int]
    reserve_usd: Decimal
    models: tuple[ModelEstimate, ...]
    time: TimeEstimate
    unobserved: int = 0

    @property
    def unpriced(self) -> tuple[str, ...]:
        """``provider:model`` of each model without a known price."""
        return tuple(dict.fromkeys(row.name for row in self.models if row.cost_usd is None))

    @property
    def input_tokens(self) -> Spread:
        """The sum over all models."""
        return _sum(row.input_tokens for row in self.models)

    @property
    def output_tokens(self) -> Spread:
        """The sum over all models."""
        return _sum(row.output_tokens for row in self.models)

    @property
    def cost_usd(self) -> Spread | None:
        """The sum of the known costs; None where calls cost something and no price is known."""
        costs = [row.cost_usd for row in self.models if row.cost_usd is not None]
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
    judge_share: Decimal = Decimal(0)
    """Share of an answer's cost that a judge by default may add."""
    judge_cap: int = 8_192
    """Most tokens of a judge's reply."""
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

    async def read_lanes(self, config: GenerationConfig) -> None:
        """Reads the times of the provider batches that a job and its judge may take."""
        if self.lanes is None or config.lane is Lane.STANDARD:
            return
        await self.lanes.refresh(config)
        judge = config.judge or self.judge
        if judge and CheckerName.JUDGE in config.checkers:
            # What a configuration lacks is told by the worker.
            with suppress(ConfigurationError):
                turn = Turn.parse(judge)
                await self.lanes.refresh_times(turn.provider, model_of(self.lanes, turn) or "")

    def forecast(self, job: Leased) -> Forecast:
        """Plans one job as if it was leased now."""
        if job.request.check_only:
            return Forecast(check_only=True)
        if (ruling := ruled_out(job)) is not None:
            return Forecast(outcome=ruling[0])
        try:
            call = FallbackChain(job, self.providers, lambda _: None, self.variants, self.lanes).take().call
        except (ConfigurationError, InputError, ProviderError) as error:
            return Forecast(problem=str(error))
        past, counter = self.history.answers(call), exact_counter(call.model)
        judge, by_default = self._judge_of(job.request.config, call)
        kind = CallKind(
            call.provider,
            call.model,
            call.lane,
            past,
            counter.name if counter else ESTIMATE,
            judge,
            by_default,
            Lane.STANDARD.value if by_default else self._judge_lane(job, judge),
            tuple(job.request.config.escalate),
        )
        return Forecast(
            kind,
            counted=call.prompt.snapshot.prompt_tokens or 0,
            tokens=prompt_tokens(call, counter) if past is None or past.billed_share is None else 0,
            cap=call.request.config.max_tokens,
            reserve_usd=call.reserve_usd,
        )

    def _judge_lane(self, job: Leased, judge: str) -> str:
        choice = None
        if self.lanes is not None and judge and self.judge_rides:
            with suppress(ConfigurationError):
                choice = choose_lane(self.lanes, job, Turn.parse(judge))
        return Lane.STANDARD.value if choice is None else choice.lane.value

    def _judge_of(self, config: GenerationConfig, call: Call) -> tuple[str, bool]:
        if CheckerName.JUDGE in config.checkers:
            return config.judge or self.judge or "", False
        if not self.judge_share or not wants_default(config):
            return "", False
        if self.judge:
            return self.judge, True
        cheap = self.providers.cheap_judge(call.provider, call.model)
        return (f"{cheap.turn.provider}:{cheap.turn.model or ''}" if cheap else ""), True

    def add(self, forecast: Forecast) -> None:
        """Adds one job."""
        self.jobs += 1
        if forecast.check_only:
            self.check_only += 1
        elif forecast.outcome is not None:
            self.uncalled[forecast.outcome] += 1
        elif forecast.problem is not None:
            self.problems[forecast.problem] += 1
        elif forecast.kind is not None:
            sums = {"calls": 1, "counted": forecast.counted, "tokens": forecast.tokens, "cap": forecast.cap}
            self._sums[forecast.kind].update(sums)
            self._reserve = max(self._reserve, forecast.reserve_usd or Decimal(0))

    def result(self) -> Estimate:
        """The estimate of all jobs so far."""
        rows: list[ModelEstimate] = []
        for kind, sums in self._sums.items():
            answers = self._answers(kind, sums)
            rows += [answers, *self._follow_ups(kind, answers), *self._escalations(kind, answers)]
        models = tuple(_merged(rows))
        return Estimate(
            jobs=self.jobs,
            calls=sum(sums["calls"] for sums in self._sums.values()),
            uncalled=dict(self.uncalled),
            check_only=self.check_only,
            problems=dict(self.problems),
            reserve_usd=self._reserve,
            models=models,
            time=self._time(models),
            unobserved=sum(sums["calls"] for kind, sums in self._sums.items() if kind.past is None),
        )

    def _answers(self, kind: CallKind, sums: Mapping[str, int]) -> ModelEstimate:
        past, calls, trial = kind.past, sums["calls"], self.history.trial
        cap = sums["cap"] / calls
        if past is None:
            outputs = Spread.only(cap).times(*NO_CALLS)
            output_from = f"a quarter of max_tokens ({sums['cap'] // calls:,}); no earlier calls"
        else:
            lengths = Spread.only(past.output_tokens).times(*(TRIAL_OUTPUT if trial else OTHER_OUTPUT))
            outputs = Spread(*(min(cap, length) for length in lengths))
            output_from = f"{past.calls:,} earlier calls"
        if past is not None and past.billed_share is not None:
            counted, bounds = sums["counted"] * past.billed_share, TRIAL_INPUT if trial else OTHER_INPUT
            counted_by = f"{kind.counted_by} x {past.billed_share:.2f}, as billed in {past.calls:,} calls"
        elif kind.counted_by == ESTIMATE:
            counted, bounds, counted_by = sums["tokens"], CHARACTERS, "estimate of 4 characters a token"
        else:
            counted, bounds, counted_by = sums["tokens"], TOKENIZER, kind.counted_by
        inputs = Spread.only(counted / calls).times(*bounds)
        sources = (counted_by, output_from)
        turn = Turn(kind.provider, kind.model)
        return self._row(turn, kind.lane, Purpose.GENERATE, Spread.only(calls), inputs, outputs, sources, past)

    def _row(  # noqa: PLR0917 - one row of the estimate
        self,
        turn: Turn,
        lane: str,
        purpose: str,
        calls: Spread,
        inputs: Spread,
        outputs: Spread,
        sources: tuple[str, str],
        past: Averages | None = None,
    ) -> ModelEstimate:
        """Calls with the tokens of each, at their price; ``sources`` name the bases of input and output."""
        costs = [self._cost(turn, lane, *each, past) for each in zip(inputs, outputs, strict=True)]
        prices = [cost for cost in costs if cost is not None]
        return ModelEstimate(
            turn.provider,
            self.providers.model_of(turn.provider, turn.model),
            lane,
            str(purpose),
            calls,
            calls.times(*inputs),
            calls.times(*outputs),
            calls.times(*prices) if len(prices) == len(costs) else None,
            *sources,
            latency_s=past.latency_s if past is not None else None,
        )

    def _cost(self, turn: Turn, lane: str, inputs: float, outputs: float, past: Averages | None = None) -> float | None:
        usage = Usage(
            input_tokens=round(inputs),
            output_tokens=round(outputs),
            cached_input_tokens=int(inputs * past.cache_reads) if past else 0,
            cache_write_tokens=int(inputs * past.cache_writes) if past else 0,
        )
        model = self.providers.model_of(turn.provider, turn.model)
        usd = self.providers.usage_usd(turn.provider, model, usage, lane)
        return None if usd is None else float(usd)

    def _follow_ups(self, kind: CallKind, answers: ModelEstimate) -> Iterable[ModelEstimate]:
        """Judges and second rounds: as often as after earlier answers of the model, else by what a judge may cost."""
        jobs, explicit = answers.calls.usual, bool(kind.judge) and not kind.by_default
        earlier = calls_in(self.history.first_calls(kind.provider, kind.model, judge=explicit))
        margin = TRIAL_JUDGES if self.history.trial else OTHER_JUDGES
        judged = False
        for same in (
            self.history.follow_ups(kind.provider, kind.model, judge=explicit) if earlier >= LEAST_CALLS else ()
        ):
            first, each, share = same[0], average(same, same[0].lane), calls_in(same) / earlier
            judged = judged or first.purpose == Purpose.JUDGE
            calls = Spread(jobs * max(0.0, share - margin), jobs * share, jobs * (share + margin))
            # In the lane of now: the price is another one, and the tokens are the same.
            lane = kind.lane if first.purpose != Purpose.JUDGE else kind.judge_lane if kind.judge else first.lane
            sources = (f"as billed in {each.calls:,} calls", f"{each.calls:,} earlier calls")
            inputs, outputs = Spread.only(each.input_tokens), Spread.only(each.output_tokens)
            turn = Turn(first.provider, first.model)
            row = self._row(turn, lane, first.purpose, calls, inputs, outputs, sources, each)
            yield row if lane == first.lane else replace(row, latency_s=0.0)
        if kind.judge and not judged and not (self.history.trial and earlier >= LEAST_CALLS):
            yield self._first_judge(kind, answers, unneeded=earlier >= LEAST_CALLS)

    def _first_judge(self, kind: CallKind, answers: ModelEstimate, *, unneeded: bool) -> ModelEstimate:
        """A judge of which no call is known: it reads at most the prompt and the answer."""
        turn, jobs = Turn.parse(kind.judge), answers.calls.usual
        most_in = (answers.input_tokens.usual + answers.output_tokens.usual) / jobs
        share, inputs = Spread.only(1.0), Spread(0.0, most_in / 2, most_in)
        outputs = Spread(0.0, min(JUDGE_TOKENS, self.judge_cap), self.judge_cap)
        source = "no earlier calls of this judge: a guess"
        each_usd = self._cost(turn, kind.judge_lane, inputs.usual, outputs.usual)
        if unneeded:
            share, source = Spread(0.0, 0.0, OTHER_JUDGES), "the earlier answers, of which none needed a judge"
        elif kind.by_default and each_usd is not None and answers.cost_usd is not None:
            # It is not asked beyond this share of what the answers cost.
            allowed = answers.cost_usd.times(float(self.judge_share) / (jobs * each_usd or 1.0))
            share = Spread(0.0, min(1.0, allowed.usual) / 2, min(1.0, allowed.high))
            source = f"at most {float(self.judge_share):.0%} of the answers' cost; no earlier calls"
        if share.low < 1:
            inputs, outputs = Spread.only(inputs.usual), Spread.only(outputs.usual)
        calls = share.times(jobs)
        return self._row(turn, kind.judge_lane, Purpose.JUDGE, calls, inputs, outputs, (source, source))

    def _escalations(self, kind: CallKind, answers: ModelEstimate) -> Iterable[ModelEstimate]:
        """Further models of a cascade: a guess, because how often they are asked depends on the questions."""
        jobs, source = answers.calls.usual, "a guess: a quarter of the jobs, at most all; prompts and answers as before"
        for name in kind.escalate:
            inputs = Spread.only(answers.input_tokens.usual / jobs)
            outputs = Spread.only(answers.output_tokens.usual / jobs)
            calls = Spread.only(jobs).times(*ESCALATED)
            yield self._row(Turn.parse(name), kind.lane, Purpose.ESCALATE, calls, inputs, outputs, (source, source))

    def _time(self, models: Sequence[ModelEstimate]) -> TimeEstimate:
        if not models:
            return TimeEstimate(NOTHING, "no calls")
        totals: dict[tuple[str, str | None], list[ModelEstimate]] = defaultdict(list)
        for row in models:
            totals[row.provider, row.model].append(row)
        bounds = [bound for key, rows in totals.items() for bound in self._bounds_of(*key, rows)]
        least, cause = max(bounds, key=lambda bound: bound[0].usual, default=(NOTHING, ""))
        if (waiting := self._waiting(models)) is not None:
            seconds, cause = waiting
            return TimeEstimate(Spread(least.low, max(least.usual, seconds), max(least.high, seconds)), cause)
        if not bounds:
            return TimeEstimate(None, "no limit is set, and no earlier call tells how long one takes")
        return TimeEstimate(least, cause)

    def _waiting(self, models: Sequence[ModelEstimate]) -> tuple[float, str] | None:
        """The time of the slowest cheaper lane, for each purpose one after the other: a judge reads what came back."""
        times: dict[str, tuple[float, str]] = {}
        for row in models:
            if self.lanes is not None and row.lane != Lane.STANDARD:
                time, basis = self.lanes.expected_time(row.provider, row.model, Lane(row.lane))
                bound = time.total_seconds(), basis
                times[row.purpose] = max(bound, times.get(row.purpose, bound))
        if not times:
            return None
        return sum(seconds for seconds, _ in times.values()), max(times.values())[1]

    def _bounds_of(
        self, provider: str, model: str | None, rows: Sequence[ModelEstimate]
    ) -> Iterable[tuple[Spread, str]]:
        limits, name = self.limits(provider, model), f"{provider}:{model or '?'}"
        for total, rate, unit in (
            (_sum(row.calls for row in rows), limits.requests_per_minute, "requests"),
            (_sum(row.input_tokens for row in rows), limits.input_tokens_per_minute, "input tokens"),
            (_sum(row.output_tokens for row in rows), limits.output_tokens_per_minute, "output tokens"),
        ):
            if rate:
                yield total.times(60 / rate), f"the {unit} a minute of {name}"
        timed = [(row.calls, row.latency_s) for row in rows if row.lane == Lane.STANDARD and row.latency_s]
        if timed:
            at_once = min(limits.concurrency or self.slots, self.slots)
            latency_s = max(latency for _, latency in timed)
            busy = _sum(calls.times(latency / at_once) for calls, latency in timed)
            yield Spread(*(max(seconds, latency_s) for seconds in busy)), f"{at_once:,} calls at once of {name}"


def _sum(spreads: Iterable[Spread]) -> Spread:
    return reduce(Spread.plus, spreads, NOTHING)


def _merged(rows: Iterable[ModelEstimate]) -> Iterable[ModelEstimate]:
    """One row for each model, lane and purpose."""
    merged: dict[tuple[str, str | None, str, str], ModelEstimate] = {}
    for row in rows:
        key = (row.provider, row.model, row.lane, row.purpose)
        first = merged.get(key)
        if first is None:
            merged[key] = row
            continue
        merged[key] = replace(
            first,
            calls=first.calls.plus(row.calls),
            input_tokens=first.input_tokens.plus(row.input_tokens),
            output_tokens=first.output_tokens.plus(row.output_tokens),
            cost_usd=first.cost_usd.plus(row.cost_usd) if first.cost_usd and row.cost_usd else None,
            counted_by=_both(first.counted_by, row.counted_by),
            output_from=_both(first.output_from, row.output_from),
            latency_s=max(filter(None, (first.latency_s, row.latency_s)), default=None),
        )
    return merged.values()


def _both(first: str, second: str) -> str:
    return first if second in first else f"{first}; {second}"
