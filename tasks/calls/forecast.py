"""Plans the first call of a job by the code that makes it, without making it, beside what earlier calls used."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from uuid_utils.compat import uuid7

from schemas.generation import CheckerName, Lane
from schemas.job import GenerationConfig, JobRequest
from schemas.states import Outcome, Step
from schemas.window import gap_before, parse_window
from tasks.calls.call_history import Averages, History
from tasks.calls.experiments import Variants
from tasks.calls.response_cache import NO_SHARING, SharePolicy
from tasks.errors import ConfigurationError, InputError, ProviderError
from tasks.generate import FallbackChain, ruled_out
from tasks.grounding.judge.allowance import wants_default
from tasks.grounding.judge.lane import choose_lane, model_of
from tasks.lanes.choice import LaneChooser
from tasks.ports import Call, Leased, NewBatch, Providers, Replay, Turn
from tasks.prompting.sources.pack import ESTIMATE, ESTIMATED, Counter, exact_counter

MESSAGE_TOKENS = 4
"""Tokens around each message of a chat, in OpenAI's count."""

# ---- one job ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedAnswer:
    """The call that one job would make first, without its texts.

    Attributes:
        counted: tokens of its prompt in the count of its record.
        tokens: tokens of the prompt and of the schema of the reply by the tokenizer ``counted_by``; 0 where earlier calls
            tell what is billed for a count.
        cap: most tokens of the answer.
        reserve_usd: sum that the ledger reserves for the call; None for an unknown price.
        share_key: names identical calls whose answers are shared; None: it shares none.
        judge: the judge that the job asks for, or gets by default; empty for none.
        judge_lane: the lane of its call.
        escalate: the models that may be asked next.
    """

    provider: str
    model: str | None
    lane: str
    past: Averages | None
    counted: int
    tokens: int
    counted_by: str
    cap: int
    reserve_usd: Decimal | None
    share_key: bytes | None
    judge: str = ""
    by_default: bool = False
    judge_lane: Lane = Lane.STANDARD
    escalate: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast:
    """The way of one job through the first step: a call, no call by rule (``outcome``), or a problem."""

    answer: PlannedAnswer | None = None
    outcome: Outcome | None = None
    problem: str | None = None
    check_only: bool = False


@dataclass(slots=True)
class Forecaster:
    """Plans the first call of a job by the code that makes it, and makes none."""

    providers: Providers
    history: History
    sharing: SharePolicy = NO_SHARING
    variants: Variants = field(default_factory=dict)
    judge: str | None = None
    """Judge of the settings."""
    judge_share: Decimal = Decimal(0)
    """Share of an answer's cost that a judge by default may add."""
    judge_rides: bool = True
    """The judge that a job asks for may ride in a provider batch."""
    lanes: LaneChooser | None = None
    """Chooses the lane of jobs that leave it open; None: they are called at once."""

    def forecast(self, job: Leased) -> Forecast:
        """Plans one job as if it was leased now."""
        if job.request.check_only:
            return Forecast(check_only=True)
        if (ruling := ruled_out(job)) is not None:
            return Forecast(outcome=ruling[0])
        try:
            plan = FallbackChain(job, self.providers, lambda _: None, self.variants, self.lanes).take()
        except (ConfigurationError, InputError, ProviderError) as error:
            return Forecast(problem=str(error))
        call = plan.call
        share = self.sharing.terms(job, call) if self.sharing.tenants else None
        past = self.history.answers(call)
        judge, by_default = self._judge_of(job.request.config, call)
        counter = exact_counter(call.model)
        return Forecast(
            PlannedAnswer(
                provider=call.provider,
                model=call.model,
                lane=call.lane,
                past=past,
                counted=call.prompt.snapshot.prompt_tokens or 0,
                tokens=prompt_tokens(call, counter) if past is None or past.billed_share is None else 0,
                counted_by=counter.name if counter else ESTIMATE,
                cap=call.request.config.max_tokens,
                reserve_usd=call.reserve_usd,
                share_key=share.key if share is not None else None,
                judge=judge,
                by_default=by_default,
                judge_lane=Lane.STANDARD if by_default else self._judge_lane(job, judge),
                escalate=job.request.config.escalate,
            )
        )

    async def refresh_judge(self, config: GenerationConfig) -> None:
        """Reads the times of the provider batches of the judge that a job asks for."""
        judge = config.judge or self.judge
        if self.lanes is None or not judge or CheckerName.JUDGE not in config.checkers:
            return
        try:
            turn = Turn.parse(judge)
            await self.lanes.refresh_times(turn.provider, model_of(self.lanes, turn) or "")
        except ConfigurationError:
            # The worker says what is missing.
            return

    def _judge_lane(self, job: Leased, judge: str) -> Lane:
        if self.lanes is None or not judge or not self.judge_rides:
            return Lane.STANDARD
        try:
            choice = choose_lane(self.lanes, job, Turn.parse(judge))
        except ConfigurationError:
            return Lane.STANDARD
        return Lane.STANDARD if choice is None else choice.lane

    def _judge_of(self, config: GenerationConfig, call: Call) -> tuple[str, bool]:
        if CheckerName.JUDGE in config.checkers:
            return config.judge or self.judge or "", False
        if not self.judge_share or not wants_default(config):
            return "", False
        if self.judge:
            return self.judge, True
        cheap = self.providers.cheap_judge(call.provider, call.model)
        return (f"{cheap.turn.provider}:{cheap.turn.model or ''}" if cheap else ""), True


def prompt_tokens(call: Call, counter: Counter | None) -> int:
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
