"""Adds up the forecasts of jobs: tokens, cost and time by model, each with its spread."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Literal, Protocol

from schemas.generation import Lane
from schemas.model_call import Usage
from schemas.states import Outcome
from tasks.calls.call_history import LEAST_CALLS, OTHER_JUDGES, Averages, History, PastCalls, calls_in
from tasks.calls.forecast import Forecast, PlannedAnswer
from tasks.ports import Purpose, Turn
from tasks.prompting.sources.pack import ESTIMATE

USUAL_ESCALATED = 0.25
"""Share of the jobs that come to a further model of a cascade."""
LOW_FILL, USUAL_FILL = 1 / 16, 1 / 4
"""Shares of its cap that an answer has at least and usually, without an earlier call; at most it fills the cap."""

TOKENIZER, CHARACTERS = (0.9, 1.0, 1.2), (0.7, 0.85, 1.3)
"""Bounds of the billed input as shares of a count: providers count their own form of the schema; for characters see ``quarter_tokens``."""

BILLED, BILLED_TRIAL = (0.87, 1.0, 1.15), (0.95, 1.0, 1.05)
"""Bounds of the billed input as shares of the usual one after earlier calls: of other questions, and of the same."""

JUDGE_TOKENS = 400
"""Usual tokens of a written judge reply without an earlier call: five claims."""


class Tariff(Protocol):
    """The prices of an installation."""

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
class Spread:
    """A value with its bounds."""

    low: float
    usual: float
    high: float

    def __add__(self, other: "Spread") -> "Spread":
        return Spread(self.low + other.low, self.usual + other.usual, self.high + other.high)

    def __mul__(self, factor: float) -> "Spread":
        return Spread(self.low * factor, self.usual * factor, self.high * factor)


NOTHING = Spread(0, 0, 0)


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
        stored: jobs that take a stored answer, or that of an identical job of the same input.
        check_only: jobs whose answer is there.
        problems: jobs that would fail before a call, by reason.
        reserve_usd: the largest sum reserved for one call.
        models: the calls by model, lane and purpose.
        unpriced: models without a known price.
    """

    jobs: int
    calls: int
    uncalled: Mapping[Outcome, int]
    stored: int
    check_only: int
    problems: Mapping[str, int]
    reserve_usd: Decimal
    models: tuple[ModelEstimate, ...]
    time: TimeEstimate
    unobserved: int = 0

    @property
    def unpriced(self) -> tuple[str, ...]:
        """``provider:model`` of each model without a known price."""
        return tuple(dict.fromkeys(f"{row.provider}:{row.model or '?'}" for row in self.models if row.cost_usd is None))

    def total(self, amount: Literal["calls", "input_tokens", "output_tokens"]) -> Spread:
        """The sum over all models."""
        return sum((getattr(row, amount) for row in self.models), NOTHING)

    @property
    def cost_usd(self) -> Spread:
        """The sum of the known costs."""
        return sum((row.cost_usd for row in self.models if row.cost_usd is not None), NOTHING)


@dataclass(slots=True)
class _Group:
    """Sums over the jobs with the same model, lane and basis."""

    past: Averages | None
    counted_by: str
    calls: int = 0
    counted: int = 0
    tokens: int = 0
    cap: int = 0
    judges: Counter[tuple[str, bool, str]] = field(default_factory=Counter)
    further: Counter[Turn] = field(default_factory=Counter)
    """Jobs by each model that they name in ``escalate``."""


