"""Estimates a file or a stored batch by the code that plans its calls, without making one; streams the jobs in pages."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain, islice
from typing import Any
from uuid import UUID

from schemas.batch import BatchStatus
from schemas.generation import Lane
from schemas.job import JobRequest
from schemas.window import parse_window
from tasks.estimate import (
    CallLimits,
    Estimate,
    Estimator,
    Forecast,
    Forecaster,
    History,
    ModelEstimate,
    Spread,
    calls_in,
    first_lease,
)
from tasks.lanes.choice import LaneChooser
from tasks.ports import NewBatch, NewJob, Refused, Replay
from tasks.ports.remote_batches import BatchTimes
from tasks.submit import new_batch
from worker.ledger.history import UsedCalls
from worker.ledger.postgres import PostgresLedger
from worker.limits.rates import lane_terms, rates_of
from worker.operations.answerers import Answerer, Answerers
from worker.operations.file_intake import CHUNK, Intake
from worker.operations.input_columns import ColumnMap
from worker.operations.input_content import ContentDigest, SameInput, basis_of, readable_twice
from worker.operations.json_lines import check_files
from worker.operations.second_reading import find_unchanged
from worker.settings import Settings

PAGE = 200
"""Jobs planned at a time."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The use of a batch so far; ``final`` of its jobs are final."""

    jobs: int
    final: int
    calls: Sequence[UsedCalls]
    seconds: float