@dataclass(slots=True)
class Estimator:
    """Adds up forecasts; holds sums alone, whatever the number of jobs."""

    tariff: Tariff
    history: History
    limits: Callable[[str, str | None], CallLimits]
    judge_share: Decimal = Decimal(0)
    judge_cap: int = 8_192
    """Most tokens of a judge's reply."""
    slots: int = 1_000
    """Calls at once of all workers."""
    lane_s: Callable[[str, str | None, str], tuple[float, str] | None] = lambda *_: None
    """Seconds that a call waits in a cheaper lane of a model, and their basis; None for a call at once."""
    jobs: int = 0
    stored: int = 0
    check_only: int = 0
    uncalled: Counter[Outcome] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)
    _reserve: Decimal = Decimal(0)
    _groups: dict[tuple[object, ...], _Group] = field(default_factory=dict)

    def add(self, forecast: Forecast, *, stored: bool = False) -> None:
        """Adds one job; ``stored``: it takes the answer of an identical call."""
        self.jobs += 1
        if forecast.check_only:
            self.check_only += 1
        elif forecast.outcome is not None:
            self.uncalled[forecast.outcome] += 1
        elif forecast.problem is not None:
            self.problems[forecast.problem] += 1
        elif stored:
            self.stored += 1
        elif (answer := forecast.answer) is not None:
            self._add_answer(answer)

    def _add_answer(self, answer: PlannedAnswer) -> None:
        key = (answer.provider, answer.model, answer.lane, answer.past, answer.counted_by)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(answer.past, answer.counted_by)
        group.calls += 1
        group.counted += answer.counted
        group.tokens += answer.tokens
        group.cap += answer.cap
        if answer.judge:
            group.judges[answer.judge, answer.by_default, answer.judge_lane.value] += 1
        group.further.update(map(Turn.parse, answer.escalate))
        self._reserve = max(self._reserve, answer.reserve_usd or Decimal(0))

    def result(self) -> Estimate:
        """The estimate of all jobs so far."""
        rows: list[ModelEstimate] = []
        for key, group in self._groups.items():
            provider, model, lane = str(key[0]), key[1] if isinstance(key[1], str) else None, str(key[2])
            answers = self._answers(provider, model, lane, group)
            rows += [answers, *self._follow_ups(answers, group), *self._escalations(answers, group)]
        models = tuple(_merged(rows))
        calls = sum(group.calls for group in self._groups.values())
        return Estimate(
            jobs=self.jobs,
            calls=calls,
            uncalled=dict(self.uncalled),
            stored=self.stored,
            check_only=self.check_only,
            problems=dict(self.problems),
            reserve_usd=self._reserve,
            models=models,
            time=self._time(models, calls),
            unobserved=sum(group.calls for group in self._groups.values() if group.past is None),
        )

    def _answers(self, provider: str, model: str | None, lane: str, group: _Group) -> ModelEstimate:
        past, calls = group.past, group.calls
        inputs, counted_by = self._inputs(group)
        if past is None:
            outputs = Spread(group.cap * LOW_FILL, group.cap * USUAL_FILL, group.cap)
            output_from = f"a quarter of max_tokens ({group.cap // calls:,}); no earlier calls"
        else:
            usual, factor = calls * past.output_tokens, past.output_factor
            outputs = Spread(*(min(group.cap, total) for total in (usual / factor, usual, usual * factor)))
            output_from = f"{past.calls:,} earlier calls"
            if not self.history.same_kind:
                output_from += f", of {past.batches:,} {'batch' if past.batches == 1 else 'batches'}"
        return ModelEstimate(
            provider=provider,
            model=model,
            lane=lane,
            purpose=Purpose.GENERATE.value,
            calls=_only(calls),
            input_tokens=inputs,
            output_tokens=outputs,
            cost_usd=self._cost(Turn(provider, model), lane, calls, inputs, outputs, past),
            counted_by=counted_by,
            output_from=output_from,
            latency_s=past.latency_s if past is not None else None,
        )

    def _inputs(self, group: _Group) -> tuple[Spread, str]:
        """Estimates the input of answers, and names the counter."""
        past = group.past
        if past is not None and past.billed_share is not None:
            shares = BILLED_TRIAL if self.history.same_kind else BILLED
            usual = group.counted * past.billed_share
            counted_by = f"{past.counted_by} x {past.billed_share:.2f}, as billed in {past.calls:,} calls"
            return Spread(*(usual * share for share in shares)), counted_by
        shares, counted_by = TOKENIZER, group.counted_by
        if counted_by == ESTIMATE:
            shares, counted_by = CHARACTERS, "estimate of 4 characters a token"
        return Spread(*(group.tokens * share for share in shares)), counted_by

    def _cost(  # noqa: PLR0917 - one row of the estimate
        self, turn: Turn, lane: str, calls: float, inputs: Spread, outputs: Spread, past: Averages | None
    ) -> Spread | None:
        if not calls:
            return NOTHING
        costs = []
        for tokens_in, tokens_out in zip(_bounds(inputs), _bounds(outputs), strict=True):
            each_in = tokens_in / calls
            usage = Usage(
                input_tokens=round(each_in),
                output_tokens=round(tokens_out / calls),
                cached_input_tokens=int(each_in * past.cache_reads) if past else 0,
                cache_write_tokens=int(each_in * past.cache_writes) if past else 0,
            )
            usd = self.tariff.usage_usd(turn.provider, turn.model, usage, lane)
            if usd is None:
                return None
            costs.append(float(usd) * calls)
        return Spread(*costs)

    def _follow_ups(self, answers: ModelEstimate, group: _Group) -> Iterable[ModelEstimate]:
        """Judges and second rounds: as often as after earlier answers of the model, else by what a judge may cost."""
        provider, model = answers.provider, answers.model
        explicit = sum(count for (_, by_default, _), count in group.judges.items() if not by_default)
        for asks_judge, count in ((True, explicit), (False, group.calls - explicit)):
            if not count:
                continue
            earlier = calls_in(self.history.first_calls(provider, model, judge=asks_judge))
            if earlier >= LEAST_CALLS:
                judged = False
                for past, each in self.history.follow_ups(provider, model, judge=asks_judge):
                    if past.purpose == Purpose.JUDGE:
                        judged = True
                        # In the lane of now: the price is another one, and the tokens are the same.
                        lanes = [lane for (_, by_default, lane) in group.judges if by_default is not asks_judge]
                        yield self._follow_up(past, each, count, earlier, lanes[0] if lanes else past.lane)
                    elif past.purpose != Purpose.ESCALATE:
                        yield self._follow_up(past, each, count, earlier, answers.lane)
                if not judged and not self.history.same_kind:
                    yield from self._unseen_judges(answers, group, asks_judge=asks_judge, share=OTHER_JUDGES)
            else:
                for (judge, by_default, lane), times in group.judges.items():
                    if by_default is not asks_judge:
                        turn = self._turn(Turn.parse(judge))
                        yield self._first_judge(answers, turn, lane, times, by_default=by_default)

    def _unseen_judges(
        self, answers: ModelEstimate, group: _Group, *, asks_judge: bool, share: float
    ) -> Iterable[ModelEstimate]:
        """Judges that no earlier answer needed: none is expected, and answers to other questions may need some."""
        for (judge, by_default, lane), times in group.judges.items():
            if by_default is not asks_judge:
                turn = self._turn(Turn.parse(judge))
                first = self._first_judge(answers, turn, lane, times, by_default=by_default)
                source = "the earlier answers, of which none needed a judge"
                yield replace(
                    first,
                    calls=_at_most(times * share),
                    input_tokens=_at_most(first.input_tokens.high * share),
                    output_tokens=_at_most(first.output_tokens.high * share),
                    cost_usd=first.cost_usd and _at_most(first.cost_usd.high * share),
                    counted_by=source,
                    output_from=source,
                )

    def _escalations(self, answers: ModelEstimate, group: _Group) -> Iterable[ModelEstimate]:
        """Further models of a cascade: a guess, because how often they are asked depends on the questions."""
        for turn, times in ((self._turn(turn), times) for turn, times in group.further.items()):
            share = times / answers.calls.usual
            calls = Spread(0, times * USUAL_ESCALATED, times)
            each = (answers.input_tokens.usual * share / times, answers.output_tokens.usual * share / times)
            once = self._cost(turn, answers.lane, 1, _only(each[0]), _only(each[1]), None)
            source = "a guess: a quarter of the jobs, at most all; prompts and answers as before"
            yield ModelEstimate(
                provider=turn.provider,
                model=turn.model,
                lane=answers.lane,
                purpose=Purpose.ESCALATE.value,
                calls=calls,
                input_tokens=calls * each[0],
                output_tokens=calls * each[1],
                cost_usd=once and calls * once.usual,
                counted_by=source,
                output_from=source,
            )

    def _turn(self, turn: Turn) -> Turn:
        """The turn with its model, also where that is the provider's default."""
        return Turn(turn.provider, self.tariff.model_of(turn.provider, turn.model))

    def _follow_up(self, past: PastCalls, each: Averages, jobs: int, earlier: int, lane: str) -> ModelEstimate:
        share, margin = each.calls / earlier, self.history.margin(earlier)
        calls = Spread(jobs * max(0.0, share - margin), jobs * share, jobs * (share + margin))
        once = self._cost(
            Turn(past.provider, past.model), lane, 1, _only(each.input_tokens), _only(each.output_tokens), each
        )
        return ModelEstimate(
            provider=past.provider,
            model=past.model,
            lane=lane,
            purpose=past.purpose,
            calls=calls,
            input_tokens=calls * each.input_tokens,
            output_tokens=calls * each.output_tokens,
            cost_usd=once and calls * once.usual,
            counted_by=f"as billed in {each.calls:,} calls",
            output_from=f"{each.calls:,} earlier calls",
            latency_s=each.latency_s if past.lane == lane else 0.0,
        )

    def _first_judge(
        self, answers: ModelEstimate, turn: Turn, lane: str, times: int, *, by_default: bool
    ) -> ModelEstimate:
        """A judge of which no call is known: it reads at most the prompt and the answer."""
        share = times / answers.calls.usual
        most_in = (answers.input_tokens.usual + answers.output_tokens.usual) * share
        inputs = Spread(0.0, most_in / 2, most_in)
        outputs = Spread(0.0, min(JUDGE_TOKENS, self.judge_cap) * times, self.judge_cap * times)
        calls = Spread(0 if by_default else times, times, times)
        cost_usd = self._cost(turn, lane, times, inputs, outputs, None)
        source = "no earlier calls of this judge: a guess"
        if by_default and cost_usd is not None and answers.cost_usd is not None:
            # It is not asked beyond this share.
            most = [cost * share * float(self.judge_share) for cost in _bounds(answers.cost_usd)]
            usual = min(cost_usd.usual, most[1]) / 2
            scale = usual / cost_usd.usual if cost_usd.usual else 0.0
            inputs, outputs = (
                Spread(0.0, tokens.usual * scale, tokens.usual * scale * 2) for tokens in (inputs, outputs)
            )
            cost_usd = Spread(0.0, usual, most[2])
            calls = Spread(0, times * min(1.0, scale * 2), times)
            source = f"at most {float(self.judge_share):.0%} of the answers' cost; no earlier calls"
        return ModelEstimate(
            turn.provider,
            turn.model,
            lane,
            Purpose.JUDGE.value,
            calls,
            inputs,
            outputs,
            cost_usd,
            source,
            source,
        )

    def _time(self, models: Sequence[ModelEstimate], jobs: int) -> TimeEstimate:
        if not jobs:
            return TimeEstimate(NOTHING, "no calls")
        bounds: list[tuple[float, str]] = []
        totals: dict[tuple[str, str | None], list[ModelEstimate]] = defaultdict(list)
        for row in models:
            totals[row.provider, row.model].append(row)
        for (provider, model), rows in totals.items():
            bounds += self._bounds_of(provider, model, rows)
        paces = [self.history.paces[key] for key in totals if key in self.history.paces]
        if (waiting := self._waiting(models)) is not None:
            least, _ = max(bounds, default=(0.0, ""))
            seconds, cause = waiting
            return TimeEstimate(Spread(least, max(least, seconds), max(least, seconds)), cause)
        if not bounds and not paces:
            return TimeEstimate(None, "no limit is set, and no earlier call tells how long one takes")
        least, cause = max(bounds, default=(0.0, ""))
        usual = max([least, *(jobs / pace.quickest for pace in paces)])
        if usual > least:
            cause = "the pace of the quickest earlier batch"
        return TimeEstimate(Spread(least, usual, max([usual, *(jobs / pace.slowest for pace in paces)])), cause)

    def _waiting(self, models: Sequence[ModelEstimate]) -> tuple[float, str] | None:
        """The time of the slowest cheaper lane, for each purpose one after the other: a judge reads what came back."""
        times: dict[str, tuple[float, str]] = {}
        for row in models:
            if (time := self.lane_s(row.provider, row.model, row.lane)) is not None:
                times[row.purpose] = max(time, times.get(row.purpose, time))
        if not times:
            return None
        return sum(seconds for seconds, _ in times.values()), max(times.values())[1]

    def _bounds_of(
        self, provider: str, model: str | None, rows: Sequence[ModelEstimate]
    ) -> Iterable[tuple[float, str]]:
        limits, name = self.limits(provider, model), f"{provider}:{model or '?'}"
        calls, inputs, outputs = (
            sum(getattr(row, amount).usual for row in rows) for amount in ("calls", "input_tokens", "output_tokens")
        )
        for total, rate, unit in (
            (calls, limits.requests_per_minute, "requests"),
            (inputs, limits.input_tokens_per_minute, "input tokens"),
            (outputs, limits.output_tokens_per_minute, "output tokens"),
        ):
            if rate:
                yield total / rate * 60, f"the {unit} a minute of {name}"
        rows = [row for row in rows if row.lane == Lane.STANDARD]
        if seconds := sum(row.calls.usual * (row.latency_s or 0.0) for row in rows):
            at_once = min(limits.concurrency or self.slots, self.slots)
            latency_s = max(row.latency_s or 0.0 for row in rows)
            yield max(seconds / at_once, latency_s), f"{at_once:,} calls at once of {name}"