@dataclass(frozen=True, slots=True)
class Estimation:
    """The estimate of an input with the lines that would be refused, and the truth of a stored batch beside it."""

    estimate: Estimate
    lines: int
    refused: Sequence[Refused] = ()
    repeats: int = 0
    """Jobs that the ledger knows by their idempotency key."""
    max_cost_usd: Decimal | None = None
    history: bool = True
    """A ledger was there to learn from."""
    truth: Truth | None = None
    first: dict[str, Any] | None = None
    """The estimate that was made when the batch was submitted, if it was asked for."""
    trial_calls: int | None = None
    """Answered calls of the batch that is the basis; None: the newest calls are."""
    time_left_s: float | None = None
    """From the first call to the last moment for one before the deadline; None: there is no deadline."""
    unchanged: int = 0
    """Jobs that earlier batches with the same settings have: a run would take those."""
    default: str | None = None
    """The provider of jobs that name none; None: jobs that are there already are estimated."""
    why: str = ""
    """The reason for which that provider is assumed, for people; empty: a run here starts workers with it."""

    @property
    def late_s(self) -> float | None:
        """The usual time beyond the deadline; None: the jobs are in time, or nothing tells."""
        seconds = self.estimate.time.seconds
        if seconds is None or self.time_left_s is None or not self.estimate.calls:
            return None
        late_s = seconds.usual - self.time_left_s
        return late_s if late_s > 0 else None


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job whose calls are planned; none, if the ledger knows its ``key``."""

    job_id: UUID
    request: JobRequest
    key: str | None = None
    replay: Replay | None = None


@dataclass
class _Planner:
    answerer: Answerer
    ledger: PostgresLedger | None
    batch: NewBatch
    history: History
    at: datetime | None = None
    """Moment of the estimate; None: now."""
    repeats: int = 0

    def __post_init__(self) -> None:
        settings = self.settings = self.answerer.settings
        providers = self.answerer.providers
        share = Decimal(str(settings.default_judge_share))
        self._sharing = settings.share_policy
        self._forecaster = Forecaster(providers, self.history, self._sharing, settings.prompts, settings.judge, share)
        times = _unobserved if self.ledger is None else self.ledger.remote_batches.times
        self._forecaster.judge_rides = settings.judge_lane == "job"
        self._lanes = self._forecaster.lanes = LaneChooser(providers, times, lane_terms(settings))
        self.estimator = Estimator(
            providers,
            self.history,
            self._limits,
            judge_share=share,
            judge_cap=settings.judge_max_tokens,
            slots=settings.slots,
            lane_s=self._lane_s,
        )
        self._share_keys: set[bytes] = set()

    def _lane_s(self, provider: str, model: str | None, lane: str) -> tuple[float, str] | None:
        if lane == Lane.STANDARD:
            return None
        time, basis = self._lanes.expected_time(provider, model, Lane(lane))
        return time.total_seconds(), basis

    def _limits(self, provider: str, model: str | None) -> CallLimits:
        rates = rates_of(self.settings, provider, model or "")
        requests, tokens_in, tokens_out, _ = rates.most
        return CallLimits(requests, tokens_in, tokens_out, rates.concurrency)

    async def add(self, page: Sequence[PlannedJob]) -> None:
        """Plans some jobs, asks the ledger once for what it knows of them, and adds them up."""
        forecasts: list[Forecast] = []
        keys = [job.key for job in page if job.key]
        repeats: set[str] = set()
        if self.ledger is not None and self.at is None:
            repeats = await self.ledger.history.known_keys(self.batch.tenant, keys)
        for job in page:
            if job.key in repeats:
                self.repeats += 1
            else:
                if job.request.config.lane is not Lane.STANDARD:
                    await self._lanes.refresh(job.request.config)
                    await self._forecaster.refresh_judge(job.request.config)
                lease = first_lease(job.job_id, job.request, self.batch, job.replay, self.at)
                forecasts.append(self._forecaster.forecast(lease))
        keys_of_answers = [each.answer.share_key for each in forecasts if each.answer and each.answer.share_key]
        stored: set[bytes] = set()
        if self.ledger is not None:
            stored = await self.ledger.history.stored_keys(
                self.batch.tenant, keys_of_answers, self._sharing.within, self.at
            )
        for forecast in forecasts:
            key = forecast.answer.share_key if forecast.answer else None
            # An identical job of the same input waits for the first one's answer.
            self.estimator.add(forecast, stored=key is not None and (key in stored or key in self._share_keys))
            if key is not None:
                self._share_keys.add(key)

    async def add_all(self, jobs: Iterable[NewJob], on_page: Callable[[int], None] = lambda _: None) -> int:
        """Plans new jobs page by page, each followed by their number so far; returns their number."""
        stream, count = iter(jobs), 0
        while page := [_planned(job) for job in islice(stream, PAGE)]:
            await self.add(page)
            count += len(page)
            on_page(count)
            # A signal that ends the command is seen between pages.
            await asyncio.sleep(0)
        return count


def _planned(job: NewJob) -> PlannedJob:
    return PlannedJob(job.id, JobRequest.model_validate_json(job.request), job.idempotency_key, job.replay)


def _time_left_s(batch: NewBatch) -> float | None:
    if batch.deadline is None:
        return None
    begin, end = max(filter(None, (datetime.now(UTC), batch.not_before))), batch.deadline
    if batch.window is not None:
        window = parse_window(batch.window)
        begin, end = window.opening(begin), window.last_moment(end)
    return (end - begin).total_seconds()


def _answered(history: History) -> int:
    return calls_in([past for past in history.calls if past.answer is None])


async def _unobserved(provider: str, model: str, lane: Lane) -> BatchTimes:  # noqa: ARG001 - as the ledger's
    return BatchTimes()


async def estimate_jobs(
    jobs: Iterable[NewJob], batch: NewBatch, settings: Settings, ledger: PostgresLedger, refused: Sequence[Refused] = ()
) -> Estimation:
    """Estimates new jobs that are to be written as a batch, beside those that were refused."""
    planner = _Planner(Answerer(settings), ledger, batch, await ledger.history.past(batch.tenant))
    count = await planner.add_all(jobs)
    estimate = planner.estimator.result()
    return Estimation(estimate, count + len(refused), refused, planner.repeats, batch.max_cost_usd)


async def estimate_files(
    files: Sequence[str],
    options: dict[str, Any],
    settings: Settings,
    ledger: PostgresLedger | None,
    trial: UUID | None = None,
    *,
    columns: ColumnMap | None = None,
    on_refused: Callable[[Refused], None] = lambda _: None,
    tell: Callable[[str], None] = lambda _: None,
    answerers: Answerers | None = None,
    same_input: SameInput | None = SameInput.TAKE_EARLIER,
    priority: int = 0,
    on_page: Callable[[int], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
) -> Estimation:
    """Estimates files as they would be submitted; raises ``InputError``.

    Args:
        files: names, ``-`` for standard input.
        options: name, key and ceiling of the batch.
        settings: of this process.
        ledger: tells what earlier calls used and which jobs are known; None: nothing is known.
        trial: a batch whose calls alone are the basis; None: the newest calls.
        columns: those of the rows, beside those known by their names.
        on_refused: receives each line that would be refused.
        tell: receives how a file is read, where that is not plain from its lines.
        answerers: the processes that answer; None: those with these settings.
        same_input: the way of lines that earlier batches have, with the same settings; None: they are paid for anew.
        priority: of jobs that set none.
        on_page: receives the number of jobs so far, again and again.
        warn: receives what the producer should know of accepted lines, as a submission tells it.
    """
    check_files(files)
    batch = new_batch(dict(options), tenant=settings.tenant)
    answerers = answerers or Answerers([Answerer(settings)])
    settings = answerers.first.settings
    reading = columns or ColumnMap()
    basis = basis_of(settings, check_only=False, environment=answerers.first.environment)
    digest = ContentDigest(basis)
    intake = Intake(
        list(files), batch, strict=False, on_refused=on_refused, catalog=answerers.catalog, columns=reading, tell=tell,
        digest=digest, priority=priority,
    )  # fmt: skip
    history = await ledger.history.past(settings.tenant, batch_id=trial) if ledger is not None else History()
    planner = _Planner(answerers.first, ledger, batch, history)
    jobs = intake.jobs()
    first, again = list(islice(jobs, CHUNK)), None
    digest.end_head()
    if ledger is not None and same_input is SameInput.TAKE_EARLIER and batch.key is None and readable_twice(files):
        again = await find_unchanged(ledger.contents, intake, batch.tenant, basis, first)
    unchanged = again.unchanged if again is not None else {}
    await planner.add_all((job for job in chain(first, jobs) if job.position not in unchanged), on_page)
    intake.warn_of_jobs(warn)
    return Estimation(
        planner.estimator.result(),
        intake.lines,
        tuple(intake.refused),
        planner.repeats,
        batch.max_cost_usd,
        history=ledger is not None,
        trial_calls=None if trial is None else _answered(history),
        time_left_s=_time_left_s(batch),
        unchanged=len(unchanged),
        default=answerers.first.providers.default,
        why=answerers.why,
    )


async def estimate_batch(
    batch_id: UUID, settings: Settings, ledger: PostgresLedger, trial: UUID | None = None
) -> Estimation:
    """Estimates a stored batch by what was known when it was submitted, with the truth beside it; raises ``NotFound``."""
    status = await ledger.reading.batch_status(batch_id)
    history = await ledger.history.past(status.tenant, status.created_at, trial)
    batch = NewBatch(
        batch_id, status.tenant, not_before=status.not_before, window=status.window, deadline=status.deadline,
        max_cost_usd=status.max_cost_usd,
    )  # fmt: skip
    planner = _Planner(Answerer(settings), ledger, batch, history, status.created_at)
    async for page in _pages(ledger, batch_id):
        await planner.add(page)
    truth = await read_truth(ledger, status)
    first = await ledger.history.estimate_of(batch_id)
    estimate = planner.estimator.result()
    trial_calls = None if trial is None else _answered(history)
    return Estimation(
        estimate, estimate.jobs, max_cost_usd=status.max_cost_usd, truth=truth, first=first, trial_calls=trial_calls
    )


async def read_truth(ledger: PostgresLedger, status: BatchStatus) -> Truth:
    """The use of a batch so far."""
    calls = await ledger.history.used(status.batch_id)
    return Truth(status.jobs, status.final, calls, max((each.seconds for each in calls), default=0.0))


async def _pages(ledger: PostgresLedger, batch_id: UUID) -> AsyncIterator[list[PlannedJob]]:
    page: list[PlannedJob] = []
    async for view in ledger.reading.batch_views(batch_id):
        if view.unreadable is None:
            page.append(PlannedJob(view.job_id, view.request))
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page


def to_json(estimation: Estimation) -> dict[str, Any]:
    """The estimate, for programs; amounts in USD are strings."""
    estimate, truth = estimation.estimate, estimation.truth
    seconds = estimate.time.seconds
    return {
        "lines": estimation.lines,
        "jobs": estimate.jobs,
        "calls": estimate.calls,
        "unobserved_calls": estimate.unobserved,
        "no_call": {outcome.value: count for outcome, count in estimate.uncalled.items()},
        "stored_answers": estimate.stored,
        "unchanged": estimation.unchanged,
        "check_only": estimate.check_only,
        "known_jobs": estimation.repeats,
        "problems": dict(estimate.problems),
        "refused": [
            {"position": line.position, "where": line.place, "field": line.field, "message": line.message}
            for line in estimation.refused
        ],
        "models": [_row(row) for row in estimate.models],
        "input_tokens": _whole(estimate.total("input_tokens")),
        "output_tokens": _whole(estimate.total("output_tokens")),
        "cost_usd": _usd(estimate.cost_usd),
        "unknown_prices": list(estimate.unpriced),
        "largest_reservation_usd": f"{estimate.reserve_usd:f}",
        "max_cost_usd": None if estimation.max_cost_usd is None else f"{estimation.max_cost_usd:f}",
        "seconds": None if seconds is None else {name: round(value, 3) for name, value in seconds._asdict().items()},
        "bound_by": estimate.time.bound_by,
        "late_s": None if estimation.late_s is None else round(estimation.late_s, 3),
        "history": estimation.history,
        "default_provider": estimation.default,
        "told_by": estimation.why or None,
        "truth": truth and truth_document(truth),
        "first": estimation.first,
    }


def truth_document(truth: Truth) -> dict[str, Any]:
    """The use of a batch, for programs; amounts in USD are strings."""
    return {
        "jobs": truth.jobs,
        "final": truth.final,
        "seconds": round(truth.seconds, 3),
        "models": [
            {**asdict(each), "cost_usd": None if each.cost_usd is None else f"{each.cost_usd:f}"}
            for each in truth.calls
        ],
    }


def _row(row: ModelEstimate) -> dict[str, Any]:
    return {
        "provider": row.provider,
        "model": row.model,
        "lane": row.lane,
        "purpose": row.purpose,
        "calls": _whole(row.calls),
        "input_tokens": _whole(row.input_tokens),
        "output_tokens": _whole(row.output_tokens),
        "cost_usd": row.cost_usd and _usd(row.cost_usd),
        "input_counted_by": row.counted_by,
        "output_from": row.output_from,
        "latency_s": row.latency_s and round(row.latency_s, 3),
    }


def _whole(spread: Spread) -> dict[str, int]:
    return {name: round(value) for name, value in spread._asdict().items()}


def _usd(spread: Spread) -> dict[str, str]:
    return {name: f"{value:.6f}" for name, value in spread._asdict().items()}