def _bounds(spread: Spread) -> tuple[float, float, float]:
    return spread.low, spread.usual, spread.high


def _only(value: float) -> Spread:
    return Spread(value, value, value)


def _at_most(value: float) -> Spread:
    return Spread(0.0, 0.0, value)


def _merged(rows: Iterable[ModelEstimate]) -> Iterable[ModelEstimate]:
    """One row for each model, lane and purpose."""
    merged: dict[tuple[str, str | None, str, str], ModelEstimate] = {}
    for row in rows:
        key = (row.provider, row.model, row.lane, row.purpose)
        first = merged.get(key)
        if first is None:
            merged[key] = row
            continue
        costs = (first.cost_usd, row.cost_usd)
        merged[key] = replace(
            first,
            calls=first.calls + row.calls,
            input_tokens=first.input_tokens + row.input_tokens,
            output_tokens=first.output_tokens + row.output_tokens,
            cost_usd=costs[0] + costs[1] if costs[0] is not None and costs[1] is not None else None,
            counted_by=_both(first.counted_by, row.counted_by),
            output_from=_both(first.output_from, row.output_from),
            latency_s=max(filter(None, (first.latency_s, row.latency_s)), default=None),
        )
    return merged.values()


def _both(first: str, second: str) -> str:
    return first if second in first else f"{first}; {second}"
